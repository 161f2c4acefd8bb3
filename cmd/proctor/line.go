package main

import (
	"fmt"
	"net"
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
		fmt.Fprintf(&b, " %s[%d]", e.Process.Comm.Printable(), e.Process.PID)
	}
	fmt.Fprintf(&b, " %s", e.Kind)
	switch {
	case e.Open != nil:
		fmt.Fprintf(&b, " %s %s", e.Open.Access, e.Open.Path.Printable())
		if len(e.Open.Flags) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(e.Open.Flags, ", "))
		}
		if e.Open.Errno != "" {
			fmt.Fprintf(&b, " → %s", e.Open.Errno)
		}
	case e.Exec != nil:
		fmt.Fprintf(&b, " %s", e.Exec.File.Printable())
		for _, a := range e.Exec.Argv {
			b.WriteByte(' ')
			b.WriteString(quoteArg(a))
		}
		if e.Exec.ArgvTruncated {
			b.WriteString(" …")
		}
	case e.Fork != nil:
		fmt.Fprintf(&b, " %d", e.Fork.Child)
	case e.Exit != nil:
		if e.Exit.Signal != "" {
			fmt.Fprintf(&b, " by %s", e.Exit.Signal)
		} else {
			fmt.Fprintf(&b, " %d", e.Exit.Code)
		}
	case e.Net != nil:
		fmt.Fprintf(&b, " %s %s %s (%s)", e.Net.Protocol, net.JoinHostPort(e.Net.Address.String(), strconv.Itoa(int(e.Net.Port))), e.Net.Decision, e.Net.Rule)
	case e.Start != nil:
		fmt.Fprintf(&b, " %s in %s", printable(e.Start.Code.Name), e.Start.Image.Name)
	case e.End != nil:
		fmt.Fprintf(&b, " %s: %s; events=%d lost=%d", e.End.Status, oneLine(e.End.Reason), e.End.Events, e.End.Lost)
	case e.Cut != nil:
		fmt.Fprintf(&b, " the record was broken off in the middle of a line: %s", e.Cut.Line.Printable())
	case e.Gap != nil:
		fmt.Fprintf(&b, " %d events not shown: this reader was too slow, the records have them", e.Gap.Events)
	}
	return b.String()
}

// quoteArg shows where an argument begins and ends.
func quoteArg(a audit.Text) string {
	s := a.Printable()
	if s == "" || strings.ContainsAny(s, " '\"") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
