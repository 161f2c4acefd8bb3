package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"proctor/audit"
	"proctor/supervisor/access"
	"proctor/supervisor/box"
	"proctor/supervisor/limits"
)

// Request is a run as its caller asks for it.
type Request struct {
	Caller audit.Caller
	Groups []uint32      // the caller's, as the kernel says
	Access access.Access // what the caller may do; zero: everything, without waiting
	// Agent and Conversation are the caller's words of whose work this is: they are written
	// down, and decide nothing.
	Agent        string
	Conversation string

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

// Input is an open file to be shown at /inputs/NAME. Name may have directories: DIR/FILE. The
// file stays whoever's it is who asks for the run.
type Input struct {
	Name string
	File *os.File
}

// NewInput makes an input of a descriptor that a caller passed, if it is a regular file which the
// caller may read; otherwise it returns a [*Refusal]. The input's File owns fd; after an error it is
// still who called that has to close it.
//
// This comes before os.NewFile, which adds a descriptor in non-blocking mode to the runtime's epoll
// set. That asks the file, and one on a FUSE file system need never answer: as the runtime makes the
// call as one that can't block, all goroutines would stand still from the next garbage collection on.
func NewInput(name string, fd int) (Input, error) {
	if err := checkInput(fd); err != nil {
		return Input{}, refuse("pass a regular file that you can read", "input %q: %v", name, err)
	}
	return Input{name, os.NewFile(uintptr(fd), "input")}, nil
}

// LimitRequest overrides the configured limits where a field is not zero.
type LimitRequest struct {
	Timeout      time.Duration `json:"timeout,omitempty"`
	Memory       int64         `json:"memory,omitempty"`
	CPUs         float64       `json:"cpus,omitempty"`
	CPUTime      time.Duration `json:"cpu_time,omitempty"`
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
	MaxInputs = 250 // one message carries 253 descriptors: SCM_MAX_FD
	maxArgs   = 4096
	maxArgLen = 128<<10 - 1 // MAX_ARG_STRLEN of Linux, which counts the NUL: execve(2) refuses longer ones
	maxArgAll = 1 << 20     // execve(2) takes 2 MiB, environment and pointers among them
	maxName   = 255         // NAME_MAX
	maxLabel  = 200
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
	if len(r.Inputs) > MaxInputs {
		return refuse("pack them into one archive", "%d inputs: at most %d", len(r.Inputs), MaxInputs)
	}
	for what, label := range map[string]string{"agent": r.Agent, "conversation": r.Conversation} {
		if len(label) > maxLabel {
			return refuse("use a shorter one", "%s of %d bytes: at most %d", what, len(label), maxLabel)
		}
	}
	seen := inputNames{}
	for _, in := range r.Inputs {
		if err := checkInputName(in.Name); err != nil {
			return refuse("give it a plain name with --input PATH:NAME", "input name %q: %v", in.Name, err)
		}
		if err := seen.add(in.Name); err != nil {
			return refuse("give one of them another name with --input PATH:NAME", "input name %q: %v", in.Name, err)
		}
	}
	return nil
}

// What the name of an input may have at most.
const (
	maxInputDepth = 32   // elements
	maxInputName  = 3072 // bytes: with /inputs/ and what the code adds it stays below PATH_MAX
)

// checkInputName takes names with directories, of which each element is a plain one.
func checkInputName(name string) error {
	if len(name) > maxInputName {
		return fmt.Errorf("is longer than %d bytes", maxInputName)
	}
	elements := strings.Split(name, "/")
	if len(elements) > maxInputDepth {
		return fmt.Errorf("has more than %d elements", maxInputDepth)
	}
	for _, e := range elements {
		if err := checkName(e); err != nil {
			if len(elements) > 1 {
				return fmt.Errorf("its element %q %w", e, err)
			}
			return err
		}
	}
	return nil
}

// inputNames are those that are taken: true for a file, false for a directory.
type inputNames map[string]bool

func (n inputNames) add(name string) error {
	if file, ok := n[name]; ok && file {
		return errors.New("given twice")
	} else if ok {
		return errors.New("is a directory of another input")
	}
	n[name] = true
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if n[dir] {
			return fmt.Errorf("its directory %q is an input", dir)
		}
		n[dir] = false
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

// Validate says what is wrong with the limits that an operator configured.
func (r LimitRange) Validate() error {
	if err := r.Default.Validate(); err != nil {
		return fmt.Errorf("default limits: %w", err)
	}
	if _, err := (LimitRequest{}).within(r.Default, r.Ceiling, "in proctor.yaml"); err != nil {
		return fmt.Errorf("default limits: %w", err)
	}
	return nil
}

// under is what a profile leaves of the configured limits: a ceiling of its own can't be above
// that of all.
func (r LimitRange) under(p limits.Range) LimitRange {
	ceiling := p.Ceiling.Box().Or(r.Ceiling).AtMost(r.Ceiling)
	return LimitRange{Default: p.Default.Box().Or(r.Default).AtMost(ceiling), Ceiling: ceiling}
}

// within applies a request to the defaults and refuses what passes a ceiling. where is the
// ceiling's place.
func (l LimitRequest) within(limits, ceiling box.Limits, where string) (box.Limits, error) {
	fix := "ask for less, or have the operator raise it under limits.ceiling " + where
	if l.Timeout != 0 {
		limits.Timeout = l.Timeout
	}
	if l.Memory != 0 {
		limits.Memory = l.Memory
	}
	if l.CPUs != 0 {
		limits.CPUs = l.CPUs
	}
	if l.CPUTime != 0 {
		limits.CPUTime = l.CPUTime
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
	case limits.CPUTime > ceiling.CPUTime:
		return limits, refuse(fix, "cpu time %s: the ceiling is %s", limits.CPUTime, ceiling.CPUTime)
	case limits.Processes > ceiling.Processes:
		return limits, refuse(fix, "pids %d: the ceiling is %d", limits.Processes, ceiling.Processes)
	case limits.AuditEvents > ceiling.AuditEvents:
		return limits, refuse(fix, "audit events %d: the ceiling is %d", limits.AuditEvents, ceiling.AuditEvents)
	case limits.ScratchBytes > ceiling.ScratchBytes:
		return limits, refuse(fix, "scratch %s: the ceiling is %s", size(limits.ScratchBytes), size(ceiling.ScratchBytes))
	}
	return limits, nil
}
