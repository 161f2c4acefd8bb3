package spike

import (
	"hash/maphash"
	"strconv"

	"proctor/audit"
)

// A run is what is known of one.
type run struct {
	caller, agent, image string
	rule                 Rule
	series               series
	destinations         map[uint64]uint32 // by a hash of their names: which time of too many it was told to be part of
	told                 map[By]uint32     // the same of other kinds
}

func newRun(rule Rule) *run {
	return &run{rule: rule, destinations: map[uint64]uint32{}, told: map[By]uint32{}}
}

// begin is a run as its start says.
func (d *Detector) begin(q *audit.Request) *run {
	r := newRun(d.o.Rules[ByRun])
	r.caller, r.agent, r.image = strconv.FormatUint(uint64(q.Caller.UID), 10), string(q.Agent), q.Image.Name
	if d.o.Profile != nil {
		if rule, ok := d.o.Profile(q.Profile); ok {
			r.rule = rule
		}
	}
	return r
}

var seed = maphash.MakeSeed()

// tries notes a destination, and reports whether attempts at it are counted apart from others, and
// whether this is the run's first.
func (r *run) tries(hash uint64) (apart, first bool) {
	if _, known := r.destinations[hash]; known {
		return true, false
	}
	if len(r.destinations) >= maxDestinations {
		return false, false
	}
	r.destinations[hash] = 0
	return true, true
}

type named struct {
	by  By
	key string
}

// belongs is what a run belongs to besides the host.
func (r *run) belongs() [3]named {
	return [3]named{{ByCaller, r.caller}, {ByAgent, r.agent}, {ByImage, r.image}}
}
