package incident

import (
	"slices"
	"time"

	"proctor/audit"
)

// belongs finds the incident of an alarm, which it opens, again or anew, if need be.
func (b *Book) belongs(a *Alarm) (i *Incident, opened bool) {
	if of := b.open[a.Run]; a.Run != "" && of.Incident != nil {
		caller := b.remember(a.Run).run.Caller
		if !of.shared || ofMany(a.Rule) && of.everybody(func(p Party) bool { return p.Caller == caller }) {
			return of.Incident, false
		}
	}
	var before *Incident
	if i := b.by[a.fingerprint()]; i != nil {
		if i.State == Open {
			return i, false
		}
		before = i
	}
	var caller string
	if a.Run != "" {
		m := b.remember(a.Run)
		caller = m.run.Caller
		i := b.shares(m, a)
		if i != nil && i.State == Open {
			return i, false
		}
		if before == nil {
			before = i
		}
	}
	if storm := b.storm(a, caller); storm != "" {
		s := Alarm{Time: a.Time, Rule: StormRule, Subject: audit.Text(storm), Text: audit.Text("so many incidents of " + storm + " that what follows is one together"), Severity: Critical, Times: 1}
		i := b.by[s.fingerprint()]
		switch {
		case i != nil && i.State == Open:
			return i, false
		case i != nil && b.again(i, a):
			b.reopen(i, a.Time)
		default:
			i = b.begin(a.Time)
		}
		i.Storm, i.Severity, i.Alarms = true, Critical, []Alarm{s}
		b.by[s.fingerprint()] = i
		return i, true
	}
	if before != nil && b.again(before, a) {
		b.reopen(before, a.Time)
		return before, true
	}
	return b.begin(a.Time), true
}

// again reports whether an incident that is resolved opens again by an alarm.
func (b *Book) again(i *Incident, a *Alarm) bool { return a.Time.Sub(i.Resolved) < b.o.Reopen }

// storm says whose incidents are so many that an alarm opens none of its own; empty: nobody's. What
// counts are those that are open, and those of the last hour. A critical alarm of a caller who has
// few is not hidden by what others do.
func (b *Book) storm(a *Alarm, caller string) string {
	all, ofCaller := 0, 0
	for _, i := range b.all {
		if i.Storm || i.State != Open && a.Time.Sub(i.Since) >= time.Hour {
			continue
		}
		if i.State == Open {
			all++
		}
		if len(i.Runs) > 0 && i.Runs[0].Caller == caller {
			ofCaller++
		}
	}
	switch {
	case caller != "" && ofCaller >= maxOpenOfCaller:
		return "caller " + caller
	case all >= maxOpen && a.Severity < Critical:
		return "the host"
	}
	return ""
}

// reopen begins anew what is known under the same id: of what was there before, it has had its end.
func (b *Book) reopen(i *Incident, at time.Time) {
	for _, a := range i.Alarms {
		if b.by[a.fingerprint()] == i {
			delete(b.by, a.fingerprint())
		}
	}
	i.State, i.Severity, i.Since, i.Resolved, i.Ack = Open, Info, at, time.Time{}, nil
	i.Alarms, i.OtherAlarms, i.Criticals, i.Attempts, i.Suppressed, i.Hushed, i.Storm = []Alarm{}, 0, nil, 0, 0, false, false
	i.Parties, i.OtherParties, i.groups = nil, false, map[string]bool{}
	i.Runs, i.OtherRuns, i.Lead, i.runs = []Run{}, 0, "", map[string]bool{}
	i.Destinations, i.Elsewhere, i.Processes = []Tally{}, 0, []Tally{}
	i.Reopened++
	for _, d := range i.Deliveries {
		d.Messages = 0
	}
}

func (b *Book) begin(at time.Time) *Incident {
	i := &Incident{
		ID: newID(), State: Open, Opened: at, Since: at, Last: at, runs: map[string]bool{}, groups: map[string]bool{},
		Alarms: []Alarm{}, Destinations: []Tally{}, Runs: []Run{}, Processes: []Tally{}, Deliveries: map[string]*Delivery{},
	}
	// Who is to be told, also if it is over before he can be.
	for _, name := range b.o.Sinks {
		i.Deliveries[name] = &Delivery{}
	}
	b.all[i.ID] = i
	return i
}

// shares finds the incident of the same caller and agent that is after one of the same
// destinations, or has the same kind of act: an open one, or else one that would open again; of
// those the newest.
func (b *Book) shares(m *memory, a *Alarm) (found *Incident) {
	for _, i := range b.all {
		if i.Storm || i.State != Open && (!isAct(a.Rule) || !b.again(i, a)) {
			continue
		}
		if found != nil && (found.State == Open && i.State != Open || found.State == i.State && !i.Since.After(found.Since)) {
			continue
		}
		if !i.everybody(func(p Party) bool { return p.Caller == m.run.Caller && p.Agent == m.run.Agent }) {
			continue // others have a part in it
		}
		act := isAct(a.Rule) && slices.ContainsFunc(i.Alarms, func(o Alarm) bool { return o.Rule == a.Rule })
		if act || i.State == Open && slices.ContainsFunc(m.groups, func(g string) bool { return i.groups[g] }) {
			found = i
		}
	}
	return found
}
