package incident

import (
	"slices"

	"proctor/audit"
)

// Only is what may be said of an incident to somebody who may hear of some runs alone: of the others
// there is their number, and of destinations and processes nothing, as nobody knows whose they were.
func (i *Incident) Only(fits func(Run) bool) *Incident {
	if !slices.ContainsFunc(i.Runs, func(r Run) bool { return !fits(r) }) && i.OtherRuns == 0 {
		return i
	}
	c := *i
	c.Runs, c.Alarms, c.Parties = []Run{}, []Alarm{}, nil
	shown := map[string]bool{"": true}
	for _, r := range i.Runs {
		if fits(r) {
			c.Runs = append(c.Runs, r)
			c.meets(r)
			shown[r.Run] = true
		} else {
			c.OtherRuns++
		}
	}
	for _, a := range i.Alarms {
		switch {
		case shown[a.Run]:
		case a.Rule == "spike.destination" || a.Rule == "spike.image" || a.Rule == "spike.host":
			// Where to is the others' matter; that there are too many may be this one's, too.
			a.Run, a.Subject, a.Text = "", "", "Too many blocked attempts of several runs, of which some are not told here"
		default:
			c.OtherAlarms++
			continue
		}
		c.Alarms = append(c.Alarms, a)
	}
	if len(c.Alarms) == 0 {
		c.Alarms = []Alarm{{Time: i.Opened, Rule: "other", Severity: i.Severity, Text: "Alarms of others' runs", Times: 1}}
	}
	if !shown[c.Lead] {
		c.Lead = ""
	}
	c.Destinations, c.Elsewhere, c.Processes = []Tally{}, 0, []Tally{}
	return &c
}

// Reduced is an incident without anything that code or its caller chose.
func (i *Incident) Reduced() *Incident {
	c := *i
	c.Alarms, c.Runs = slices.Clone(i.Alarms), slices.Clone(i.Runs)
	for k := range c.Alarms {
		c.Alarms[k].Subject = ""
		c.Alarms[k].Text = audit.Text(c.Alarms[k].Rule + ": what it says was not taken here: see `proctor alerts show " + i.ID + "`")
	}
	for k := range c.Runs {
		c.Runs[k].Agent, c.Runs[k].Conversation, c.Runs[k].Code = "", "", ""
	}
	c.Destinations, c.Processes, c.Parties = []Tally{}, []Tally{}, nil
	return &c
}

// OnlyOf reports whether it has no alarms but those of one rule and subject.
func (i *Incident) OnlyOf(rule string, subject audit.Text) bool {
	return i.OtherAlarms == 0 && !slices.ContainsFunc(i.Alarms, func(a Alarm) bool { return a.Rule != rule || a.Subject != subject })
}
