package audit

import (
	"context"
	"io"
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
	feed    *Feed
	run     string        // only this run's; empty: all
	arrived chan struct{} // holds a token when there may be something to take; closed by Close

	// Guarded by feed.mu.
	queue  []batch
	queued int    // bytes of memory in queue
	missed uint64 // events after what is in queue
}

// A batch is what one Publish handed over. Readers share its events.
type batch struct {
	events []Event
	bytes  int // of memory that they hold
}

// subscriptionBytes is how much memory a reader that is behind may hold before it misses events:
// an event may have a few hundred bytes, or the arguments of a program.
const subscriptionBytes = 32 << 20

// Subscribe starts reading; run narrows it to one run, empty means all. The caller closes
// the subscription.
func (f *Feed) Subscribe(run string) *Subscription {
	s := &Subscription{feed: f, run: run, arrived: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = map[*Subscription]struct{}{}
	}
	f.subs[s] = struct{}{}
	return s
}

// Publish hands one run's events to every reader. It never waits: a reader that is too slow
// misses them, and is told how many, where they are missing.
func (f *Feed) Publish(run string, events []Event) {
	if len(events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := batch{events: events}
	for s := range f.subs {
		if s.run == "" || s.run == run {
			if b.bytes == 0 { // nobody may be there
				b.bytes = memory(events)
			}
			s.add(b)
		}
	}
}

func (s *Subscription) add(b batch) {
	// One batch is taken whatever its size, or a large one could never be.
	if len(s.queue) > 0 && s.queued+b.bytes > subscriptionBytes {
		s.missed += uint64(len(b.events))
		return
	}
	if s.missed > 0 {
		s.queue = append(s.queue, batch{events: s.gap()})
	}
	s.queue = append(s.queue, b)
	s.queued += b.bytes
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

func (s *Subscription) gap() []Event {
	gap := Event{Run: s.run, Time: time.Now().UTC(), Kind: KindGap, Gap: &Gap{Events: s.missed}}
	s.missed = 0
	return []Event{gap}
}

// Next waits for events. What it returns is shared with other readers and must not be
// changed. The error is ctx's, or [io.EOF] after Close. It is for one goroutine at a time.
func (s *Subscription) Next(ctx context.Context) ([]Event, error) {
	for {
		if batch := s.take(); batch != nil {
			return batch, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case _, open := <-s.arrived:
			if !open {
				return nil, io.EOF
			}
		}
	}
}

func (s *Subscription) take() []Event {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if len(s.queue) == 0 {
		if s.missed == 0 {
			return nil
		}
		return s.gap()
	}
	b := s.queue[0]
	s.queue[0] = batch{}
	s.queue = s.queue[1:]
	s.queued -= b.bytes
	return b.events
}

// Close ends the subscription, and a Next that waits. It may be called again.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if _, ok := s.feed.subs[s]; ok {
		delete(s.feed.subs, s)
		s.queue, s.queued, s.missed = nil, 0, 0
		close(s.arrived)
	}
}
