package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/audit"
)

// script is a sink that answers as it is told, the last answer again and again.
type script struct {
	traits sink.Traits

	mu      sync.Mutex
	answers []error
	told    []told
	hang    chan struct{}
}

type told struct {
	at      time.Time
	what    sink.What
	id      string
	ref     string
	loud    bool
	catchUp int
	took    bool
}

func (s *script) Traits() sink.Traits { return s.traits }

func (s *script) Send(ctx context.Context, n *sink.Notice) (json.RawMessage, error) {
	s.mu.Lock()
	var err error
	if len(s.answers) > 0 {
		err = s.answers[0]
		if len(s.answers) > 1 {
			s.answers = s.answers[1:]
		}
	}
	s.told = append(s.told, told{time.Now(), n.What, n.Incident.ID, string(n.Ref), n.Loud, len(n.CatchUp), err == nil})
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return json.RawMessage(fmt.Sprintf("%q", n.Incident.ID)), nil
}

func (s *script) all() []told {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

func (s *script) answer(errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = errs
}

type stage struct {
	t    *testing.T
	book *incident.Book
	box  *Outbox
	n    int
}

func newStage(t *testing.T, sinks ...*script) *stage {
	t.Helper()
	book, err := incident.NewBook(incident.Options{Quiet: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, book: book}
	s.start(sinks...)
	return s
}

func (s *stage) start(sinks ...*script) {
	var routes []Route
	for n, one := range sinks {
		routes = append(routes, Route{Name: fmt.Sprint("sink", n), Sink: one})
	}
	s.box = New(Options{Book: s.book, Routes: routes, Log: slog.New(slog.DiscardHandler)})
	s.box.Start(context.Background())
	s.t.Cleanup(s.box.Stop)
}

// alarm opens an incident of its own.
func (s *stage) alarm() string {
	s.n++
	run := fmt.Sprint("run-", s.n)
	s.book.Observe(&audit.Event{Run: run, Time: time.Now(), Kind: audit.KindStart, Start: &audit.Request{Caller: audit.Caller{UID: uint32(s.n)}}})
	return s.book.Raise(incident.Alarm{Time: time.Now(), Rule: "spike.run", Subject: audit.Text(run), Text: "many", Run: run})
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

var (
	down    = sink.Errorf(sink.NotSent, "connection refused")
	broken  = sink.Errorf(sink.Unknown, "answered 500")
	refuses = sink.Errorf(sink.Refused, "invalid_auth")
)

func TestToldOnce(t *testing.T) {
	t.Parallel()
	s := &script{}
	st := newStage(t, s)
	id := st.alarm()
	eventually(t, "told", func() bool { return len(s.all()) > 0 })
	time.Sleep(1500 * time.Millisecond)
	if all := s.all(); len(all) != 1 || all[0].what != sink.Opened || all[0].id != id || !all[0].loud || all[0].ref != "" {
		t.Errorf("told %+v", all)
	}
	if h := st.box.Health(); len(h) != 1 || h[0].Waiting != 0 || h[0].Sent != 1 || h[0].Failures != 0 {
		t.Errorf("health %+v", h)
	}
}

// What can't have been seen is told until it is; a sink that hangs holds up no other.
func TestRetries(t *testing.T) {
	t.Parallel()
	s, stuck, well := &script{answers: []error{down, down, nil}}, &script{hang: make(chan struct{})}, &script{}
	defer close(stuck.hang)
	st := newStage(t, s, stuck, well)
	id := st.alarm()
	eventually(t, "told after two refusals", func() bool { all := s.all(); return len(all) == 3 && all[2].took })
	if all := s.all(); all[1].at.Sub(all[0].at) < firstRetry || all[2].at.Sub(all[1].at) < 2*firstRetry {
		t.Errorf("tried too soon: %+v", all)
	}
	if len(well.all()) != 1 || len(stuck.all()) != 1 {
		t.Error("a sink waited for another")
	}
	eventually(t, "noted", func() bool { d := st.book.Get(id).Deliveries["sink0"]; return d != nil && d.State == incident.Open })
	if d := st.book.Get(id).Deliveries["sink0"]; d.Unknown != 0 || d.Error != "" {
		t.Errorf("delivery %+v", d)
	}
}

// A sink may say how long it wants to be left alone.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	limited := sink.Errorf(sink.Unknown, "answered 429")
	limited.RetryAfter = 3 * time.Second
	s := &script{answers: []error{limited, nil}}
	st := newStage(t, s)
	st.alarm()
	eventually(t, "told", func() bool { return len(s.all()) == 2 })
	if all := s.all(); all[1].at.Sub(all[0].at) < limited.RetryAfter {
		t.Errorf("again after %s", all[1].at.Sub(all[0].at))
	}
}

// pass has the time come for whatever waits.
func (w *worker) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = time.Time{}
	for _, t := range w.tries {
		t.next = time.Time{}
	}
}

// What may have been seen is not told for ever, and once more when the sink works.
func TestUnknownIsBounded(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{broken}}
	st := newStage(t, s)
	id := st.alarm()
	w := st.box.workers[0]
	for n := 1; n <= maxTries; n++ {
		eventually(t, fmt.Sprint("try ", n), func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.fails == n })
		w.mu.Lock()
		if wait := time.Until(w.next); wait < time.Second {
			t.Errorf("try %d after %s", n+1, wait)
		}
		w.mu.Unlock()
		w.pass()
		w.poke()
	}
	eventually(t, "parked", func() bool { return st.book.Get(id).Deliveries["sink0"].Parked })
	time.Sleep(1200 * time.Millisecond)
	if n := len(s.all()); n != maxTries {
		t.Errorf("%d tries", n)
	}
	s.answer(nil)
	other := st.alarm()
	eventually(t, "the other and the one that was given up", func() bool {
		return st.book.Get(id).Deliveries["sink0"].State == incident.Open && st.book.Get(other).Deliveries["sink0"] != nil
	})
}

