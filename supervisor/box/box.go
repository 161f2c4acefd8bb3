package box

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"
)

// Runtime makes boxes. There is one implementation for each level of the isolation
// ladder; all of them put the program's processes in the box's cgroup and its sockets
// in the box's network namespace.
type Runtime interface {
	// Create makes a box whose processes are not running yet. Its cgroup exists when
	// Create returns, so that the kernel's programs can be told of it.
	Create(ctx context.Context, spec Spec) (Box, error)
	// Sweep removes what boxes of an earlier supervisor left behind, and returns the
	// ids it found. It touches only what this runtime's instance made.
	Sweep(ctx context.Context) ([]string, error)
}

// Box is one isolated place for one program.
type Box interface {
	// CgroupID is the inode number of the box's directory in the cgroup v2 hierarchy.
	CgroupID() uint64
	// Start runs the box's init and returns when it waits for the program.
	Start(ctx context.Context) error
	// AttachCode puts the code at the named place below /code, read-only for the box.
	AttachCode(name string, code []byte) error
	// AttachTrust puts certificates of authorities at the named places below [TrustDir],
	// read-only for the box.
	AttachTrust(files map[string][]byte) error
	// AttachInput shows the open file at /inputs/NAME, read-only, where NAME may have
	// directories. The file stays the caller's to close. It says how the file got in.
	AttachInput(ctx context.Context, name string, f *os.File) (Attachment, error)
	// Go starts the program. The three files become its stdin, stdout and stderr; they
	// stay the caller's to close.
	Go(ctx context.Context, p Program) error
	// Exited delivers the program's end once, as the box's init saw it. It is closed
	// without a value when the box ended without saying how.
	Exited() <-chan Exit
	// Orphaned says whether what keeps the box on the host was killed, after which the runtime
	// ends the box.
	Orphaned() bool
	// Uncharged is how many bytes of kernel memory the box's processes are known to hold that
	// count for no limit, or more than enough. It is for while they live.
	Uncharged(enough int64) (int64, error)
	// Terminate asks every process of the box but its init to end (SIGTERM).
	Terminate() error
	// Kill ends every process of the box and returns when none is left.
	Kill(ctx context.Context) error
	// Usage reads what the box has used so far. Valid until Destroy.
	Usage() (Usage, error)
	// Outputs is the host's path of the box's /outputs. Valid until Destroy.
	Outputs() string
	// Destroy kills what runs and removes everything that Create and Start made.
	Destroy(ctx context.Context) error
}

// TrustDir is where a box finds the certificates that it is to trust.
const TrustDir = "/.proctor/trust"

// Spec says what a box may use. The zero value of a limit is not "unlimited": it is
// refused by Validate.
type Spec struct {
	ID     string // names every object of the box; [a-z0-9-], at most 64 bytes
	Image  string // name under which the locked image is stored in containerd
	Limits Limits
	NetNS  string // file that stands for the network namespace; the caller's to remove
	// Resolver is the address that /etc/resolv.conf names.
	Resolver netip.Addr
}

// Limits bound one run. Every field but Grace is required.
type Limits struct {
	Timeout       time.Duration `json:"timeout"`        // wall clock, from the program's start
	Grace         time.Duration `json:"grace"`          // after the timeout, between being asked to end and being ended; may be none
	Memory        int64         `json:"memory"`         // bytes, without what scratch may hold
	CPUs          float64       `json:"cpus"`           // processors' worth of time per second
	CPUTime       time.Duration `json:"cpu_time"`       // of all processes together, from the program's start
	Processes     int64         `json:"processes"`      // threads count, too
	ScratchBytes  int64         `json:"scratch_bytes"`  // of everything writable in the box together
	ScratchInodes int64         `json:"scratch_inodes"` // likewise, files and directories
	OutputBytes   int64         `json:"output_bytes"`   // kept of stdout, and of stderr
	OpenFiles     int64         `json:"open_files"`     // per process
	AuditEvents   int64         `json:"audit_events"`   // in the record
}

// Or is l, with d's where l says nothing (zero).
func (l Limits) Or(d Limits) Limits {
	return Limits{
		Timeout: cmp.Or(l.Timeout, d.Timeout), Grace: cmp.Or(l.Grace, d.Grace), Memory: cmp.Or(l.Memory, d.Memory), CPUs: cmp.Or(l.CPUs, d.CPUs), CPUTime: cmp.Or(l.CPUTime, d.CPUTime),
		Processes: cmp.Or(l.Processes, d.Processes), ScratchBytes: cmp.Or(l.ScratchBytes, d.ScratchBytes),
		ScratchInodes: cmp.Or(l.ScratchInodes, d.ScratchInodes), OutputBytes: cmp.Or(l.OutputBytes, d.OutputBytes),
		OpenFiles: cmp.Or(l.OpenFiles, d.OpenFiles), AuditEvents: cmp.Or(l.AuditEvents, d.AuditEvents),
	}
}

