package incident

import (
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"proctor/alerts/spike"
	"proctor/audit"
)

// memory is what is known of a run before, and after, it is part of an incident.
type memory struct {
	run          Run
	attempts     uint64
	destinations []Tally
	groups       []string // of these: registrable domains and networks
	elsewhere    uint64
	process      audit.Text
}

// Observe notes what an event says of its run: who asked for it, and what it tries to reach.
func (b *Book) Observe(e *audit.Event) {
	if e.Start != nil {
		q, caller := e.Start, callerName(e.Start.Caller.UID)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.runs.Add(e.Run, &memory{run: Run{
			Run: e.Run, Caller: caller, Agent: cut(q.Agent, 200), Conversation: cut(q.Conversation, 200),
			Image: q.Image.Name, Profile: q.Profile, CodeSHA256: q.Code.SHA256,
		}})
		return
	}
	n, network := spike.Attempts(e)
	if n == 0 {
		return
	}
	group := audit.Text(network)
	name, process := destination(e), command(e, b.o.HideCode)
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.remember(e.Run)
	m.attempts += n
	if i := b.open[e.Run].Incident; i != nil {
		b.attempt(i, e.Time, e.Run, name, group, process, n)
		return
	}
	if len(m.groups) < maxNames && !slices.Contains(m.groups, network) {
		m.groups = append(m.groups, network)
	}
	if m.process == "" {
		m.process = process
	}
	var ok bool
	if m.destinations, ok = tally(m.destinations, maxNames, name, n); !ok {
		if m.destinations, ok = tally(m.destinations, 2*maxNames, group, n); !ok {
			m.elsewhere += n
		}
	}
}

// Ended notes that nothing comes of a run any more, which ended at a time.
func (b *Book) Ended(run string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.open[run].Incident; i != nil {
		delete(b.open, run)
		delete(i.runs, run)
		if r := i.run(run); r != nil {
			r.Ended = true
			b.touch(i, i.Last, false)
		}
	} else if m, ok := b.runs.Peek(run); ok && m.attempts > 0 {
		if len(b.past) == maxPast {
			b.past = b.past[1:]
		}
		m.run.Ended = true
		b.past = append(b.past, past{m, at})
	}
	b.runs.Remove(run)
}

// A past is a run that ended and was part of no incident.
type past struct {
	*memory
	ended time.Time
}

// led reports whether a run's attempts are among those that an alarm counts.
func (p past) led(a *Alarm) bool {
	uid, _, _ := strings.Cut(p.run.Caller, " ")
	switch subject := string(a.Subject); a.Rule {
	case "spike.caller":
		return uid == subject
	case "spike.agent":
		return string(p.run.Agent) == subject
	case "spike.image":
		return p.run.Image == subject
	case "spike.destination":
		return slices.ContainsFunc(p.destinations, func(t Tally) bool { return spike.Group(t.Name) == subject })
	}
	return a.Rule == "spike.host"
}

func (b *Book) remember(run string) *memory {
	m, ok := b.runs.Get(run)
	if !ok {
		m = &memory{run: Run{Run: run, Caller: "unknown"}}
		b.runs.Add(run, m)
	}
	return m
}

// attempt counts n of a run in its incident.
func (b *Book) attempt(i *Incident, at time.Time, run string, name, group, process audit.Text, n uint64) {
	i.Attempts += n
	i.Last = later(i.Last, at)
	m := b.remember(run)
	m.run.Attempts = m.attempts
	i.tried(group)
	if r := i.run(run); r != nil {
		r.Attempts += n
	}
	b.lead(i, m)
	rises := i.rise()
	known := len(i.Destinations)
	i.reach(name, n)
	if process != "" {
		i.Processes, _ = tally(i.Processes, maxProcesses, process, n)
	}
	// A first look shows some of them; what comes later to a long list is a higher count.
	b.touch(i, at, rises || len(i.Destinations) > known && known < 10)
}

// reach counts attempts at a destination: by its name, or by what it is grouped by, or with the rest.
func (i *Incident) reach(name audit.Text, n uint64) {
	var ok bool
	if i.Destinations, ok = tally(i.Destinations, maxDestinations, name, n); !ok {
		if i.Destinations, ok = tally(i.Destinations, 2*maxDestinations, audit.Text(spike.Group(name)), n); !ok {
			i.Elsewhere += n
		}
	}
}

// tried notes a destination, or the group of one.
func (i *Incident) tried(name audit.Text) {
	if len(i.groups) < maxGroups {
		i.groups[spike.Group(name)] = true
	}
}

func callerName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return id + " (" + u.Username + ")"
	}
	return id
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// cut is no more than so many bytes of a text.
func cut(t audit.Text, most int) audit.Text {
	if len(t) <= most {
		return t
	}
	return t[:most] + "…"
}

// destination names what an attempt was made at as exactly as is known.
func destination(e *audit.Event) audit.Text {
	var name audit.Text
	switch {
	case e.Query != nil:
		name = e.Query.Name
	case e.Flow != nil:
		if name = e.Flow.Name; name == "" {
			name = e.Flow.Claimed
		}
		if name == "" && e.Flow.Address.IsValid() {
			name = audit.Text(e.Flow.Address.String())
		}
	case e.Net != nil:
		if name = e.Net.Host; name == "" && e.Net.Address.IsValid() {
			name = audit.Text(e.Net.Address.Unmap().String())
		}
	}
	if name == "" {
		name = "no address"
	}
	return cut(name, 253)
}

// command is the command line of who acted, or the program's name alone.
func command(e *audit.Event, hide bool) audit.Text {
	if e.Process == nil {
		return ""
	}
	p := e.Process
	switch {
	case hide && p.File != "":
		return cut(p.File, 300)
	case hide || len(p.Argv) == 0:
		return p.Comm
	}
	var line []string
	for _, a := range p.Argv {
		line = append(line, string(a))
		if len(line) == 20 {
			break
		}
	}
	return cut(audit.Text(strings.Join(line, " ")), 300)
}