// A sink that refuses is left alone, and somebody hears of it; a test that gets through mends it.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{refuses}}
	heard := make(chan string, 10)
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, book: book}
	st.box = New(Options{Book: book, Routes: []Route{{Name: "sink0", Sink: s}}, Log: slog.New(slog.DiscardHandler), Broken: func(name string, err error) { heard <- name + ": " + err.Error() }})
	st.box.Start(context.Background())
	defer st.box.Stop()
	id := st.alarm()
	if got := <-heard; got != "sink0: invalid_auth" {
		t.Errorf("heard %q", got)
	}
	st.alarm()
	time.Sleep(1500 * time.Millisecond)
	if n := len(s.all()); n != 2 || len(heard) != 0 {
		t.Errorf("%d tries, heard %d times more", n, len(heard))
	}
	if h := st.box.Health()[0]; !h.Refused || h.Waiting != 2 || h.Error != "invalid_auth" {
		t.Errorf("health %+v", h)
	}
	if err := st.box.Test(t.Context(), "sink0"); !errors.Is(err, refuses) {
		t.Errorf("test: %v", err)
	}
	s.answer(nil)
	if err := st.box.Test(t.Context(), "sink0"); err != nil {
		t.Error(err)
	}
	eventually(t, "told after it was mended", func() bool { d := book.Get(id).Deliveries["sink0"]; return d != nil && d.State == incident.Open })
	if err := st.box.Test(t.Context(), "none"); err == nil {
		t.Error("a sink that there is not was tested")
	}
}

// After an outage many new incidents are one message; few are told one by one.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{down}, traits: sink.Traits{Edits: true}}
	st := newStage(t, s)
	for range 60 {
		st.alarm()
	}
	w := st.box.workers[0]
	eventually(t, "an outage", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return !w.health.Failing.IsZero() })
	w.mu.Lock()
	s.answer(nil)
	w.health.Failing = time.Now().Add(-time.Hour)
	w.mu.Unlock()
	w.pass()
	w.poke()
	eventually(t, "all told", func() bool { return st.box.Health()[0].Waiting == 0 })
	messages, of := 0, 0
	for _, one := range s.all() {
		if one.took {
			messages++
			of += max(one.catchUp, 1)
		}
	}
	if messages != 1 || of != 60 {
		t.Errorf("%d messages of %d incidents", messages, of)
	}
}

