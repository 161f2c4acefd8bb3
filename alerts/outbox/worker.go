package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
)

// A worker tells one sink.
type worker struct {
	Options
	route  Route
	traits sink.Traits
	log    *slog.Logger
	poked  chan struct{}

	sending sync.Mutex // one at a time

	mu       sync.Mutex
	health   Health
	fails    int       // in a row
	refusals int       // likewise
	next     time.Time // not before
	taken    uint64    // notices
	back     time.Time // from an outage
	single   bool      // one message for many was not taken
	tries    map[string]*try
}

func (w *worker) work(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := w.Book.Changed()
		timer.Reset(w.round(ctx))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-w.poked:
		case <-timer.C:
		}
	}
}

// poke has the worker look again now.
func (w *worker) poke() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

// idle is how long a worker sleeps at most: what grows does not wake it.
const idle = time.Second

// A task is something to be told.
type task struct {
	*incident.Incident
	what  sink.What
	fails int
	aside bool // it was tried, and it is too early to do so again
	alone bool
}

// round tells what is due, and returns when to look again.
func (w *worker) round(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		now := time.Now()
		w.mu.Lock()
		next, digest := w.next, w.digests(now)
		w.mu.Unlock()
		if next.After(now) {
			return next.Sub(now)
		}
		tasks, wait := w.tasks(now)
		if fresh := fresh(tasks); digest && len(fresh) >= digestFrom && !w.traits.Once {
			w.send(ctx, &sink.Notice{What: sink.Opened, Incident: fresh[0], CatchUp: fresh, Loud: true}, fresh)
			continue
		}
		tasks = slices.DeleteFunc(tasks, func(t task) bool { return t.aside })
		if len(tasks) == 0 {
			return wait
		}
		t := slices.MinFunc(tasks, first)
		n := &sink.Notice{What: t.what, Incident: t.Incident, Loud: true}
		if d := t.Deliveries[w.route.Name]; d != nil {
			n.Ref = d.Ref
			n.Loud = n.What != sink.Updated || t.Severity > d.Severity || t.Loud > d.Revision || t.Attempts >= growth*max(d.Attempts, 1)
		}
		w.send(ctx, n, []*incident.Incident{t.Incident})
	}
	return idle
}

