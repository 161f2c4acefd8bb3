package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor/box"
)

// Request is a run as its caller asks for it.
type Request struct {
	Caller   audit.Caller
	Image    string // name in the lock; empty: the configured one for the language
	Language string
	Name     string // of the code's file, without directories
	Code     []byte
	Args     []string
	Inputs   []Input
	Limits   LimitRequest
	Profile  string // empty: the configured one
	// DenyNetwork leaves nothing of what the profile grants, and Allow what it names:
	// HOST[:PORT] or CIDR[:PORT]. Empty: all of it.
	DenyNetwork bool
	Allow       []string
}

// Input is an open file to be shown at /inputs/NAME. The file stays the caller's.
type Input struct {
	Name string
	File *os.File
}

// LimitRequest overrides the configured limits where a field is not zero.
type LimitRequest struct {
	Timeout      time.Duration `json:"timeout,omitempty"`
	Memory       int64         `json:"memory,omitempty"`
	CPUs         float64       `json:"cpus,omitempty"`
	Processes    int64         `json:"pids,omitempty"`
	ScratchBytes int64         `json:"scratch,omitempty"`
	AuditEvents  int64         `json:"audit_events,omitempty"`
}

// Refusal is a request that breaks a rule. It says which value, which rule, and what to
// do instead; nothing has run and nothing is left.
type Refusal struct {
	What string // the value and the rule
	Fix  string
}

func (r *Refusal) Error() string { return r.What + ": " + r.Fix }

func refuse(fix, format string, args ...any) error {
	return &Refusal{What: fmt.Sprintf(format, args...), Fix: fix}
}

// MaxCode is the largest program that is taken, in bytes. Like the limits below it is far
// above what a model writes, and far below what would hurt the supervisor.
const MaxCode = 8 << 20

// What else a request may hold at most.
const (
	maxInputs = 250 // one message carries 253 descriptors: SCM_MAX_FD
	maxArgs   = 4096
	maxArgLen = 128<<10 - 1 // MAX_ARG_STRLEN of Linux, which counts the NUL: execve(2) refuses longer ones
	maxArgAll = 1 << 20     // execve(2) takes 2 MiB, environment and pointers among them
	maxName   = 255         // NAME_MAX
)

// check refuses what is wrong with a request by itself.
func (r *Request) check() error {
	if len(r.Code) == 0 {
		return refuse("give the program in a file or on stdin", "empty code: there is nothing to run")
	}
	if len(r.Code) > MaxCode {
		return refuse("pass data with --input, not in the code", "code of %d bytes: at most %d", len(r.Code), MaxCode)
	}
	if err := checkName(r.Name); err != nil {
		return refuse("rename the file", "code file name %q: %v", r.Name, err)
	}
	if len(r.Args) > maxArgs {
		return refuse("pass them in an input file", "%d arguments: at most %d", len(r.Args), maxArgs)
	}
	all := 0
	for _, a := range r.Args {
		if all += len(a) + 1; all > maxArgAll {
			return refuse("pass them in an input file", "arguments of more than %d bytes together: at most that many", maxArgAll)
		}
		if len(a) > maxArgLen || strings.IndexByte(a, 0) >= 0 {
			return refuse("pass it in an input file", "argument of %d bytes beginning %.20q: at most %d bytes and no NUL", len(a), a, maxArgLen)
		}
	}
	if len(r.Inputs) > maxInputs {
		return refuse("pack them into one archive", "%d inputs: at most %d", len(r.Inputs), maxInputs)
	}
	seen := map[string]bool{}
	for _, in := range r.Inputs {
		if err := checkName(in.Name); err != nil {
			return refuse("give it a plain name with --input PATH:NAME", "input name %q: %v", in.Name, err)
		}
		if seen[in.Name] {
			return refuse("give one of them another name with --input PATH:NAME", "input name %q: given twice", in.Name)
		}
		seen[in.Name] = true
		if err := checkInput(in.File); err != nil {
			return refuse("pass a regular file that you can read", "input %q: %v", in.Name, err)
		}
	}
	return nil
}

