package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"proctor/audit"
	"proctor/testenv/oracle/strace"
)

// These are all the things in which the two sides are not held against each other, each with
// its reason. docs/sight.md has the list for readers.

// common takes away what strace does not tell: the run, the number and the time that the
// sensor gives an event, the name that a process goes by, when it was made and who its parent
// was at the time; that an event stands for repeats, which are counted; and of an exec the
// environment, the working directory, the user and how a script was called.
func common(e audit.Event) audit.Event {
	e.Run, e.Seq, e.Time = "", 0, time.Time{}
	p := *e.Process
	p.Comm, p.PPID, p.Start = "", 0, 0
	e.Process = &p
	e.Repeat = nil
	if e.Exec != nil {
		x := *e.Exec
		x.Env, x.EnvCut, x.Dir, x.Script, x.UID, x.GID = nil, false, "", "", 0, 0
		e.Exec = &x
	}
	if e.Fork != nil {
		f := *e.Fork
		f.Start = 0
		e.Fork = &f
	}
	return tooLong(e)
}

// tooLong: the kernel tells a tracer nothing of a path that is longer than PATH_MAX. The
// sensor has its end, which is left out here; that it was cut is compared.
func tooLong(e audit.Event) audit.Event {
	if e.Open == nil || !e.Open.Truncated || e.Open.Unresolved {
		return e
	}
	open := *e.Open
	open.Path = ""
	e.Open = &open
	return e
}

// cutString: of a string that failed to name a file, PATH_MAX is kept, the NUL included. No
// longer one could have named any.
func cutString(s string, cut bool) (audit.Text, bool) {
	const kept = 4095
	if len(s) >= kept {
		return audit.Text(s[:kept]), true
	}
	return audit.Text(s), cut
}

// cutArguments: of a command line 32 KiB are kept, and how long it was.
func cutArguments(argv []string) ([]audit.Text, uint32) {
	const kept = 32 << 10
	line := strings.Join(argv, "\x00") + "\x00"
	var size uint32
	if len(line) > kept {
		size = uint32(len(line))
		line = line[:kept]
	}
	var texts []audit.Text
	for arg := range strings.SplitSeq(strings.TrimSuffix(line, "\x00"), "\x00") {
		texts = append(texts, audit.Text(arg))
	}
	return texts, size
}

// notAttempted: a call that the socket answers from its own state or for its arguments,
// before anything is tried.
func notAttempted(c *strace.Call) bool {
	return slices.Contains([]string{"EISCONN", "EALREADY", "EBADF", "ENOTSOCK", "EINVAL", "EFAULT", "EAFNOSUPPORT"}, c.Errno)
}

// asksAgain: a second connect of a socket whose first is still under way, or has come to its
// end unseen, tries nothing; it asks how the first one went.
func (w *world) asksAgain(c *strace.Call) (bool, error) {
	if c.Name != "connect" {
		return false, nil
	}
	socket, err := strace.ReadDescriptor(c.Args[0])
	if err != nil {
		return false, err
	}
	asked := w.connecting[socket.Name]
	switch c.Errno {
	case "EINPROGRESS", "EALREADY", "EINTR", "ERESTARTSYS":
		w.connecting[socket.Name] = true
	default:
		delete(w.connecting, socket.Name)
	}
	return asked, nil
}

// cutShort: of a call in which a thread was killed the tracer does not learn what came of it;
// the sensor does, where the kernel got that far. And a call at whose beginning a thread
// waits for the tracer when it is killed is never made: it ends with ENOSYS, of which the
// tracer learns nothing at all. For each such thread its process may have one act more on
// the record than was traced.
type cutShort map[cutCall]int

type cutCall struct {
	by      int // the process, by its number on the host
	kind    audit.Kind
	skipped bool // before it was made
}

// note takes in a step of which a comparer expects something.
func (c cutShort) note(by actor, s strace.Step, k comparer) {
	for _, kind := range k.kinds {
		if s.Call != nil && !s.Call.Returned() {
			c[cutCall{by.host, kind, false}]++
		}
		if s.End != nil && s.End.Signal != "" {
			c[cutCall{by.host, kind, true}]++
		}
	}
}

// take returns how much of a surplus is made up for by calls cut short, and uses these up.
func (c cutShort) take(e audit.Event, surplus int) int {
	taken := 0
	for _, skipped := range []bool{false, true} {
		call := cutCall{int(e.Process.HostID), e.Kind, skipped}
		if skipped && !notMade(e) {
			break
		}
		n := max(0, min(surplus-taken, c[call]))
		c[call] -= n
		taken += n
	}
	return taken
}

// notMade tells a call that a signal ended at its entry, where the tracer had stopped it: the
// kernel says that there is no such call, to nobody.
func notMade(e audit.Event) bool {
	return e.Open != nil && e.Open.Errno == "ENOSYS" || e.Exec != nil && e.Exec.Errno == "ENOSYS"
}

// mapped: a datagram of an IPv6 socket to an IPv4 address comes to the sensor in one form,
// whether the caller wrote the address plainly or as ::ffff:a.b.c.d.
func mapped(kind audit.Kind, version int, to netip.Addr) bool {
	return to.Is4In6() || kind == audit.KindSend && version == 6 && to.Is4()
}

// notInternet: sockets that stay within the box (unix) or ask its kernel (netlink) are no
// connections. Of any other, that it could be made is an error.
func notInternet(name string) error {
	if strings.HasPrefix(name, "UNIX") || strings.HasPrefix(name, "NETLINK") || name == "" {
		return nil
	}
	return fmt.Errorf("a socket of an unknown kind: %s", name)
}
