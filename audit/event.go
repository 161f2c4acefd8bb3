package audit

import (
	"net/netip"
	"time"
)

// Kind names what an event is about. The values are part of the record's format.
type Kind string

const (
	KindOpen    Kind = "open"    // a file was opened, or an open failed
	KindExec    Kind = "exec"    // a process replaced its program
	KindFork    Kind = "fork"    // a process was made
	KindExit    Kind = "exit"    // a process ended
	KindConnect Kind = "connect" // a connection was attempted
	KindSend    Kind = "send"    // a datagram was sent to an address
	KindOOM     Kind = "oom"     // the kernel chose a process to kill for memory

	// These are the supervisor's own, not acts of the run; their Seq is 0.
	KindStart Kind = "start" // first record of a run
	KindEnd   Kind = "end"   // last record of a run
	KindCut   Kind = "cut"   // a line that was not finished when the supervisor ended
	KindGap   Kind = "gap"   // in a live feed only: the reader was too slow for what is missing here
)

// An Event is one act of a run, as the kernel saw it. Exactly one of the detail
// fields is set, the one that Kind names.
type Event struct {
	Run  string    `json:"run"`  // empty on a gap in the feed of all runs
	Seq  uint64    `json:"seq"`  // per run, given in the kernel, from 1; a number that is missing is a loss
	Time time.Time `json:"time"` // when the act completed, UTC
	Kind Kind      `json:"kind"`

	Process *Process `json:"process,omitempty"` // who acted; nil on the supervisor's own records

	Open *Open    `json:"open,omitempty"`
	Exec *Exec    `json:"exec,omitempty"`
	Fork *Fork    `json:"fork,omitempty"`
	Exit *Exit    `json:"exit,omitempty"`
	Net  *Network `json:"net,omitempty"` // KindConnect and KindSend

	Start *Request `json:"start,omitempty"`
	End   *End     `json:"end,omitempty"`
	Cut   *Cut     `json:"cut,omitempty"`
	Gap   *Gap     `json:"gap,omitempty"`
}

// End closes a run's record.
type End struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
	Counts
}

// Cut keeps the bytes of a record's last line as a crash left them.
type Cut struct {
	Line Text `json:"line"`
}

// Gap says how much a reader of the live feed missed. The record on disk has it.
type Gap struct {
	Events uint64 `json:"events"`
}

// A Process is named twice: by its number on the host and by its number inside the
// run's PID namespace, which is the one the code sees.
type Process struct {
	PID    uint32 `json:"pid"`           // thread group, inside the run
	PPID   uint32 `json:"ppid"`          // parent's thread group, inside the run
	HostID uint32 `json:"host_pid"`      // thread group, on the host
	Thread uint32 `json:"tid,omitempty"` // thread inside the run, when it is not the leader
	Comm   Text   `json:"comm"`          // the kernel's 15-byte name, set by the process itself
}

// Access says what a file was opened for.
type Access string

const (
	AccessRead  Access = "read"
	AccessWrite Access = "write"
	AccessBoth  Access = "read-write"
	AccessPath  Access = "path" // O_PATH: a handle, no content
)

// Open is the opening of a file. On success Path is the object's path as the kernel
// resolved it; on failure it is the string the caller gave, and Unresolved is set.
type Open struct {
	Path       Text     `json:"path"`
	Access     Access   `json:"access"`
	Flags      []string `json:"flags,omitempty"` // create, truncate, append, exclusive, directory, tmpfile
	Errno      string   `json:"errno,omitempty"` // symbolic, empty on success
	Unresolved bool     `json:"unresolved,omitempty"`
	Truncated  bool     `json:"truncated,omitempty"` // the path was longer than what was kept; its leaf is kept
	Deleted    bool     `json:"deleted,omitempty"`   // no directory holds the file by this name: removed, memfd
}

// Exec is a program started in place of the caller.
type Exec struct {
	File          Text   `json:"file"` // as the kernel resolved it: for a script its interpreter
	Argv          []Text `json:"argv"`
	ArgvTruncated bool   `json:"argv_truncated,omitempty"`
	Truncated     bool   `json:"truncated,omitempty"` // of File
	Deleted       bool   `json:"deleted,omitempty"`   // File, as in [Open]
}

// Fork is the making of a process (threads are not reported).
type Fork struct {
	Child     uint32 `json:"child"`      // inside the run
	ChildHost uint32 `json:"child_host"` // on the host
}

// Exit is the end of a process.
type Exit struct {
	Code   int    `json:"code"`             // as the process gave it; 0 when a signal ended it
	Signal string `json:"signal,omitempty"` // SIGKILL and the like
	Core   bool   `json:"core,omitempty"`
}

// Decision is what the kernel was told to do with an attempt.
type Decision string

const (
	Allowed Decision = "allowed"
	Blocked Decision = "blocked"
)

// Network is an attempt to reach an address. An IPv4-mapped IPv6 address stands
// here as IPv4, so that one destination has one spelling.
type Network struct {
	Protocol string     `json:"protocol"` // tcp, udp, or the protocol's number
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port"`
	Decision Decision   `json:"decision"`
	Rule     string     `json:"rule"`             // which rule decided: "loopback", "no network granted", "no policy"
	Mapped   bool       `json:"mapped,omitempty"` // the caller wrote it as ::ffff:a.b.c.d
}

// Counts is what the kernel says about a run's record as a whole.
type Counts struct {
	Events uint64 `json:"events"` // sequence numbers given out
	Lost   uint64 `json:"lost"`   // of these, the ones that never reached the ring or could not be read
}
