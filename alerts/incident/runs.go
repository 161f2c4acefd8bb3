package incident

import (
	"slices"

	"proctor/audit"
)

// A membership is which incident a run is part of.
type membership struct {
	*Incident
	shared bool // by an alarm of many runs: what this one does by itself is another matter
}

// join makes a run part of an incident, with what is known of it.
func (b *Book) join(i *Incident, run string, shared bool) (shown bool) {
	m := b.remember(run)
	b.open[run] = membership{i, shared}
	// A run that an earlier supervisor left may have been counted by that.
	if i.runs[run] || i.run(run) != nil {
		return false
	}
	i.runs[run] = true
	return b.count(i, m)
}

// count adds what a run did so far.
func (b *Book) count(i *Incident, m *memory) (shown bool) {
	m.run.Attempts = m.attempts
	new := i.meets(m.run)
	if shown = len(i.Runs) < maxRuns; shown {
		i.Runs = append(i.Runs, m.run)
	} else {
		i.OtherRuns++
		if new { // everybody who takes part is shown
			i.place(m.run)
		}
	}
	b.lead(i, m)
	i.Attempts += m.attempts
	for _, t := range m.destinations {
		i.tried(t.Name)
		i.reach(t.Name, t.Count)
	}
	i.Elsewhere += m.elsewhere
	if m.process != "" {
		i.Processes, _ = tally(i.Processes, maxProcesses, m.process, max(m.attempts, 1))
	}
	return shown
}

// lead has a run be looked at first that has twice as many attempts as the one that was so far,
// unless that is first for what it did.
func (b *Book) lead(i *Incident, m *memory) {
	now := i.run(i.Lead)
	if now != nil && (now.Run == m.run.Run || m.attempts < 2*max(now.Attempts, 1) || len(i.Alarms) > 0 && isAct(i.leading().Rule)) {
		return
	}
	b.setLead(i, m)
}

func (b *Book) setLead(i *Incident, m *memory) {
	if i.Lead == m.run.Run {
		return
	}
	m.run.Attempts = m.attempts
	if i.run(m.run.Run) == nil {
		i.place(m.run)
	}
	for k := range i.Runs {
		i.Runs[k].Code = ""
	}
	i.Lead = m.run.Run
	if b.o.Code != nil {
		b.codeless[i.ID] = true
	}
}

// place shows a run for which there was no place, instead of the one of least attempts. The first one
// stays where it is.
func (i *Incident) place(r Run) {
	if len(i.Runs) < maxRuns {
		i.Runs = append(i.Runs, r)
		return
	}
	least := 0
	for k := 1; k < len(i.Runs); k++ {
		if i.Runs[k].Run != i.Lead && (least == 0 || i.less(k, least)) {
			least = k
		}
	}
	i.Runs[least] = r
}

// less reports whether a run is less missed than another: somebody else is like it, or it did less.
func (i *Incident) less(a, b int) bool {
	likeA, likeB := i.hasLike(a), i.hasLike(b)
	if likeA != likeB {
		return likeA
	}
	return i.Runs[a].Attempts < i.Runs[b].Attempts
}

func (i *Incident) hasLike(at int) bool {
	p := i.Runs[at].Party()
	for k, r := range i.Runs {
		if k != at && r.Party() == p {
			return true
		}
	}
	return false
}

// A Party is who takes part in an incident, and how.
type Party struct {
	Caller  string     `json:"caller"`
	Agent   audit.Text `json:"agent,omitempty"`
	Image   string     `json:"image,omitempty"`
	Profile string     `json:"profile,omitempty"`
}

// Party is who a run is of.
func (r *Run) Party() Party { return Party{r.Caller, r.Agent, r.Image, r.Profile} }

// meets notes who takes part, and reports whether he did not before.
func (i *Incident) meets(r Run) bool {
	p := r.Party()
	switch {
	case slices.Contains(i.Parties, p):
		return false
	case len(i.Parties) == maxParties:
		i.OtherParties = true
		return false
	}
	i.Parties = append(i.Parties, p)
	return true
}

// everybody reports whether all that take part are such.
func (i *Incident) everybody(is func(Party) bool) bool {
	return len(i.Parties) > 0 && !i.OtherParties && !slices.ContainsFunc(i.Parties, func(p Party) bool { return !is(p) })
}

// recall makes runs that ended part of an incident that their attempts led to: an alarm by caller,
// agent, image, destination or host is of many runs.
func (b *Book) recall(i *Incident, a *Alarm) {
	for _, p := range b.past {
		if a.Time.Sub(p.ended) < recallWithin && p.led(a) && i.run(p.run.Run) == nil {
			b.count(i, p.memory)
		}
	}
	if slices.ContainsFunc(b.past, func(p past) bool { return p.led(a) }) {
		b.past = slices.DeleteFunc(b.past, func(p past) bool { return p.led(a) })
	}
}
