package spike

import (
	"math"
	"time"
)

const (
	steps   = 60  // of a window
	maxPast = 168 // windows that are remembered
)

// Times before and after these count as they do: what comes from a record may say any time.
var (
	earliest = time.Unix(0, 0).Add(MaxWindow)
	latest   = time.Unix(0, math.MaxInt64)
)

// step is which step of the rule's window a time is in, counted from the epoch: never 0.
func (r Rule) step(at time.Time) int64 {
	switch {
	case at.Before(earliest):
		at = earliest
	case at.After(latest):
		at = latest
	}
	return at.UnixNano() / int64(max(r.Window/steps, 1))
}

// counts are what happened in some time.
type counts struct{ attempts, runs uint32 }

// add counts no further than to the largest number.
func (c *counts) add(o counts) {
	c.attempts = uint32(min(uint64(c.attempts)+uint64(o.attempts), math.MaxUint32))
	c.runs = uint32(min(uint64(c.runs)+uint64(o.runs), math.MaxUint32))
}

// A series is what is counted for one key.
type series struct {
	step   int64 // the newest; 0 before there was one
	recent [steps]counts
	now    counts   // of the current window: they begin at multiples of their length
	past   []counts // of windows that had runs, at most maxPast, the newest last
	usual  *usual   // what past comes to; nil if that has changed
	least  uint64   // what the limit is while the series is young, if that is more than the threshold
	raised
}

// to moves the series on. What comes from before the newest step counts in that; what comes from
// more than a window before it says that the clock was set back: counting begins anew.
func (s *series) to(step int64) {
	switch {
	case s.step == 0:
		s.step = step
		return
	case step < s.step-steps:
		s.step, s.recent, s.now, s.on = step, [steps]counts{}, counts{}, false
		return
	}
	for n := min(step-s.step, steps); n > 0; n-- {
		s.recent[(step-n+1)%steps] = counts{}
	}
	if step/steps > s.step/steps {
		s.learn(s.now)
		s.now = counts{}
	}
	s.step = max(s.step, step)
}

// learn notes a window that is over. One without a run says nothing of how many attempts a run
// makes.
func (s *series) learn(c counts) {
	if c.runs == 0 {
		return
	}
	if len(s.past) == maxPast {
		s.past = append(s.past[:0], s.past[1:]...)
	}
	if len(s.past) == cap(s.past) { // by days, so that little is kept for nothing
		s.past = append(make([]counts, 0, len(s.past)+24), s.past...)
	}
	s.past, s.usual = append(s.past, c), nil
}

func (s *series) add(c counts) {
	s.recent[s.step%steps].add(c)
	s.now.add(c)
}

// sum is what the window has.
func (s *series) sum() (attempts, runs uint64) {
	for _, c := range s.recent {
		attempts, runs = attempts+uint64(c.attempts), runs+uint64(c.runs)
	}
	return attempts, runs
}

// raised says whether there are too many in a series, and how much of that was told.
type raised struct {
	on     bool
	times  uint32 // how often there came to be too many
	peak   uint64 // the most that there were
	told   int64  // when somebody was told last, in seconds of the epoch
	minute int64  // likewise, in minutes
	said   int    // how often in that
}

// While there are too many, that is said again so often.
const (
	sayAfter   = 30 // seconds
	sayAtMost  = 60 // times a minute, where more runs than that take part
	calmedDown = 2  // there are no longer too many where there are less than that part of the limit
)

// check fills in of a how many there are, in that many runs, and reports whether that is to be
// told. The run that was part of it last time is marked by seen.
func (s *series) check(r Rule, attempts, runs uint64, seen *uint32, a *Alarm) bool {
	a.Count, a.Young = attempts, s.young(r)
	a.Limit, a.Expected = s.limit(r, float64(runs))
	a.Again = s.on
	switch {
	case attempts >= a.Limit && !s.on:
		s.on = true
		s.times++
	case attempts < (a.Limit+calmedDown-1)/calmedDown:
		s.on = false
	}
	if s.on {
		s.peak = max(s.peak, attempts)
	}
	at := a.Time.Unix()
	if at/60 != s.minute {
		s.minute, s.said = at/60, 0
	}
	news := *seen != s.times || max(at-s.told, s.told-at) >= sayAfter
	if !s.on || a.Again && (!news || s.said >= sayAtMost) {
		return false
	}
	*seen, s.told = s.times, at
	s.said++
	return true
}
