package supervisor

import (
	"proctor/alerts/spike"
	"proctor/audit"
)

// Alarms are told what runs do. They must not wait for anything: a run's record does for them.
type Alarms interface {
	// Profile says what a profile's rule for its runs is now, over that of the host.
	Profile(name string, over func(base spike.Rule) spike.Rule)
	// Observe reports whether somebody should hear of what it is told.
	Observe([]audit.Event) (raised bool)
	// Keep returns when everything that was raised outlives this process, or can't.
	Keep()
	// Left returns who is to be told of each event of one run that an earlier supervisor left, in
	// order: it knows what that was told.
	Left() func(*audit.Event)
}

// unheard is told in vain.
type unheard struct{}

func (unheard) Profile(string, func(spike.Rule) spike.Rule) {}
func (unheard) Observe([]audit.Event) bool                  { return false }
func (unheard) Keep()                                       {}
func (unheard) Left() func(*audit.Event)                    { return func(*audit.Event) {} }
