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
	KindChange  Kind = "change"  // a name or an attribute of a file was changed, or was to be
	KindBind    Kind = "bind"    // a socket was given an address
	KindListen  Kind = "listen"  // a socket began to accept connections
	KindRefused Kind = "refused" // a system call that a box does not have
	KindRaced   Kind = "raced"   // an earlier open may name the wrong file: counts as a loss
	KindUnseen  Kind = "unseen"  // no event's: in counts of losses, the kernel did not call what looks at acts

	// These are the gateway's word: what a run's questions and connections were about. Their Seq is 0.
	KindQuery   Kind = "query"   // a name was asked for
	KindFlow    Kind = "flow"    // a connection, or a stream of datagrams, came to its end or was refused
	KindScrub   Kind = "scrub"   // a secret was taken out of an answer
	KindFinding Kind = "finding" // the kernel and the gateway do not tell the same story

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

	Process *Process `json:"process,omitempty"` // who acted; nil on the supervisor's own records. Events share it
	Repeat  *Repeat  `json:"repeat,omitempty"`  // the event stands for repeats of an earlier one

	Open    *Open    `json:"open,omitempty"`
	Exec    *Exec    `json:"exec,omitempty"`
	Fork    *Fork    `json:"fork,omitempty"`
	Exit    *Exit    `json:"exit,omitempty"`
	Net     *Network `json:"net,omitempty"` // KindConnect, KindSend, KindBind and KindListen
	Change  *Change  `json:"change,omitempty"`
	Refused *Refused `json:"refused,omitempty"`
	Raced   *Raced   `json:"raced,omitempty"`

	Query   *Query   `json:"query,omitempty"`
	Flow    *Flow    `json:"flow,omitempty"`
	Scrub   *Scrub   `json:"scrub,omitempty"`
	Finding *Finding `json:"finding,omitempty"`

	Start *Request `json:"start,omitempty"`
	End   *End     `json:"end,omitempty"`
	Cut   *Cut     `json:"cut,omitempty"`
	Gap   *Gap     `json:"gap,omitempty"`
}

// Acts is how many acts the event stands for.
func (e *Event) Acts() uint64 {
	if e.Repeat != nil {
		return e.Repeat.Count
	}
	return 1
}

// Blocked reports whether the event is an attempt to reach something that was refused.
func (e *Event) Blocked() bool {
	switch {
	case e.Net != nil:
		return e.Net.Decision == Blocked
	case e.Query != nil:
		return e.Query.Decision == Blocked
	case e.Flow != nil:
		return e.Flow.Decision == Blocked
	}
	return false
}

// Doubtful reports whether the event, or one that it is about, may name the wrong file.
func (e *Event) Doubtful() bool {
	return e.Raced != nil || e.Open != nil && e.Open.Raced || e.Exec != nil && e.Exec.Raced ||
		e.Change != nil && e.Change.Raced || e.Net != nil && e.Net.Raced
}

// Repeat says that a thread did again what it had done before: the same in every detail that
// the record has. The event's own time is the last one's.
type Repeat struct {
	Of    uint64    `json:"of"` // Seq of the event that was repeated
	Count uint64    `json:"count"`
	First time.Time `json:"first"`
}

// End closes a run's record.
type End struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
	Counts
	Inputs []InputFile `json:"inputs,omitempty"`
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
// run's PID namespace, which is the one the code sees. Numbers are used again; together with
// Start they are not.
type Process struct {
	PID    uint32 `json:"pid"`           // thread group, inside the run
	PPID   uint32 `json:"ppid"`          // parent's thread group, inside the run
	HostID uint32 `json:"host_pid"`      // thread group, on the host
	Thread uint32 `json:"tid,omitempty"` // thread inside the run, when it is not the leader
	Start  uint64 `json:"start"`         // when it was made, ns on the host's boot clock
	Comm   Text   `json:"comm"`          // the kernel's 15-byte name, set by the process itself

	// What it runs, as its last exec said: on network acts and refused calls, for whoever
	// reads them alone.
	File Text   `json:"file,omitempty"`
	Argv []Text `json:"argv,omitempty"`
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
	Dir        Text     `json:"dir,omitempty"` // where an unresolved relative Path starts from, as the kernel resolved it
	Access     Access   `json:"access"`
	Flags      []string `json:"flags,omitempty"` // create, truncate, append, exclusive, directory, tmpfile; memfd: by memfd_create
	Errno      string   `json:"errno,omitempty"` // symbolic, empty on success
	Unresolved bool     `json:"unresolved,omitempty"`
	Truncated  bool     `json:"truncated,omitempty"` // the path was longer than what was kept; its leaf is kept
	Deleted    bool     `json:"deleted,omitempty"`   // no directory holds the file by this name: removed, memfd
	Raced      bool     `json:"raced,omitempty"`     // a second thread may have put another file in this one's place, or a path was renamed while it was read
}

