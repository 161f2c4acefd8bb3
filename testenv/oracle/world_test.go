package oracle

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"proctor/audit"
	"proctor/testenv/oracle/strace"
)

// A process of the box, as its calls tell.
type process struct {
	inside int // number in the box's PID namespace
	host   int
	cwd    string // empty until a call shows it
	exe    string // resolved; empty for the box's init
}

// An actor is a thread of a process.
type actor struct {
	*process
	inside int // the thread's number in the box
}

// event is one that the actor is said to have caused.
func (a actor) event(kind audit.Kind) audit.Event {
	p := &audit.Process{PID: uint32(a.process.inside), HostID: uint32(a.host)}
	if a.inside != a.process.inside {
		p.Thread = uint32(a.inside)
	}
	return audit.Event{Kind: kind, Process: p}
}

// A world is who there is in a box and where they stand, kept up to date call by call.
type world struct {
	threads map[int]actor // by number on the host
	root    files
	// connecting are the sockets whose connect has not come to its end, by strace's name.
	connecting map[string]bool
	// early are calls that made a thread which acted before they returned.
	early map[*strace.Call]bool
}

func newWorld(init int, r files) *world {
	p := &process{inside: 1, host: init, cwd: "/"}
	return &world{threads: map[int]actor{init: {p, 1}}, root: r, connecting: map[string]bool{}, early: map[*strace.Call]bool{}}
}

// worldCalls are what a world learns from.
var worldCalls = []string{"clone", "clone3", "fork", "vfork", "execve", "execveat", "chdir", "fchdir"}

// actor is who made a step.
func (w *world) actor(s strace.Step) (actor, error) {
	a, ok := w.threads[thread(s)]
	if !ok {
		return a, fmt.Errorf("thread %d acts, and nobody made it", thread(s))
	}
	return a, nil
}

// thread is whose a step is.
func thread(s strace.Step) int {
	if s.Call != nil {
		return s.Call.Thread
	}
	return s.End.Thread
}

// meet makes a thread known that acts, or ends, where the call that made it comes to its end only
// later: on a machine with much to do a child can be the faster, and its own child, too. One that
// is gone by then has no number on the host any more, as far as the tracer can tell: the first
// call with such a child is taken for the one that made it.
func (w *world) meet(thread int, later []strace.Step) {
	if _, known := w.threads[thread]; known {
		return
	}
	for _, gone := range []bool{false, true} {
		for i, l := range later {
			c := l.Call
			if c == nil || !c.Succeeded() || !slices.Contains([]string{"clone", "clone3", "fork", "vfork"}, c.Name) {
				continue
			}
			if c.Host != thread && !(gone && strconv.Itoa(c.Host) == c.Result) {
				continue
			}
			w.meet(c.Thread, slices.Concat(later[:i], later[i+1:]))
			if parent, known := w.threads[c.Thread]; known {
				c.Host = thread
				w.early[c] = w.made(parent, c) == nil
				return
			}
		}
	}
}

// before takes in what a call shows of the time before it: the working directory.
func (w *world) before(a actor, c *strace.Call) error {
	if len(c.Args) == 0 || !strings.HasPrefix(c.Args[0], "AT_FDCWD<") {
		return nil
	}
	d, err := strace.ReadDescriptor(c.Args[0])
	a.cwd = d.Name
	return err
}

// after takes in what a call changed.
func (w *world) after(a actor, c *strace.Call) error {
	if !c.Succeeded() {
		return nil
	}
	switch c.Name {
	case "clone", "clone3", "fork", "vfork":
		if w.early[c] {
			return nil
		}
		return w.made(a, c)
	case "execve", "execveat":
		e, err := w.executed(a, c)
		if err == nil {
			a.exe = string(e.File)
		}
		return err
	case "chdir":
		to, _, err := strace.String(c.Args[0])
		if err == nil {
			a.cwd = w.resolve(a.absolute(to))
		}
		return err
	case "fchdir":
		d, err := strace.ReadDescriptor(c.Args[0])
		a.cwd = d.Name
		return err
	}
	return nil
}

func (w *world) made(a actor, c *strace.Call) error {
	inside, err := strconv.Atoi(c.Result)
	if err != nil {
		return err
	}
	child := actor{process: a.process, inside: inside}
	if !isThread(c) {
		p := *a.process
		p.inside, p.host = inside, c.Host
		child.process = &p
	}
	w.threads[c.Host] = child
	return nil
}

// isThread tells a thread that was made from a process.
func isThread(c *strace.Call) bool {
	return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.Contains(arg, "CLONE_THREAD") })
}

func (p *process) absolute(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return p.cwd + "/" + name
}

// resolve follows the links in an absolute path. Of what has been removed since, the
// directory's are followed.
func (w *world) resolve(name string) string {
	if to, err := w.root.resolve(name); err == nil {
		return to
	}
	name = path.Clean(name)
	if name == "/" {
		return name
	}
	return path.Join(w.resolve(path.Dir(name)), path.Base(name))
}
