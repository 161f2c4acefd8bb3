package audit

import (
	"sync"
	"time"
)

// Feed is the live stream of all runs' events. The zero value is ready.
type Feed struct {
	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// Subscription is one reader's view of a Feed.
type Subscription struct {
	feed   *Feed
	events chan []Event
	run    string // only this run's; empty: all
	missed uint64 // guarded by feed.mu
}

// subscriptionBatches is how many batches a reader may be behind before it misses some. A
// batch is what one run did within the sensor's reading interval.
const subscriptionBatches = 256

// Subscribe starts reading; run narrows it to one run, empty means all. The caller closes
// the subscription.
func (f *Feed) Subscribe(run string) *Subscription {
	s := &Subscription{feed: f, run: run, events: make(chan []Event, subscriptionBatches)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = map[*Subscription]struct{}{}
	}
	f.subs[s] = struct{}{}
	return s
}

// Publish hands one run's events to every reader. It never waits: a reader that is too slow
// misses them, and is told how many before the next it gets.
func (f *Feed) Publish(run string, events []Event) {
	if len(events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		if s.run != "" && s.run != run {
			continue
		}
		batch := events
		if s.missed > 0 {
			gap := Event{Run: run, Time: time.Now().UTC(), Kind: KindGap, Gap: &Gap{Events: s.missed}}
			batch = append([]Event{gap}, events...)
		}
		select {
		case s.events <- batch:
			s.missed = 0
		default:
			s.missed += uint64(len(events))
		}
	}
}

// Events delivers batches; they are shared with other readers and must not be changed. It
// is closed by Close.
func (s *Subscription) Events() <-chan []Event { return s.events }

// Close ends the subscription. It may be called again.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if _, ok := s.feed.subs[s]; ok {
		delete(s.feed.subs, s)
		close(s.events)
	}
}
