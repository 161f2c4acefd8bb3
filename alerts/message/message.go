// Package message says what an incident is, in lines that sinks of all kinds show.
package message

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/audit"
)

// Options are what an operator adds, and what he leaves out.
type Options struct {
	Host      string // whose supervisor this is
	WebURL    string // of a run, before its id; empty: no link
	Runbook   string // a link; empty: none
	CodeLines int    // of the code that are shown; 0: none
}

// A Field is something that is said of an incident. Its lines are printable characters alone, but
// what of them comes from a run may be anybody's markup.
type Field struct {
	Name  string
	Value string
	Code  bool // it is code
	Link  bool // it is a URL that an operator wrote
}

// Headline is one line: severity, state and what it is, like a Field's.
func Headline(n *sink.Notice) string { return headline(n).Printable() }

func headline(n *sink.Notice) audit.Text {
	i := n.Incident
	if len(n.CatchUp) > 0 {
		worst := n.Digest()[0]
		return audit.Text(fmt.Sprintf("%d incidents while this could not be reached, the worst %s: ", len(n.CatchUp), strings.ToUpper(worst.Severity.String()))) + title(worst)
	}
	state := string(i.State)
	switch {
	case n.What == sink.Test:
		return "TEST: " + i.Title()
	case n.What == sink.Opened && i.State == incident.Resolved:
		state = "is over, was not told before"
	case i.State == incident.Open && i.Ack != nil:
		state = "acknowledged"
	case i.State == incident.Open && i.Reopened > 0:
		state = "open again"
	}
	return audit.Text(strings.ToUpper(i.Severity.String())+" ("+state+"): ") + title(i)
}

// title is what it is and whose.
func title(i *incident.Incident) audit.Text {
	t := i.Title()
	if r := i.Leading(); r != nil && !i.Storm {
		if r.Agent != "" {
			t += "; agent " + r.Agent
		}
		t += audit.Text("; caller " + r.Caller)
	}
	return t
}

// Line is an incident in one line, for lists, like a Field's.
func Line(i *incident.Incident) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, %s, ", i.ID, strings.ToUpper(i.Severity.String()), i.State)
	b.WriteString(string(title(i)))
	if r := i.Leading(); r != nil {
		fmt.Fprintf(&b, ", run %s", r.Run)
	}
	return audit.Text(b.String()).Printable()
}

// shown is how many of a list are said.
const shown = 8