// tasks are what is due, the oldest first, and when to look again if that is nothing.
func (w *worker) tasks(now time.Time) (tasks []task, wait time.Duration) {
	wait = idle
	why := map[string]sink.What{}
	var list []*incident.Incident
	for before, complete := w.Book.Complete(), false; !complete; {
		list = w.Book.Select(func(i *incident.Incident) bool {
			what, when := w.due(i, now, false)
			if what == "" {
				if !when.IsZero() {
					wait = min(wait, when.Sub(now))
				}
				return false
			}
			why[i.ID] = what
			return true
		})
		after := w.Book.Complete()
		before, complete = after, after == before
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range slices.Backward(list) {
		t := task{Incident: i, what: why[i.ID]}
		if y := w.tries[i.ID]; y != nil {
			t.fails, t.alone, t.aside = y.fails, y.alone, y.next.After(now)
			if t.aside {
				wait = min(wait, y.next.Sub(now))
			}
		}
		tasks = append(tasks, t)
	}
	return tasks, wait
}

// first compares what goes before the other: what did not go wrong, what is new, what is severe.
func first(a, b task) int {
	return cmp.Or(a.fails-b.fails, order(a.what)-order(b.what), int(b.Severity-a.Severity))
}

func order(w sink.What) int {
	return slices.Index([]sink.What{sink.Opened, sink.Reopened, sink.Resolved, sink.Updated, sink.Repeated}, w)
}

// fresh are those of which nothing was told.
func fresh(tasks []task) (list []*incident.Incident) {
	for _, t := range tasks {
		if t.what == sink.Opened && !t.alone {
			list = append(list, t.Incident)
		}
	}
	return list
}

// send tells one notice, and notes what came of it.
func (w *worker) send(ctx context.Context, n *sink.Notice, of []*incident.Incident) {
	name := w.route.Name
	// What a crash interrupts may have been seen.
	if !w.traits.Once {
		for _, i := range of {
			w.Book.Deliver(i.ID, name, func(d *incident.Delivery) { d.Unknown++ })
		}
	}
	w.keep()
	ref, err := w.tell(ctx, w.shown(n))
	now := time.Now()
	if err == nil {
		took := w.latency(of[0], now)
		for _, i := range of {
			w.Book.Deliver(i.ID, name, func(d *incident.Delivery) { w.confirm(d, i, n, ref, now) })
		}
		for _, i := range of {
			w.succeeded(i.ID, took)
		}
		if w.Delivered != nil && took > 0 {
			w.Delivered(name, took)
		}
		w.keep()
		return
	}
	e := sink.As(err)
	if ctx.Err() != nil { // the supervisor stops
		return
	}
	parked := false
	for _, i := range of {
		w.Book.Deliver(i.ID, name, func(d *incident.Delivery) {
			if e.Outcome != sink.Unknown && !w.traits.Once {
				d.Unknown--
			}
			if d.Failing.IsZero() {
				d.Failing = now
			}
			d.Error = e.Error()
			if d.Parked = d.Unknown >= maxTries; d.Parked {
				d.GaveUp = i.Revision
			}
			parked = parked || d.Parked
		})
	}
	w.keep()
	if len(of) > 1 {
		w.mu.Lock()
		w.single = e.Outcome != sink.NotSent
		w.mu.Unlock()
	}
	w.failed(of[0].ID, e, now)
	if parked {
		w.log.Error("an incident may have been told; it is not told again until the sink works", "incident", n.Incident.ID, "tries", maxTries)
	}
}

// tell has the sink told. A mistake in it ends neither runs nor what other sinks are told.
func (w *worker) tell(ctx context.Context, n *sink.Notice) (ref json.RawMessage, err error) {
	w.sending.Lock()
	defer w.sending.Unlock()
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("telling went wrong in a way that nobody thought of", "panic", p, "stack", string(debug.Stack()))
			err = sink.Errorf(sink.Unknown, "panic: %v", p)
		}
	}()
	return w.route.Sink.Send(ctx, n)
}

// shown is of a notice what this sink is told.
func (w *worker) shown(n *sink.Notice) *sink.Notice {
	w.mu.Lock()
	y := w.tries[n.Incident.ID]
	// One message for many is told whole, or not at all: each is told by itself then.
	reduce := y != nil && y.reduced() && n.CatchUp == nil
	w.mu.Unlock()
	view := func(i *incident.Incident) *incident.Incident {
		if w.route.Only != nil {
			i = i.Only(w.route.Only)
		}
		if reduce {
			i = i.Reduced()
		}
		return i
	}
	c := *n
	c.Incident = view(n.Incident)
	if n.CatchUp != nil {
		c.CatchUp = nil
		for _, i := range n.CatchUp {
			c.CatchUp = append(c.CatchUp, view(i))
		}
	}
	return &c
}

// latency is from the last change that is more than a higher count to now, 0 if the sink knew that.
func (w *worker) latency(i *incident.Incident, now time.Time) time.Duration {
	if d := i.Deliveries[w.route.Name]; d != nil && i.Material <= d.Revision {
		return 0
	}
	return now.Sub(i.Changed)
}

func (w *worker) keep() {
	if w.Keep != nil {
		w.Keep()
	}
}

func (w *worker) confirm(d *incident.Delivery, i *incident.Incident, n *sink.Notice, ref json.RawMessage, now time.Time) {
	d.Revision, d.State, d.Severity, d.Attempts, d.Time = i.Revision, i.State, i.Severity, i.Attempts, now
	d.Acked, d.Reopened = i.Ack != nil, i.Reopened
	if n.What == sink.Opened && w.traits.Once {
		d.State = incident.Open // people are notified of what is open for a while
	}
	if n.What != sink.Repeated {
		d.Messages++
	}
	if ref != nil {
		d.Ref = ref
	}
	d.Unknown, d.Parked, d.Failing, d.Error = 0, false, time.Time{}, ""
}
