package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"proctor/audit"
)

// line is an event for people, on one line that nothing in it can break.
func line(e *audit.Event, withRun bool) string {
	var b strings.Builder
	b.WriteString(e.Time.Format("15:04:05.000"))
	if withRun {
		fmt.Fprintf(&b, " %s", e.Run)
	}
	if e.Process != nil {
		fmt.Fprintf(&b, " %s[%d]", quote(e.Process.Comm), e.Process.PID)
	}
	fmt.Fprintf(&b, " %s", e.Kind)
	switch {
	case e.Open != nil:
		fmt.Fprintf(&b, " %s %s", e.Open.Access, place(e.Open.Dir, e.Open.Path, e.Open.Truncated))
		if len(e.Open.Flags) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(e.Open.Flags, ", "))
		}
		if e.Open.Raced {
			b.WriteString(" — may have been another file")
		}
		b.WriteString(failure(e.Open.Errno))
	case e.Exec != nil:
		fmt.Fprintf(&b, " %s", place("", e.Exec.File, e.Exec.Truncated))
		for _, a := range e.Exec.Argv {
			b.WriteByte(' ')
			b.WriteString(quote(a))
		}
		if e.Exec.ArgvBytes > 0 {
			b.WriteString(" …")
		}
		b.WriteString(failure(e.Exec.Errno))
	case e.Change != nil:
		fmt.Fprintf(&b, " %s", change(e.Change))
	case e.Refused != nil:
		fmt.Fprintf(&b, " %s", refused(e.Refused))
	case e.Raced != nil:
		fmt.Fprintf(&b, " event %d may name the wrong file", e.Raced.Of)
	case e.Fork != nil:
		fmt.Fprintf(&b, " %d", e.Fork.Child)
	case e.Exit != nil:
		if e.Exit.Signal != "" {
			fmt.Fprintf(&b, " by %s", e.Exit.Signal)
		} else {
			fmt.Fprintf(&b, " %d", e.Exit.Code)
		}
	case e.Net != nil:
		fmt.Fprintf(&b, " %s %s", e.Net.Protocol, endpoint(e.Net))
		if e.Net.Decision != "" {
			fmt.Fprintf(&b, " %s (%s)", e.Net.Decision, e.Net.Rule)
		}
		b.WriteString(failure(e.Net.Errno))
	case e.Query != nil:
		q := e.Query
		fmt.Fprintf(&b, " %s %s %s (%s) %s", printable(q.Type), quote(q.Name), q.Decision, oneLine(q.Rule), printable(q.Code))
		for _, a := range q.Answers {
			fmt.Fprintf(&b, " %s", a)
		}
	case e.Flow != nil:
		fmt.Fprintf(&b, " %s", flow(e.Flow))
	case e.Scrub != nil:
		fmt.Fprintf(&b, " credential %s taken out of the %s of an answer of %s, times: %d",
			printable(e.Scrub.Credential), printable(e.Scrub.Where), quote(e.Scrub.Name), e.Scrub.Count)
	case e.Finding != nil:
		f := e.Finding
		fmt.Fprintf(&b, " %s: %s %s, the kernel saw %d, the gateway %d", f.What, f.Protocol, address(f.Address, f.Port), f.Kernel, f.Gateway)
	case e.Start != nil:
		fmt.Fprintf(&b, " %s in %s", quote(audit.Text(e.Start.Code.Name)), e.Start.Image.Name)
	case e.End != nil:
		fmt.Fprintf(&b, " %s: %s; events=%d lost=%d", e.End.Status, oneLine(e.End.Reason), e.End.Events, e.End.Lost)
		if e.End.Raced > 0 {
			fmt.Fprintf(&b, " raced=%d", e.End.Raced)
		}
	case e.Cut != nil:
		fmt.Fprintf(&b, " the record was broken off in the middle of a line: %s", quote(e.Cut.Line))
	case e.Gap != nil:
		fmt.Fprintf(&b, " %d events not shown: this reader was too slow, the records have them", e.Gap.Events)
	}
	if e.Doubtful() && e.Open == nil && e.Raced == nil {
		b.WriteString(" — a path may be another")
	}
	if e.Repeat != nil {
		fmt.Fprintf(&b, " — %s more since %s", times(e.Repeat.Count), e.Repeat.First.Format("15:04:05.000"))
	}
	// A record that was damaged may have anything in any of its fields.
	return oneLine(b.String())
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func failure(errno string) string {
	if errno == "" {
		return ""
	}
	return " → " + errno
}

