package outbox

import (
	"math/rand/v2"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/audit"
)

// A try is what is known of an incident that was not taken, until it is.
type try struct {
	fails    int
	answered int       // of these
	next     time.Time // not before
	taken    uint64    // what the sink had taken by then
	alone    bool      // the sink takes others
	probe    bool      // told without them, it shows whether the sink refuses everything
}

// reduced reports whether it is told without what code chose: where that seems to be what is wrong,
// and now and then where there is nothing else to find that out by.
func (t *try) reduced() bool {
	return t.alone || t.probe || t.answered >= reduceAfter && t.fails%2 == 0
}

// digests reports whether what is new goes in one message: the sink is, or was just now, out of
// reach for a while.
func (w *worker) digests(now time.Time) bool {
	return !w.single && (!w.health.Failing.IsZero() && now.Sub(w.health.Failing) > digestAfter || now.Sub(w.back) < soonBack)
}

// succeeded notes that the sink took an incident; empty: a test.
func (w *worker) succeeded(id string, latency time.Duration) {
	w.mu.Lock()
	now := time.Now()
	failing, refused := w.health.Failing, w.health.Refused
	w.health.Failing, w.health.Refused, w.health.Error, w.health.Next = time.Time{}, false, "", time.Time{}
	w.health.Sent++
	if latency > 0 {
		w.health.Latency = latency
	}
	w.fails, w.refusals, w.next, w.single = 0, 0, time.Time{}, false
	first := w.taken == 0
	w.taken++
	delete(w.tries, id)
	for _, t := range w.tries {
		if !t.alone {
			t.next, t.probe = time.Time{}, false
		}
	}
	if !failing.IsZero() && now.Sub(failing) > digestAfter {
		w.back = now
	}
	w.mu.Unlock()
	if refused && w.Mended != nil {
		w.Mended(w.route.Name)
	}
	if !failing.IsZero() {
		w.log.Info("the sink works again", "after", now.Sub(failing).Round(time.Second))
	} else if !first && id != "" {
		return
	}
	// What was given up gets one more try: the sink is known to work, which it was not.
	for _, i := range w.Book.Select(func(i *incident.Incident) bool {
		d := i.Deliveries[w.route.Name]
		return d != nil && d.Parked
	}) {
		w.Book.Deliver(i.ID, w.route.Name, func(d *incident.Delivery) { d.Parked, d.Unknown = false, maxTries-1 })
	}
}

// failed notes that it did not.
func (w *worker) failed(id string, e *sink.Error, now time.Time) {
	w.mu.Lock()
	w.health.Failures++
	t := w.tries[id]
	if t == nil {
		t = &try{}
		w.tries[id] = t
	}
	unfit := e.Outcome == sink.Unfit && !t.reduced() // there is something left to leave out
	if e.Outcome == sink.Unfit && !unfit {
		e = &sink.Error{Outcome: sink.Refused, RetryAfter: e.RetryAfter, Err: e.Err}
	}
	t.alone = t.fails > 0 && w.taken > t.taken
	t.taken = w.taken
	t.fails++
	if e.Outcome != sink.NotSent {
		t.answered++
	}
	own := w.wait(e.Outcome, t.fails)
	newly := false
	switch {
	case unfit:
		own, t.probe = probeFirst, true
		w.next = now.Add(unfitGap)
	case t.alone:
		if e.Outcome == sink.Refused {
			own = refusedWait
			if t.fails <= 2 {
				own = probeFirst
			}
		}
	default:
		own, newly = w.sinkFailed(e, now, own)
		t.probe = e.Outcome == sink.Refused && w.refusals == 1
	}
	// A tenth at random, so that several supervisors don't come at once.
	own += time.Duration(rand.Int64N(int64(own)/10 + 1))
	t.next = now.Add(max(own, e.RetryAfter))
	w.forget(now)
	w.mu.Unlock()
	text := audit.Text(e.Error()).Printable()
	w.log.Warn("an incident was not told", "incident", id, "error", text, "next_try", max(own, e.RetryAfter).Round(time.Second), "others_are_taken", t.alone)
	if newly {
		w.log.Error("the sink refuses: nobody is told there until it takes something: mend it, then `proctor alerts test`", "error", text)
		if w.Broken != nil {
			w.Broken(w.route.Name, e)
		}
	}
}

// wait is how long until an incident is tried again that was not taken so often.
func (w *worker) wait(o sink.Outcome, fails int) time.Duration {
	switch {
	case o == sink.NotSent || w.traits.Once:
		return min(firstRetry<<min(fails-1, 20), maxRetry)
	case fails > slowAfter:
		return slowUnknown
	default:
		return min(firstUnknown<<min(fails-1, 20), maxUnknown)
	}
}

// sinkFailed notes what says something of the sink: when something else may be tried, and whether it
// turns out to refuse.
func (w *worker) sinkFailed(e *sink.Error, now time.Time, own time.Duration) (_ time.Duration, newly bool) {
	w.fails++
	wait := min(w.wait(e.Outcome, w.fails), maxRetry)
	if e.Outcome == sink.Refused {
		if w.refusals++; w.refusals == 1 {
			own, wait = probeFirst, probeFirst
		} else {
			own, wait = refusedWait, probeEvery
			newly = !w.health.Refused
		}
	} else {
		w.refusals = 0
	}
	w.next = now.Add(max(wait, e.RetryAfter))
	if w.health.Failing.IsZero() {
		w.health.Failing = now
	}
	w.health.Refused, w.health.Error, w.health.Next = w.refusals > 1, e.Error(), w.next
	return own, newly
}

// forget drops what is known of incidents that are no more.
func (w *worker) forget(now time.Time) {
	const many = 1000
	if len(w.tries) < many {
		return
	}
	for id, t := range w.tries {
		if now.Sub(t.next) > refusedWait {
			delete(w.tries, id)
		}
	}
}