// Resolving, reopening and growing are told in their order; a sink that can't edit hears little.
func TestUpdates(t *testing.T) {
	t.Parallel()
	edits, posts := &script{traits: sink.Traits{Edits: true}}, &script{}
	st := newStage(t, edits, posts)
	id := st.alarm()
	eventually(t, "told", func() bool { return len(edits.all()) == 1 && len(posts.all()) == 1 })
	for n := range 200 {
		st.book.Observe(&audit.Event{Run: "run-1", Time: time.Now(), Kind: audit.KindQuery, Query: &audit.Query{Name: audit.Text(fmt.Sprintf("d%d.example", n)), Decision: audit.Blocked}})
	}
	eventually(t, "edited", func() bool { return len(edits.all()) == 2 })
	if e := edits.all()[1]; e.what != sink.Updated || e.ref != fmt.Sprintf("%q", id) {
		t.Errorf("%+v", e)
	}
	st.book.Tick(time.Now().Add(2 * time.Hour))
	eventually(t, "resolved", func() bool {
		e, p := edits.all(), posts.all()
		return e[len(e)-1].what == sink.Resolved && p[len(p)-1].what == sink.Resolved
	})
	if n := len(posts.all()); n != 2 {
		t.Errorf("%d posts", n)
	}
	st.book.Raise(incident.Alarm{Time: time.Now().Add(2 * time.Hour), Rule: "spike.run", Subject: "run-1", Run: "run-9", Text: "again"})
	eventually(t, "reopened", func() bool { p := posts.all(); return p[len(p)-1].what == sink.Reopened })
	for _, one := range edits.all() {
		if one.id != id {
			t.Errorf("another incident was told: %+v", one)
		}
	}
}

// What was being told when the supervisor was killed is told by the next.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	stuck := &script{hang: make(chan struct{})}
	st := newStage(t, stuck)
	id := st.alarm()
	eventually(t, "being told", func() bool { return len(stuck.all()) == 1 })
	st.box.Stop()
	if d := st.book.Get(id).Deliveries["sink0"]; d == nil || d.Unknown != 1 || d.State != "" {
		t.Errorf("what is kept: %+v", d)
	}
	next := &script{}
	st.start(next)
	eventually(t, "told", func() bool { return len(next.all()) == 1 })
}

func TestRoutesAndSilence(t *testing.T) {
	t.Parallel()
	s := &script{}
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	box := New(Options{Book: book, Log: slog.New(slog.DiscardHandler), Routes: []Route{{Name: "s", Sink: s, Wants: func(i *incident.Incident) bool { return i.Severity == incident.Critical }}}})
	box.Start(context.Background())
	defer box.Stop()
	book.Raise(incident.Alarm{Time: time.Now(), Rule: "a", Subject: "1", Severity: incident.Warning})
	id, _, err := book.Silence(incident.Silence{Matches: incident.Matcher{Rule: "b"}, Begin: time.Now(), End: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	silenced := book.Raise(incident.Alarm{Time: time.Now(), Rule: "b", Subject: "2", Severity: incident.Critical})
	told := book.Raise(incident.Alarm{Time: time.Now(), Rule: "c", Subject: "3", Severity: incident.Critical})
	eventually(t, "one told", func() bool { return len(s.all()) == 1 })
	time.Sleep(1200 * time.Millisecond)
	if all := s.all(); len(all) != 1 || all[0].id != told {
		t.Errorf("told %+v, want %s", all, told)
	}
	if err := book.Expire(id, time.Now()); err != nil {
		t.Fatal(err)
	}
	book.Tick(time.Now().Add(time.Millisecond))
	eventually(t, "told when the silence is over", func() bool { all := s.all(); return len(all) == 2 && all[1].id == silenced })
}
