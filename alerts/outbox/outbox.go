// Package outbox tells sinks of incidents.
//
// There is no queue of messages. What is kept, in the incident, is what each sink was told last;
// what it is to be told next follows from that and from how the incident is now. So nothing piles
// up while a sink is out of reach, and when it is back it is told how things are, not how they
// came to be: of many new incidents, in one message.
//
// For each sink there is one goroutine, which tells one thing at a time, so the order within an
// incident is kept, and a sink that hangs delays no other and no run. That there is a try is
// written down beside it, and what came of it after it, neither of which is waited for: a busy
// disk delays no alarm. After a crash, what may have been told already counts as a try.
//
// # When a try goes wrong
//
// If it can't have been seen (no connection), it is tried until it works, at most half a minute
// apart. If it may have been seen (no answer, 429, 5xx), a sink for which twice is not the same as
// once is told again at growing distances, up to ten minutes and then each hour, and forty times in
// all; then it is left until the sink is known to work.
//
// What is wrong may be the one message: code chose words of it. So after one that was not taken
// another goes first, and one that is not taken while others are gets told without what code chose.
// A sink that refuses twice in a row (an invalid token, a channel that is not there) is left alone
// for an hour, but for what is new, and all other sinks are told of that.
package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
)

// A Route is a sink and which incidents it is told of.
type Route struct {
	Name string // of the sink
	Sink sink.Sink
	// Wants reports whether it is told of an incident; nil: of all.
	Wants func(*incident.Incident) bool
	// Only reports whether it is told of a run; nil: of all. Of an incident that has others, too, it is
	// told what is about those alone that it is.
	Only func(incident.Run) bool
}

// Options of New.
type Options struct {
	Book   *incident.Book
	Routes []Route
	Log    *slog.Logger
	// Broken is called when a sink refuses, so that it can be told elsewhere.
	Broken func(sink string, err error)
	// Mended is called when one that refused takes something.
	Mended func(sink string)
	// Keep is asked to write down soon what the Book has; it does not wait for that.
	Keep func()
	// Delivered is told how long it took from an incident's change to when a sink had it; nil: nobody is.
	Delivered func(sink string, took time.Duration)
}

// How often a sink hears of what only grows.
const (
	editEvery   = 5 * time.Second  // in place
	againEvery  = time.Minute      // as one more message
	maxMessages = 6                // of an incident since it opened, where there is no editing in place, besides its end
	growth      = 10               // times as many attempts as told are news
	lateEnd     = 5 * time.Minute  // after what was over before it was told
	digestFrom  = 4                // incidents that wait, and
	digestAfter = 20 * time.Second // a sink that was out of reach for so long, make one message
)

// How long until the next try.
const (
	firstRetry   = time.Second
	maxRetry     = 30 * time.Second // where it can't have been seen
	firstUnknown = 2 * time.Second
	maxUnknown   = 10 * time.Minute
	slowAfter    = 20 // tries
	slowUnknown  = time.Hour
	maxTries     = 40
	refusedWait  = time.Hour
	probeEvery   = time.Minute // a sink that refuses, with what is new
	probeFirst   = time.Second // after the first refusal
	unfitGap     = 100 * time.Millisecond
	reduceAfter  = 6 // tries that were answered
	soonBack     = 5 * time.Second
)

// An Outbox tells sinks. Whoever calls Start calls Stop.
type Outbox struct {
	o       Options
	workers []*worker
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New returns one that does nothing yet.
func New(o Options) *Outbox {
	box := &Outbox{o: o}
	for _, r := range o.Routes {
		box.workers = append(box.workers, &worker{Options: o, route: r, traits: r.Sink.Traits(), log: o.Log.With("sink", r.Name), poked: make(chan struct{}, 1), tries: map[string]*try{}})
	}
	return box
}

// Start begins to tell.
func (b *Outbox) Start(ctx context.Context) {
	ctx, b.cancel = context.WithCancel(ctx)
	for _, w := range b.workers {
		b.running.Go(func() { w.work(ctx) })
	}
}

// Stop breaks off what is being told, and returns when nothing is. What is left is told after the
// next Start.
func (b *Outbox) Stop() {
	if b.cancel != nil {
		b.cancel()
	}
	b.running.Wait()
}

// Health is how a sink is doing.
type Health struct {
	Sink     string        `json:"sink"`
	Waiting  int           `json:"waiting"`           // incidents of which it does not know all
	Oldest   time.Time     `json:"oldest,omitzero"`   // since when the one that waits longest does
	Failing  time.Time     `json:"failing,omitzero"`  // since when; zero: it works
	Refused  bool          `json:"refused,omitempty"` // it will not work as it is configured
	Error    string        `json:"error,omitempty"`   // the last
	Next     time.Time     `json:"next_try,omitzero"` //
	Sent     uint64        `json:"sent"`              // since the supervisor began, like those below
	Failures uint64        `json:"failures"`          //
	Latency  time.Duration `json:"latency_ns"`        // from an incident's change to when the sink had it, the last
}

// Health of all sinks, in their order.
func (b *Outbox) Health() []Health {
	now := time.Now()
	var all []Health
	for _, w := range b.workers {
		w.mu.Lock()
		h := w.health
		w.mu.Unlock()
		h.Sink = w.route.Name
		w.Book.Select(func(i *incident.Incident) bool {
			if what, _ := w.due(i, now, true); what != "" {
				h.Waiting++
				if h.Oldest.IsZero() || i.Last.Before(h.Oldest) {
					h.Oldest = i.Last
				}
			}
			return false
		})
		all = append(all, h)
	}
	return all
}

// Test sends a marked test to a sink, at once, and returns what came of it. A sink that refused
// is tried again afterwards, if this worked.
func (b *Outbox) Test(ctx context.Context, name string) error {
	at := slices.IndexFunc(b.workers, func(w *worker) bool { return w.route.Name == name })
	if at < 0 {
		return fmt.Errorf("there is no sink %q", name)
	}
	w := b.workers[at]
	if _, err := w.tell(ctx, &sink.Notice{What: sink.Test, Incident: sample(), Loud: true}); err != nil {
		return err
	}
	w.succeeded("", 0)
	w.poke()
	return nil
}

// sample is of a test.
func sample() *incident.Incident {
	now := time.Now()
	return &incident.Incident{
		ID: "test", State: incident.Open, Severity: incident.Info, Opened: now, Last: now, Attempts: 0,
		Alarms:       []incident.Alarm{{Time: now, Rule: "test", Severity: incident.Info, Text: "This is a test of Proctor's alarms: nothing happened", Times: 1}},
		Destinations: []incident.Tally{}, Runs: []incident.Run{}, Processes: []incident.Tally{},
	}
}
