package spike

import (
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"proctor/audit"
)

// An Alarm says that there are too many attempts of something.
type Alarm struct {
	Time     time.Time // of the attempt that was one too many
	By       By
	Key      string // hostile where it is an agent's label or a destination
	Count    uint64 // attempts in the rule's window
	Limit    uint64
	Expected float64 // by the series' history; 0 of a young one
	Young    bool
	Rule     Rule
	Run      string // whose attempt it was
	// Again says that the alarm was told and that attempts go on: when a run first takes part in
	// that, and about twice a minute.
	Again bool
}

// Options of New.
type Options struct {
	Rules Rules // a kind that is missing has no alarms
	// Profile is the rule for runs of a profile; nil, or false: that of Rules.
	Profile func(name string) (Rule, bool)
}

// What is remembered at most; what was used longest ago is forgotten first. A series has about
// 2.3 KiB with all of its history, a run with all of its destinations 2.8 KiB: 64 MiB at the most.
const (
	maxRuns         = 8192
	maxSeries       = 4096 // of each kind but runs
	maxDestinations = 64   // of one run that are counted apart, so that it can't push out all others
)

// A Detector counts attempts. It is for one goroutine at a time. There is nothing to close.
type Detector struct {
	o     Options
	runs  *simplelru.LRU[string, *run]
	kept  map[By]*simplelru.LRU[string, *kept]
	host  kept
	pulse pulse
}

// kept is a series of a kind of which there are many.
type kept struct {
	series
	callers []string // of a destination: up to as many as make it common
	runs    int      // likewise
}

// What makes a destination common.
const (
	commonCallers = 3
	commonRuns    = 10
)

func (k *kept) common() bool { return len(k.callers) >= commonCallers && k.runs >= commonRuns }

// meet notes that a run of a caller came along.
func (k *kept) meet(caller string) {
	k.runs++
	if len(k.callers) < commonCallers && caller != "" && !slices.Contains(k.callers, caller) {
		k.callers = append(k.callers, caller)
	}
}

// New returns a Detector that has seen nothing.
func New(o Options) *Detector {
	d := &Detector{o: o, kept: map[By]*simplelru.LRU[string, *kept]{}}
	d.runs, _ = simplelru.NewLRU[string, *run](maxRuns, nil) // it refuses sizes below 1 alone
	for _, by := range []By{ByCaller, ByAgent, ByImage, ByDestination} {
		d.kept[by], _ = simplelru.NewLRU[string, *kept](maxSeries, nil)
	}
	return d
}

// Observe counts an event, and returns what there is too much of since. Events should come in
// order of time; one from before counts as if it came now.
func (d *Detector) Observe(e *audit.Event) []Alarm {
	switch {
	case e.Start != nil:
		d.start(e)
		return nil
	case e.Kind == audit.KindEnd:
		d.runs.Remove(e.Run)
		return nil
	}
	n, destination := Attempts(e)
	if n == 0 {
		return nil
	}
	r, ok := d.runs.Get(e.Run)
	if !ok {
		r = newRun(d.o.Rules[ByRun])
		d.runs.Add(e.Run, r)
	}
	c := &count{d: d, event: e, run: r, n: counts{attempts: uint32(min(n, math.MaxUint32))}}
	c.in(ByRun, e.Run, &r.series, r.rule)
	if common := c.at(destination); !common {
		c.all()
	}
	return c.alarms
}

// start counts a run.
func (d *Detector) start(e *audit.Event) {
	r := d.begin(e.Start)
	d.runs.Add(e.Run, r)
	c := &count{d: d, event: e, run: r, n: counts{runs: 1}}
	c.all()
	if rule := d.o.Rules[ByDestination]; rule.counts() {
		d.pulse.to(rule.step(e.Time))
		d.pulse.add(c.n)
	}
}

// of is a series, a new one if need be.
func (d *Detector) of(by By, key string) *kept {
	if k, ok := d.kept[by].Get(key); ok {
		return k
	}
	k := &kept{}
	d.kept[by].Add(key, k)
	return k
}

// count is an event being counted.
type count struct {
	d      *Detector
	event  *audit.Event
	run    *run
	n      counts
	alarms []Alarm
}

// at counts an attempt for its destination, and reports whether that is a common one. What has no
// destination of its own is none: other runs' attempts there have nothing to do with it.
func (c *count) at(destination string) (common bool) {
	hash := maphash.String(seed, destination)
	apart, first := c.run.tries(hash)
	if destination == nowhere || !apart {
		return false
	}
	to := c.d.of(ByDestination, destination)
	if first {
		to.meet(c.run.caller)
	}
	r := c.d.o.Rules[ByDestination]
	if !r.counts() {
		return to.common()
	}
	c.d.pulse.to(r.step(c.event.Time))
	c.d.pulse.lead(&to.series)
	to.add(c.n)
	attempts, _ := to.sum()
	// How many attempts a run makes of a destination is a question of all runs.
	_, runs := c.d.pulse.sum()
	// What there was from the beginning is told once, and then only if there is much more of it.
	to.least = 0
	if to.common() && !to.on && c.d.host.young(c.d.o.Rules[ByHost]) {
		to.least = 2 * to.peak
	}
	seen := c.run.destinations[hash]
	c.check(ByDestination, destination, &to.series, r, attempts, runs, &seen)
	c.run.destinations[hash] = seen
	return to.common()
}

// all counts the event for what the run belongs to, and the host.
func (c *count) all() {
	for _, s := range c.run.belongs() {
		if s.key != "" {
			c.in(s.by, s.key, &c.d.of(s.by, s.key).series, c.d.o.Rules[s.by])
		}
	}
	c.in(ByHost, "", &c.d.host.series, c.d.o.Rules[ByHost])
}

// in counts the event in a series, and checks that if somebody should be told.
func (c *count) in(by By, key string, s *series, r Rule) {
	if !r.counts() {
		return
	}
	s.to(r.step(c.event.Time))
	s.add(c.n)
	if c.n.attempts == 0 {
		return
	}
	attempts, runs := s.sum()
	seen := c.run.told[by]
	c.check(by, key, s, r, attempts, runs, &seen)
	if seen > 0 {
		c.run.told[by] = seen
	}
}

func (c *count) check(by By, key string, s *series, r Rule, attempts, runs uint64, seen *uint32) {
	a := Alarm{Time: c.event.Time, By: by, Key: key, Rule: r, Run: c.event.Run}
	if s.check(r, attempts, runs, seen, &a) {
		c.alarms = append(c.alarms, a)
	}
}
