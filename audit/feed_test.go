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
	kept := uint64(audit.SubscriptionBytes / audit.Memory(numbered("a", 1, 1)))
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
	if uint64(len(events)) != kept+2 {
		t.Fatalf("%d events, want %d and a gap before the last of them and after it", len(events), kept)
	}
	if e := events[kept-2]; e.Seq != kept-1 {
		t.Errorf("last before the gap: %d", e.Seq)
	}
	for i, want := range map[uint64]uint64{kept - 1: 2, kept + 1: 4} {
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
	if events := drain(slow); uint64(len(events)) != kept-6 || events[0].Seq != kept+7 || events[2].Kind == audit.KindGap {
		t.Errorf("%d events after that, the first %+v", len(events), events[:3])
	}
}

// What a reader that is behind holds is bounded however large events are.
func TestFeedBoundsBytes(t *testing.T) {
	var feed audit.Feed
	s := feed.Subscribe("")
	defer s.Close()
	const size, each = 100_000, 50
	const published = 100
	for i := range uint64(published) {
		events := numbered("a", i*each+1, (i+1)*each)
		for j := range events {
			events[j].Kind, events[j].Exec = audit.KindExec, &audit.Exec{Argv: []audit.Text{audit.Text(make([]byte, size))}}
		}
		feed.Publish("a", events)
	}
	held, missed := 0, uint64(0)
	for held/each+int(missed)/each < published {
		batch := next(t, s)
		if batch[0].Kind == audit.KindGap {
			missed += batch[0].Gap.Events
			continue
		}
		held += len(batch)
	}
	if got := held * size; got > audit.SubscriptionBytes || got < audit.SubscriptionBytes*3/4 || held+int(missed) != published*each {
		t.Errorf("%d bytes were kept, of at most %d; %d events are missing", got, audit.SubscriptionBytes, missed)
	}
}

// Every kind of event counts with the text that the code chose.
func TestMemory(t *testing.T) {
	const much = 100_000
	long := audit.Text(make([]byte, much))
	for name, e := range map[string]audit.Event{
		"process": {Process: &audit.Process{Argv: []audit.Text{long}}},
		"open":    {Open: &audit.Open{Path: long}},
		"exec":    {Exec: &audit.Exec{Env: []audit.Text{long}}},
		"net":     {Net: &audit.Network{Name: long}},
		"change":  {Change: &audit.Change{Target: long}},
		"query":   {Query: &audit.Query{Name: long}},
		"flow":    {Flow: &audit.Flow{Claimed: long}},
		"scrub":   {Scrub: &audit.Scrub{Name: long}},
		"start":   {Start: &audit.Request{Argv: []audit.Text{long}}},
		"end":     {End: &audit.End{Inputs: []audit.InputFile{{Name: long}}}},
	} {
		if n := audit.Memory([]audit.Event{e}); n < much || n > much+2000 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

func TestFeedTakesBatchOfAnySize(t *testing.T) {
	var feed audit.Feed
	s := feed.Subscribe("a")
	defer s.Close()
	feed.Publish("a", numbered("a", 1, 200_000))
	feed.Publish("a", numbered("a", 200_001, 200_002))
	if batch := next(t, s); len(batch) != 200_000 {
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