// place is a path, of which the front may be missing, and, where it is relative, what it starts
// from.
func place(dir, path audit.Text, truncated bool) string {
	s := quote(path)
	if truncated {
		s = "…" + s
	}
	if dir != "" {
		s += " in " + quote(dir)
	}
	return s
}

func endpoint(n *audit.Network) string {
	if n.Protocol == "unix" {
		return place(n.Dir, n.Name, false)
	}
	s := address(n.Address, n.Port)
	if n.Host != "" {
		s += " " + quote(n.Host)
	}
	return s
}

func address(a netip.Addr, port uint16) string {
	return net.JoinHostPort(a.String(), strconv.Itoa(int(port)))
}

// target is where a run tried to go.
func target(d audit.Destination) string {
	switch {
	case d.Protocol == "dns":
		return "dns " + quote(d.Name)
	case d.Name != "":
		return fmt.Sprintf("%s %s:%d", printable(d.Protocol), quote(d.Name), d.Port)
	}
	return printable(d.Protocol) + " " + address(d.Address, d.Port)
}

// flow is a connection as the gateway saw it.
func flow(f *audit.Flow) string {
	s := fmt.Sprintf("%s %s", printable(f.Protocol), address(f.Address, f.Port))
	if f.Proxy {
		s += " by the proxy"
	}
	if f.Name != "" {
		s += " " + quote(f.Name)
	}
	if f.Claimed != "" {
		s += " claimed to be for " + quote(f.Claimed)
	}
	s += fmt.Sprintf(" %s (%s)", f.Decision, oneLine(f.Rule))
	if f.Upstream.IsValid() {
		s += " → " + f.Upstream.String()
	}
	if f.Credential != "" {
		s += " with credential " + printable(f.Credential)
	}
	if f.Requests > 0 {
		s += fmt.Sprintf(", requests: %d", f.Requests)
	}
	if f.Decision == audit.Allowed {
		s += fmt.Sprintf(", %d bytes up, %d down, %.0f ms", f.BytesUp, f.BytesDown, f.DurationMS)
	}
	if f.Count > 1 {
		s += fmt.Sprintf(" — %d of them", f.Count)
	}
	if f.Error != "" && f.Error != f.Rule {
		s += ": " + printable(f.Error)
	}
	return s
}

func change(c *audit.Change) string {
	s := string(c.Act) + " " + place(c.Dir, c.Path, c.Truncated)
	switch {
	case c.Act == audit.ChangeSymlink:
		s += " to " + quote(c.Target)
	case c.To != "":
		s += " to " + place(c.ToDir, c.To, false)
		if c.Whiteout {
			s += ", leaving a whiteout"
		}
	case c.Attribute != "":
		s += " " + quote(c.Attribute)
	case c.Mode != "":
		s += " " + c.Mode
	case c.Owner != "":
		s += " " + c.Owner
	case c.Length != nil:
		s += " " + strconv.FormatInt(*c.Length, 10)
	}
	return s + failure(c.Errno)
}

func refused(r *audit.Refused) string {
	call := r.Call
	if call == "" {
		call = "call"
	}
	s := fmt.Sprintf("%s (%s %d)", call, r.ABI, r.Number)
	if r.Socket != nil {
		s = fmt.Sprintf("%s %s %s %d", call, r.Socket.Family, r.Socket.Type, r.Socket.Protocol)
	}
	if r.Signal != "" {
		return s + " → " + r.Signal
	}
	return s + failure(r.Errno)
}

// quote shows a name that the code chose, and where it begins and ends: nothing in it can be taken for
// what stands around it.
func quote(t audit.Text) string {
	s := t.Printable()
	if s != "" && strings.Trim(s, plainCharacters) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// plainCharacters are those of names that need no quotes.
const plainCharacters = `ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+=,-~\`
