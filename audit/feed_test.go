package audit_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"proctor/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbered makes events of one run with the given numbers.
func numbered(run string, from, to uint64) []audit.Event {
	var events []audit.Event
	for seq := from; seq <= to; seq++ {
		events = append(events, audit.Event{Run: run, Seq: seq, Kind: audit.KindExit})
	}
	return events
}

func next(t *testing.T, s *audit.Subscription) []audit.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	batch, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func nothing(t *testing.T, s *audit.Subscription) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if batch, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %d events, %v; want none", len(batch), err)
	}
}

func TestFeedDelivers(t *testing.T) {
	var feed audit.Feed
	feed.Publish("a", numbered("a", 1, 1)) // nobody is there
	all, one := feed.Subscribe(""), feed.Subscribe("b")
	defer all.Close()
	defer one.Close()
	feed.Publish("a", numbered("a", 2, 3))
	feed.Publish("b", numbered("b", 1, 1))
	feed.Publish("b", nil)

	if diff := cmp.Diff(numbered("a", 2, 3), next(t, all)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(numbered("b", 1, 1), next(t, all)); diff != "" {
		t.Error(diff)
	}
	nothing(t, all)
	if diff := cmp.Diff(numbered("b", 1, 1), next(t, one)); diff != "" {
		t.Error(diff)
	}
	nothing(t, one)
}

func TestFeedWakesReader(t *testing.T) {
	var feed audit.Feed
	s := feed.Subscribe("")
	defer s.Close()
	got := make(chan []audit.Event)
	go func() {
		batch, _ := s.Next(t.Context())
		got <- batch
	}()
	time.Sleep(10 * time.Millisecond) // so that it most likely waits
	feed.Publish("a", numbered("a", 1, 1))
	if batch := <-got; len(batch) != 1 {
		t.Errorf("got %d events", len(batch))
	}
}

// A reader that does not read gets as much as is kept for it, the number of what is missing
// where it is missing, and then what comes after.
func TestFeedSlowReader(t *testing.T) {
	const kept = 1 << 16
	var feed audit.Feed
	slow, quick := feed.Subscribe(""), feed.Subscribe("a")
	defer slow.Close()
	defer quick.Close()
	drain := func(s *audit.Subscription) (events []audit.Event) {
		for {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			batch, err := s.Next(ctx)
			if err != nil {
				return events
			}
			events = append(events, batch...)
		}
	}
	publish := func(from, to uint64) {
		feed.Publish("a", numbered("a", from, to))
		drain(quick)
	}
	publish(1, kept-1)
	publish(kept, kept+1) // one too many
	publish(kept+2, kept+2)
	publish(kept+3, kept+5)
	publish(kept+6, kept+6)

	events := drain(slow)
	if len(events) != kept+2 {
		t.Fatalf("%d events, want %d and a gap before the last of them and after it", len(events), kept)
	}
	if e := events[kept-2]; e.Seq != kept-1 {
		t.Errorf("last before the gap: %d", e.Seq)
	}
	for i, want := range map[int]uint64{kept - 1: 2, kept + 1: 4} {
		e := events[i]
		if e.Kind != audit.KindGap || e.Gap == nil || e.Gap.Events != want || e.Run != "" || e.Seq != 0 || e.Time.IsZero() {
			t.Errorf("event %d is %+v, want a gap of %d", i, e, want)
		}
	}
	if e := events[kept]; e.Seq != kept+2 {
		t.Errorf("between the gaps: %d", e.Seq)
	}

	// Once it has caught up nothing is missing any more.
	publish(kept+7, kept+8)
	publish(kept+9, 2*kept)
	if events := drain(slow); len(events) != kept-6 || events[0].Seq != kept+7 || events[2].Kind == audit.KindGap {
		t.Errorf("%d events after that, the first %+v", len(events), events[:3])
	}
}

func TestFeedTakesBatchOfAnySize(t *testing.T) {
	var feed audit.Feed
	s := feed.Subscribe("a")
	defer s.Close()
	feed.Publish("a", numbered("a", 1, 100_000))
	feed.Publish("a", numbered("a", 100_001, 100_002))
	if batch := next(t, s); len(batch) != 100_000 {
		t.Errorf("%d events", len(batch))
	}
	if gap := next(t, s); len(gap) != 1 || gap[0].Gap == nil || gap[0].Gap.Events != 2 || gap[0].Run != "a" {
		t.Errorf("%+v, want a gap of 2", gap)
	}
	nothing(t, s)
}

func TestFeedClose(t *testing.T) {
	var feed audit.Feed
	s := feed.Subscribe("")
	feed.Publish("a", numbered("a", 1, 1))
	done := make(chan error)
	go func() {
		for {
			if _, err := s.Next(context.Background()); err != nil {
				done <- err
				return
			}
		}
	}()
	time.Sleep(10 * time.Millisecond)
	s.Close()
	s.Close()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("after Close: %v", err)
	}
	feed.Publish("a", numbered("a", 2, 2))
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after Close: %v", err)
	}
}

// Readers come and go while runs publish; whatever a reader gets or is told it missed adds up.
func TestFeedConcurrently(t *testing.T) {
	const runs, batches, size = 4, 400, 200
	var feed audit.Feed
	stay := feed.Subscribe("")
	var publishers, others sync.WaitGroup
	for range runs {
		publishers.Go(func() {
			for i := range batches {
				feed.Publish("a", numbered("a", uint64(i*size+1), uint64((i+1)*size)))
			}
		})
	}
	for range 4 {
		others.Go(func() {
			for range 50 {
				s := feed.Subscribe("")
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				_, _ = s.Next(ctx)
				cancel()
				s.Close()
			}
		})
	}
	sum := make(chan uint64)
	go func() {
		var n uint64
		for {
			batch, err := stay.Next(context.Background())
			if err != nil {
				sum <- n
				return
			}
			for _, e := range batch {
				if e.Kind == audit.KindGap {
					n += e.Gap.Events
				} else {
					n++
				}
			}
			if n == runs*batches*size {
				stay.Close()
			}
		}
	}()
	publishers.Wait()
	others.Wait()
	if n := <-sum; n != runs*batches*size {
		t.Errorf("%d events and missed ones, want %d", n, runs*batches*size)
	}
}
