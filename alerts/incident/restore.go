package incident

import (
	"maps"
	"strings"

	"proctor/audit"
)

// restore makes whole what a store had, whatever it had.
func (b *Book) restore(i *Incident) {
	i.runs, i.groups = map[string]bool{}, map[string]bool{} // runs have all ended
	if i.Deliveries == nil {
		i.Deliveries = map[string]*Delivery{} // nobody was told before the end
	}
	maps.DeleteFunc(i.Deliveries, func(_ string, d *Delivery) bool { return d == nil })
	if len(i.Alarms) == 0 {
		i.Alarms = []Alarm{{Time: i.Opened, Rule: "unknown", Severity: i.Severity, Text: "What it was is not known any more"}}
	}
	if i.Since.IsZero() {
		i.Since = i.Opened
	}
	if i.run(i.Lead) == nil && len(i.Runs) > 0 {
		i.Lead = i.Runs[0].Run
	}
	for _, t := range i.Destinations {
		i.tried(t.Name)
	}
	for k := range i.Runs {
		i.meets(i.Runs[k])
		i.Runs[k].Ended = true
		if b.o.HideCode {
			i.Runs[k].Code = ""
		}
	}
	for k := range i.Processes {
		if b.o.HideCode {
			name, _, _ := strings.Cut(string(i.Processes[k].Name), " ")
			i.Processes[k].Name = audit.Text(name)
		}
	}
	if r := i.Leading(); r != nil && r.Code == "" && i.State == Open && b.o.Code != nil {
		b.codeless[i.ID] = true
	}
}
