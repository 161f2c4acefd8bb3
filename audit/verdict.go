package audit

import (
	"net/netip"
	"time"
)

// Status is how a run ended, in one word.
type Status string

const (
	StatusOK          Status = "ok"          // the program ended with code 0
	StatusExit        Status = "exit"        // the program ended by itself, with another code or by a signal of its own
	StatusTimeout     Status = "timeout"     // it was ended at its deadline
	StatusOOM         Status = "oom"         // its main process was killed for the memory limit
	StatusPIDs        Status = "pids"        // it failed after it had hit the process limit
	StatusKilled      Status = "killed"      // somebody ended it: SIGKILL, or a caller who went away
	StatusAuditLimit  Status = "audit_limit" // its record would have been incomplete
	StatusRefused     Status = "refused"     // the request broke a rule; nothing ran
	StatusCPUTime     Status = "cpu_time"    // ended at its limit of processor time
	StatusError       Status = "error"       // Proctor could not run it
	StatusInterrupted Status = "interrupted" // the supervisor ended while it ran
)

// Verdict is what the caller of a run is told, and what stands in verdict.json.
type Verdict struct {
	Run    string `json:"run"`
	Status Status `json:"status"`
	// ExitCode is the program's own, or 128 plus the signal that ended it, or one of
	// Proctor's: 124 timeout, 125 not run, 137 OOM or kill.
	ExitCode   int    `json:"exit_code"`
	Signal     string `json:"signal,omitempty"`
	Reason     string `json:"reason"`                // one sentence
	Remedy     string `json:"remedy,omitempty"`      // what to do instead, where there is something
	RetryAfter int    `json:"retry_after,omitempty"` // seconds after which the same request may be taken, of a refusal for want of room

	Image ImageRef `json:"image"`

	Stdout Output `json:"-"`
	Stderr Output `json:"-"`

	Inputs  []InputFile     `json:"inputs,omitempty"`
	Outputs []OutputFile    `json:"outputs"`
	Skipped []SkippedOutput `json:"outputs_skipped,omitempty"`
	// SkippedMore counts those that are refused and not named, beyond the first hundred.
	SkippedMore int `json:"outputs_skipped_more,omitempty"`

	Usage  Usage      `json:"usage"`
	Egress Egress     `json:"egress"`
	Files  FileCounts `json:"files"`
	// Refused are the system calls that the box did not carry out, most tried first.
	Refused []RefusedCall `json:"refused_calls,omitempty"`
	// RefusedMore are attempts at calls that are not listed, beyond the first hundred.
	RefusedMore int64   `json:"refused_calls_more,omitempty"`
	Audit       Summary `json:"audit"`
}

// ImageRef is which image a run had.
type ImageRef struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// InputFile is an input as it was while the run went on; docs/sight.md says what its owner may hide.
type InputFile struct {
	Name    Text   `json:"name"`
	Bytes   int64  `json:"bytes"`             // when the run began
	SHA256  string `json:"sha256,omitempty"`  // of as many bytes
	Changed bool   `json:"changed,omitempty"` // it was written to, or its attributes set, before the run's end
	Error   string `json:"error,omitempty"`   // why there is no hash
}

// OutputFile is a file that the run left in /outputs.
type OutputFile struct {
	Name   Text   `json:"name"` // relative to /outputs, with '/' between elements
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// SkippedOutput is something in /outputs that is not handed out.
type SkippedOutput struct {
	Name   Text   `json:"name"`
	Reason string `json:"reason"`
}

// Usage is what the run used.
type Usage struct {
	WallMS        int64 `json:"wall_ms"` // from the program's start to its end
	CPUMS         int64 `json:"cpu_ms"`
	MemoryPeak    int64 `json:"memory_peak_bytes"` // what it wrote to scratch counts
	ProcessesPeak int64 `json:"processes_peak"`    // threads count; 0 where the kernel does not say
	OOMKills      int64 `json:"oom_kills,omitempty"`
}

// Egress sums up the connection attempts by destination.
type Egress struct {
	Allowed []Destination `json:"allowed"` // loopback inside the run is not egress and not listed
	Blocked []Destination `json:"blocked"`
	// AllowedMore and BlockedMore are attempts to places that are not listed, beyond the first
	// thousand.
	AllowedMore int64 `json:"allowed_more,omitempty"`
	BlockedMore int64 `json:"blocked_more,omitempty"`
	// Findings are contradictions between what the kernel and the gateway saw; the record has them.
	Findings int `json:"findings,omitempty"`
}

// Destination is one place the run tried to reach.
type Destination struct {
	Name     Text       `json:"name,omitempty"`   // that was asked for, where one was
	Address  netip.Addr `json:"address,omitzero"` // none where the name alone was asked for
	Port     uint16     `json:"port"`             // 53 where the name alone was asked for
	Protocol string     `json:"protocol"`         // tcp, udp, or dns: the question for the name
	Count    int64      `json:"count"`
	Rule     string     `json:"rule"`
	Remedy   string     `json:"remedy,omitempty"` // what to do instead
}

// FileCounts counts what succeeded.
type FileCounts struct {
	Read    int64 `json:"read"`    // opens
	Written int64 `json:"written"` // likewise
	Changed int64 `json:"changed"` // changes to names and attributes
}

// RefusedCall is a system call that was refused.
type RefusedCall struct {
	Call  string `json:"call"` // with its ABI where that is not the box's, or a socket's family and type
	Count int64  `json:"count"`
}

// Summary says how complete the record is and what it hashes to.
type Summary struct {
	Counts
	// LostByKind says which acts are missing. What policy refuses is refused, recorded or not.
	LostByKind map[Kind]uint64 `json:"lost_by_kind,omitempty"`
	Complete   bool            `json:"complete"` // nothing lost, and the end was seen
	Seal       string          `json:"seal"`     // sha256: of events.jsonl, whole
}

// Request is what was asked for, as it was understood. It stands in request.json.
type Request struct {
	Run      string     `json:"run"`
	Time     time.Time  `json:"time"`
	Caller   Caller     `json:"caller"`
	Image    ImageRef   `json:"image"`
	Language string     `json:"language"`
	Argv     []Text     `json:"argv"` // of the program, inside the box
	Code     CodeRef    `json:"code"`
	Inputs   []InputRef `json:"inputs"`
	Limits   any        `json:"limits"`
	Profile  string     `json:"profile"`
	Egress   []string   `json:"egress"` // what is granted, as its rules are written

	// Agent and Conversation are the caller's words of whose work this is. Nothing follows from them.
	Agent        Text `json:"agent,omitempty"`
	Conversation Text `json:"conversation,omitempty"`
}

// Caller is who asked, as the kernel says.
type Caller struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	PID int32  `json:"pid"`
}

// CodeRef identifies the code; its bytes stand verbatim beside the record.
type CodeRef struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// InputRef is one input file.
type InputRef struct {
	Name  Text   `json:"name"`
	Bytes int64  `json:"bytes"`
	How   string `json:"how"` // mount or copy
	Why   string `json:"why_copied,omitempty"`
}