// Exec is a program started in place of the caller, or the attempt.
type Exec struct {
	File      Text   `json:"file"`             // as the kernel resolved it: for a script its interpreter; on failure the caller's string
	Script    Text   `json:"script,omitempty"` // the name of the script that File interprets, as it was called
	Argv      []Text `json:"argv"`
	ArgvBytes uint32 `json:"argv_truncated_bytes,omitempty"` // true length of an argv that is cut, each NUL included
	Env       []Text `json:"env"`                            // names of the environment's variables, never their values
	EnvCut    bool   `json:"env_truncated,omitempty"`        // there may be more names
	Dir       Text   `json:"cwd,omitempty"`                  // working directory; on failure what a relative File starts from
	UID       uint32 `json:"uid"`                            // inside the run, as is GID
	GID       uint32 `json:"gid"`
	Errno     string `json:"errno,omitempty"`     // symbolic, empty on success
	Truncated bool   `json:"truncated,omitempty"` // of File
	Deleted   bool   `json:"deleted,omitempty"`   // File, as in [Open]
	Raced     bool   `json:"raced,omitempty"`     // a path was renamed while it was read
}

// Fork is the making of a process (threads are not reported).
type Fork struct {
	Child     uint32 `json:"child"`      // inside the run
	ChildHost uint32 `json:"child_host"` // on the host
	Start     uint64 `json:"start"`      // the child's, as in [Process]
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
	Name     Text       `json:"name,omitempty"`     // of a UNIX socket: its file's path, or what the caller gave where that failed; an abstract one starts with NUL
	Dir      Text       `json:"dir,omitempty"`      // what a relative Name that failed starts from
	Host     Text       `json:"host,omitempty"`     // that the address stands for in this run
	Decision Decision   `json:"decision,omitempty"` // empty on binds and listens, which stay inside the run
	Rule     string     `json:"rule,omitempty"`     // which rule decided: "loopback", "no network granted"
	Errno    string     `json:"errno,omitempty"`    // of a bind or listen that failed
	Mapped   bool       `json:"mapped,omitempty"`   // the caller wrote it as ::ffff:a.b.c.d; of a datagram: an IPv6 socket sent it
	Raced    bool       `json:"raced,omitempty"`    // a path was renamed while it was read
}

// Change is what was done to a name or an attribute of a file. A file that was named by a
// descriptor has the path that the kernel resolved; other names are the caller's strings, and
// Unresolved is set.
type Change struct {
	Act       ChangeAct `json:"act"`
	Path      Text      `json:"path"`
	Dir       Text      `json:"dir,omitempty"`    // as in [Open]
	To        Text      `json:"to,omitempty"`     // the second name of rename, exchange and link
	ToDir     Text      `json:"to_dir,omitempty"` // as Dir
	Target    Text      `json:"target,omitempty"` // what a symbolic link points to
	Attribute Text      `json:"attribute,omitempty"`
	Mode      string    `json:"mode,omitempty"`  // octal
	Owner     string    `json:"owner,omitempty"` // uid:gid inside the run; -1 leaves it
	Length    *int64    `json:"length,omitempty"`
	Whiteout  bool      `json:"whiteout,omitempty"` // the rename leaves a device 0:0 by the old name
	Errno     string    `json:"errno,omitempty"`    // symbolic, empty on success

	Unresolved bool `json:"unresolved,omitempty"`
	Truncated  bool `json:"truncated,omitempty"` // a path or string was longer than what was kept
	Deleted    bool `json:"deleted,omitempty"`   // the file of a descriptor has no name any more
	Raced      bool `json:"raced,omitempty"`     // a path was renamed while it was read, or a string could not be read any more
}

// ChangeAct says what a [Change] did.
type ChangeAct string

const (
	ChangeTruncate    ChangeAct = "truncate"
	ChangeUnlink      ChangeAct = "unlink"
	ChangeRmdir       ChangeAct = "rmdir"
	ChangeRename      ChangeAct = "rename"
	ChangeExchange    ChangeAct = "exchange"
	ChangeLink        ChangeAct = "link"
	ChangeSymlink     ChangeAct = "symlink"
	ChangeMkdir       ChangeAct = "mkdir"
	ChangeMknod       ChangeAct = "mknod"
	ChangeMode        ChangeAct = "chmod"
	ChangeOwner       ChangeAct = "chown"
	ChangeTimes       ChangeAct = "times"
	ChangeSetXattr    ChangeAct = "setxattr"
	ChangeRemoveXattr ChangeAct = "removexattr"
)

// Refused is a system call that was not carried out.
type Refused struct {
	Call   string   `json:"call"` // by name; empty where the number has none
	Number uint32   `json:"number"`
	ABI    string   `json:"abi"`              // x86_64, aarch64, i386, x32, or the kernel's number
	Args   []string `json:"args"`             // as the registers had them, hexadecimal
	Errno  string   `json:"errno,omitempty"`  // what the caller was told
	Signal string   `json:"signal,omitempty"` // or what ended it
	Socket *Socket  `json:"socket,omitempty"` // of socket and socketpair
}

// Socket is what a socket was to be.
type Socket struct {
	Family   string `json:"family"`
	Type     string `json:"type"`
	Protocol uint32 `json:"protocol"`
}

// Raced says which event is in doubt: a second thread exchanged the descriptor while the call
// was returning, and what is recorded may be the file that it put there.
type Raced struct {
	Of uint64 `json:"of"` // Seq
}

// Counts is what the kernel says about a run's record as a whole.
type Counts struct {
	Events uint64 `json:"events"`          // sequence numbers given out
	Lost   uint64 `json:"lost"`            // of these, the ones that never reached the ring or could not be read
	Folded uint64 `json:"folded"`          // acts that stand in the count of a [Repeat] instead of an event of their own
	Raced  uint64 `json:"raced,omitempty"` // events that may name the wrong file
}