// AtMost is l, lowered to a ceiling that says something of every limit.
func (l Limits) AtMost(c Limits) Limits {
	return Limits{
		Timeout: min(l.Timeout, c.Timeout), Grace: min(l.Grace, c.Grace), Memory: min(l.Memory, c.Memory), CPUs: min(l.CPUs, c.CPUs), CPUTime: min(l.CPUTime, c.CPUTime),
		Processes: min(l.Processes, c.Processes), ScratchBytes: min(l.ScratchBytes, c.ScratchBytes),
		ScratchInodes: min(l.ScratchInodes, c.ScratchInodes), OutputBytes: min(l.OutputBytes, c.OutputBytes),
		OpenFiles: min(l.OpenFiles, c.OpenFiles), AuditEvents: min(l.AuditEvents, c.AuditEvents),
	}
}

// inodeBytes is what a tmpfs inode costs the memory cgroup, rounded up. Measured on
// Linux 6.18: about 1 KiB with its dentry.
const inodeBytes = 1024

// overhead is what init and the kernel's own bookkeeping for the box need.
const overhead = 4 << 20

// Charged is how much memory all of a box may have, in bytes. What is written to scratch is
// charged to the same cgroup: without room for it, a full scratch would be an OOM kill instead
// of ENOSPC.
func (l Limits) Charged() int64 {
	return l.Memory + l.ScratchBytes + l.ScratchInodes*inodeBytes + overhead
}

// Validate reports the first limit that makes no sense, by name.
func (l Limits) Validate() error {
	switch {
	case l.Timeout <= 0:
		return fmt.Errorf("timeout %s: must be positive", l.Timeout)
	case l.Grace < 0:
		return fmt.Errorf("grace %s: must not be negative", l.Grace)
	case l.Memory < MinMemory:
		return fmt.Errorf("memory %d bytes: must be at least %d MiB (a program cannot start in less)", l.Memory, MinMemory>>20)
	case !(l.CPUs >= MinCPUs):
		return fmt.Errorf("cpus %g: must be at least %g", l.CPUs, MinCPUs)
	case l.CPUTime < MinCPUTime:
		return fmt.Errorf("cpu time %s: must be at least %s", l.CPUTime, MinCPUTime)
	case l.Processes < MinProcesses:
		return fmt.Errorf("pids %d: must be at least %d (one is the box's init)", l.Processes, MinProcesses)
	case l.ScratchBytes < MinScratchBytes:
		return fmt.Errorf("scratch %d bytes: must be at least %d MiB", l.ScratchBytes, MinScratchBytes>>20)
	case l.ScratchInodes < MinScratchInodes:
		return fmt.Errorf("scratch inodes %d: must be at least %d", l.ScratchInodes, MinScratchInodes)
	case l.OutputBytes <= 0:
		return fmt.Errorf("output %d bytes: must be positive", l.OutputBytes)
	case l.OpenFiles < 16:
		return fmt.Errorf("open files %d: must be at least 16", l.OpenFiles)
	case l.AuditEvents < MinAuditEvents:
		return fmt.Errorf("audit events %d: must be at least %d (an interpreter's start alone takes as many)", l.AuditEvents, MinAuditEvents)
	}
	return nil
}

// The least a box works with. Below these the box itself would fail, in ways that look
// like the code's fault.
const (
	MinMemory        = 16 << 20
	MinCPUs          = 0.05
	MinCPUTime       = 100 * time.Millisecond
	MinProcesses     = 2
	MinScratchBytes  = 1 << 20
	MinScratchInodes = 64
	MinAuditEvents   = 100
)

// Program is what init starts.
type Program struct {
	Argv  []string // Argv[0] is an absolute path inside the box
	Env   []string // NAME=value
	Dir   string   // absolute, inside the box
	Stdio [3]*os.File
}

// Exit is the program's end as the box's init saw it.
type Exit struct {
	Code   int   // 0 to 255; meaningless when Signal is set
	Signal int   // the signal that ended it, or 0
	Err    error // the program could not be started: a *StartError
}

// Usage is what a box has used.
type Usage struct {
	CPU           time.Duration
	MemoryPeak    int64 // bytes, what was written to scratch among them
	ProcessesPeak int64 // 0 where the kernel does not say
	OOMKills      int64 // processes ended for the memory limit
	PIDsHit       int64 // how often a fork was refused for the process limit
}

// Attachment says how an input got into the box.
type Attachment struct {
	How    string // Mounted, Cloned or Copied
	Reason string // why it was copied
}

// The ways in.
const (
	Mounted = "mount" // the very file
	Cloned  = "clone" // a copy that shares the original's blocks until one of them is written
	Copied  = "copy"
)