// Fields say who, what, where and what to do.
func (o Options) Fields(n *sink.Notice) []Field {
	i := n.Incident
	var f []Field
	add := func(name, value string) {
		if value != "" {
			f = append(f, Field{Name: name, Value: value})
		}
	}
	add("Incident", i.ID)
	add("Host", o.Host)
	if n.What == sink.Test {
		return f
	}
	add("Since", i.Since.UTC().Format(time.RFC3339))
	if i.Reopened > 0 {
		add("Before", fmt.Sprintf("opened %s, and %s since", i.Opened.UTC().Format(time.RFC3339), times(i.Reopened, "once again", "times again")))
	}
	if i.ManyAttempts() {
		add("Critical", fmt.Sprintf("for %d attempts", i.Attempts))
	}
	if i.State == incident.Resolved {
		add("Resolved", i.Resolved.UTC().Format(time.RFC3339)+", after it had been quiet")
	}
	if i.Ack != nil {
		add("Acknowledged", ("by " + audit.Text(i.Ack.By) + note(i.Ack.Note)).Printable())
	}
	alarms := slices.Clone(i.Alarms)
	slices.SortStableFunc(alarms, func(a, b incident.Alarm) int { return int(b.Severity - a.Severity) })
	for k, a := range alarms {
		if k == shown {
			add("Rules", fmt.Sprintf("and %d more", uint64(len(i.Alarms)-k)+i.OtherAlarms))
			break
		}
		text := a.Text.Printable()
		if a.Run != "" && len(i.Runs) > 1 && string(a.Subject) == a.Run {
			text += ": " + a.Run
		}
		if a.Times > 1 {
			text += fmt.Sprintf(" (%d times)", a.Times)
		}
		add("Rule "+a.Rule, text)
	}
	lead := i.Leading()
	if lead != nil {
		add("Caller", lead.Caller)
		add("Agent", lead.Agent.Printable())
		add("Conversation", lead.Conversation.Printable())
		add("Image, profile", strings.Trim(lead.Image+", "+lead.Profile, ", "))
		add("Others", others(i))
		runs := []string{line(lead)}
		for k := range i.Runs {
			if len(runs) == shown {
				break
			}
			if i.Runs[k].Run != lead.Run {
				runs = append(runs, line(&i.Runs[k]))
			}
		}
		if more := i.RunCount() - uint64(len(runs)); more > 0 {
			runs = append(runs, fmt.Sprintf("and %d more", more))
		}
		add("Runs", strings.Join(runs, "\n"))
	}
	if i.Attempts > 0 {
		add("Blocked attempts", fmt.Sprint(i.Attempts))
	}
	add("Destinations", tallies(i.Destinations, i.Elsewhere))
	add("Processes", tallies(i.Processes, 0))
	then := "sudo proctor alerts ack " + i.ID
	if lead != nil {
		add("Code's sha256", lead.CodeSHA256)
		if code := firstLines(lead.Code, o.CodeLines); code != "" {
			f = append(f, Field{Name: "Code", Value: code, Code: true})
		}
		add("See", "sudo proctor audit show "+lead.Run)
		if o.WebURL != "" {
			f = append(f, Field{Name: "Web", Value: o.WebURL + lead.Run, Link: true})
		}
		if !lead.Ended {
			then += ", and to end the run, sudo proctor kill " + lead.Run
		}
	}
	if i.State == incident.Open {
		add("Then", then)
	}
	if o.Runbook != "" {
		f = append(f, Field{Name: "Runbook", Value: o.Runbook, Link: true})
	}
	if i.Suppressed > 0 {
		add("Suppressed", fmt.Sprintf("%d alarms of it were silenced", i.Suppressed))
	}
	return f
}

func times(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// line is a run, and what is to be known of it before anything else.
func line(r *incident.Run) string {
	state := "goes on"
	if r.Ended {
		state = "has ended"
	}
	return fmt.Sprintf("%s %s, %d attempts", r.Run, state, r.Attempts)
}

// others are those that take part besides whose run is shown first.
func others(i *incident.Incident) string {
	lead := i.Leading()
	var lines []string
	for _, r := range i.Runs {
		who := r.Caller
		if r.Agent != "" {
			who += ", agent " + r.Agent.Printable()
		}
		if (r.Caller != lead.Caller || r.Agent != lead.Agent) && !slices.Contains(lines, who) {
			lines = append(lines, who)
		}
	}
	if len(lines) > shown {
		lines = append(lines[:shown], "and more")
	}
	return strings.Join(lines, "\n")
}

func note(t audit.Text) audit.Text {
	if t == "" {
		return ""
	}
	return ": " + t
}

func tallies(list []incident.Tally, elsewhere uint64) string {
	var lines []string
	for k, t := range list {
		if k == shown {
			for _, rest := range list[k:] {
				elsewhere += rest.Count
			}
			break
		}
		name := t.Name.Printable()
		if _, err := netip.ParsePrefix(name); err == nil {
			name = "others in " + name
		}
		lines = append(lines, fmt.Sprintf("%d × %s", t.Count, name))
	}
	if elsewhere > 0 {
		lines = append(lines, fmt.Sprintf("%d × others", elsewhere))
	}
	return strings.Join(lines, "\n")
}

// maxLine is what is shown of a line of code, in bytes.
const maxLine = 200

func firstLines(code audit.Text, most int) string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(string(code), "\n"), "\n") {
		if len(lines) == most {
			break
		}
		if len(line) > maxLine {
			line = line[:maxLine] + "…"
		}
		// Tabs are what code is indented by.
		lines = append(lines, audit.Text(strings.ReplaceAll(line, "\t", "    ")).Printable())
	}
	return strings.Join(lines, "\n")
}