// checkName takes one path element that is text. (Inputs come with names that people and
// models choose; outputs, which hostile code names, are not held to this.)
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case name == "." || name == "..":
		return errors.New("names a directory")
	case strings.Contains(name, "/"):
		return errors.New("contains a '/'")
	case len(name) > maxName:
		return fmt.Errorf("is longer than %d bytes", maxName)
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return errors.New("contains a control or format character")
	}
	return nil
}

// fuseMagic is FUSE_SUPER_MAGIC of linux/magic.h.
const fuseMagic = 0x65735546

// kernelFiles are file systems whose files are what the kernel says when they are read.
var kernelFiles = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
	unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
}

// checkInput takes a descriptor only if its holder was let read that very file: a regular
// file opened for reading. An O_PATH descriptor proves no such right; a FUSE file system
// could stall the supervisor or change its mind; and what the kernel tells in a file it may
// tell by who reads, which would be the supervisor.
func checkInput(f *os.File) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_PATH != 0 {
		return errors.New("was opened with O_PATH, which gives no right to read it")
	}
	if mode := flags & unix.O_ACCMODE; mode != unix.O_RDONLY && mode != unix.O_RDWR {
		return errors.New("was not opened for reading")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	if fs.Type == fuseMagic {
		return errors.New("lies on a FUSE file system")
	}
	if slices.Contains(kernelFiles, int64(fs.Type)) {
		return errors.New("is no file with content of its own, but the kernel's word (as /proc and /sys hold)")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return errors.New("is a directory")
	default:
		return fmt.Errorf("is %s", kindName(st.Mode))
	}
}

// Validate says what is wrong with the limits that an operator configured.
func (r LimitRange) Validate() error {
	if err := r.Default.Validate(); err != nil {
		return fmt.Errorf("default limits: %w", err)
	}
	if _, err := (LimitRequest{}).within(r.Default, r.Ceiling); err != nil {
		return fmt.Errorf("default limits: %w", err)
	}
	return nil
}

// within applies a request to the configured defaults and refuses what passes a ceiling.
func (l LimitRequest) within(limits, ceiling box.Limits) (box.Limits, error) {
	const fix = "ask for less, or have the operator raise it under limits.ceiling in proctor.yaml"
	if l.Timeout != 0 {
		limits.Timeout = l.Timeout
	}
	if l.Memory != 0 {
		limits.Memory = l.Memory
	}
	if l.CPUs != 0 {
		limits.CPUs = l.CPUs
	}
	if l.Processes != 0 {
		limits.Processes = l.Processes
	}
	if l.ScratchBytes != 0 {
		limits.ScratchBytes = l.ScratchBytes
	}
	if l.AuditEvents != 0 {
		limits.AuditEvents = l.AuditEvents
	}
	if err := limits.Validate(); err != nil {
		return limits, refuse("give a sensible value, or leave the flag out for the default", "%v", err)
	}
	switch {
	case limits.Timeout > ceiling.Timeout:
		return limits, refuse(fix, "timeout %s: the ceiling is %s", limits.Timeout, ceiling.Timeout)
	case limits.Memory > ceiling.Memory:
		return limits, refuse(fix, "memory %s: the ceiling is %s", size(limits.Memory), size(ceiling.Memory))
	case limits.CPUs > ceiling.CPUs:
		return limits, refuse(fix, "cpus %g: the ceiling is %g", limits.CPUs, ceiling.CPUs)
	case limits.Processes > ceiling.Processes:
		return limits, refuse(fix, "pids %d: the ceiling is %d", limits.Processes, ceiling.Processes)
	case limits.AuditEvents > ceiling.AuditEvents:
		return limits, refuse(fix, "audit events %d: the ceiling is %d", limits.AuditEvents, ceiling.AuditEvents)
	case limits.ScratchBytes > ceiling.ScratchBytes:
		return limits, refuse(fix, "scratch %s: the ceiling is %s", size(limits.ScratchBytes), size(ceiling.ScratchBytes))
	}
	return limits, nil
}
