package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/audit"
)

// A filter is a sink with something before it that does not let some texts through.
type filter struct {
	answer error

	mu    sync.Mutex
	taken []*sink.Notice
	tries int
}

const poison = "UNION SELECT"

func (f *filter) Traits() sink.Traits { return sink.Traits{} }

func (f *filter) Send(_ context.Context, n *sink.Notice) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	for _, i := range append([]*incident.Incident{n.Incident}, n.CatchUp...) {
		if body, err := json.Marshal(i); err != nil || strings.Contains(string(body), poison) {
			return nil, f.answer
		}
	}
	f.taken = append(f.taken, n)
	return nil, nil
}

func (f *filter) took(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.taken, func(n *sink.Notice) bool { return n.Incident.ID == id })
}

// Words that code chose, and that keep its incident from being told somewhere, keep no other from it;
// and that there is this one is told, too.
func TestPoison(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{sink.Errorf(sink.Refused, "answered 403"), sink.Errorf(sink.Unknown, "answered 500"), sink.Errorf(sink.Unfit, "invalid_blocks")} {
		t.Run(answer.Error(), func(t *testing.T) {
			t.Parallel()
			f := &filter{answer: answer}
			book, err := incident.NewBook(incident.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var broken []string
			box := New(Options{
				Book: book, Routes: []Route{{Name: "s", Sink: f}}, Log: slog.New(slog.DiscardHandler),
				Broken: func(name string, err error) { mu.Lock(); defer mu.Unlock(); broken = append(broken, name) },
			})
			box.Start(t.Context())
			defer box.Stop()
			raise := func(uid uint32, text string) string {
				run := fmt.Sprint("run-", uid)
				book.Observe(&audit.Event{Run: run, Time: time.Now(), Kind: audit.KindStart, Start: &audit.Request{Caller: audit.Caller{UID: uid}, Agent: audit.Text(text)}})
				return book.Raise(incident.Alarm{Time: time.Now(), Rule: "sign.metadata", Subject: audit.Text(run), Text: audit.Text(text), Severity: incident.Critical, Run: run})
			}
			bad := raise(1, poison)
			good := raise(2, "fine")
			eventually(t, "another is told", func() bool { return f.took(good) })
			later := raise(3, "fine")
			eventually(t, "a later one is told", func() bool { return f.took(later) })
			eventually(t, "that there is this one", func() bool { return f.took(bad) })
			mu.Lock()
			defer mu.Unlock()
			if len(broken) != 0 || f.tries > 10 {
				t.Errorf("taken for a sink that refuses: %v, after %d tries", broken, f.tries)
			}
		})
	}
}

// Without another to compare with, a message that is refused is tried without the code's words.
func TestPoisonAlone(t *testing.T) {
	t.Parallel()
	f := &filter{answer: sink.Errorf(sink.Refused, "answered 403")}
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	box := New(Options{Book: book, Routes: []Route{{Name: "s", Sink: f}}, Log: slog.New(slog.DiscardHandler), Broken: func(string, error) { t.Error("taken for a sink that refuses") }})
	box.Start(t.Context())
	defer box.Stop()
	id := book.Raise(incident.Alarm{Time: time.Now(), Rule: "sign.metadata", Subject: "x", Text: poison})
	eventually(t, "that there is one", func() bool { return f.took(id) })
}

// What was over before a sink was in reach is told all the same, also by the next supervisor; what was
// over before there was this sink is not.
func TestOverBeforeTold(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{down}}
	book, err := incident.NewBook(incident.Options{Quiet: time.Minute, Sinks: []string{"sink0"}})
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, book: book}
	st.start(s)
	ids := []string{st.alarm(), st.alarm()}
	eventually(t, "tried", func() bool { return len(s.all()) > 0 })
	book.Tick(time.Now().Add(time.Hour))
	st.box.Stop()
	next, other := &script{}, &script{}
	st.start(next, other)
	eventually(t, "told by the next", func() bool { return len(next.all()) == len(ids) })
	time.Sleep(1200 * time.Millisecond)
	if got := other.all(); len(got) != 0 {
		t.Errorf("a sink that was not there was told %+v", got)
	}
}

// That a sink refuses is told elsewhere; a later alarm of a critical kind is told wherever nothing is
// edited in place, too, and at once.
func TestWhatIsLoud(t *testing.T) {
	t.Parallel()
	posts, edits := &script{}, &script{traits: sink.Traits{Edits: true}}
	st := newStage(t, posts, edits)
	st.book.Raise(incident.Alarm{Time: time.Now(), Rule: incident.RefusedRule, Subject: "sink0", Severity: incident.Critical, Text: "refuses"})
	eventually(t, "the other is told", func() bool { return len(edits.all()) == 1 })
	run := "run-1"
	alarm := func(rule string, severity incident.Severity) {
		st.book.Raise(incident.Alarm{Time: time.Now(), Rule: rule, Subject: audit.Text(run), Severity: severity, Text: "x", Run: run})
	}
	alarm("sign.tunnel", incident.Critical)
	eventually(t, "both are told", func() bool { return len(posts.all()) == 1 && len(edits.all()) == 2 })
	alarm("sign.scrubbed", incident.Critical)
	eventually(t, "both are told of the next", func() bool { return len(posts.all()) == 2 && len(edits.all()) == 3 })
	if e := edits.all()[2]; !e.loud || e.what != sink.Updated {
		t.Errorf("%+v", e)
	}
	alarm("sign.scrubbed", incident.Critical)
	alarm("spike.run", incident.Warning)
	time.Sleep(1500 * time.Millisecond)
	if n := len(posts.all()); n != 2 {
		t.Errorf("%d posts", n)
	}
}

// A sink that worked again a moment ago, as a test found, hears in one message of what it missed.
func TestDigestAfterTest(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{down}}
	st := newStage(t, s)
	for range 10 {
		st.alarm()
	}
	w := st.box.workers[0]
	eventually(t, "an outage", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return !w.health.Failing.IsZero() })
	w.mu.Lock()
	w.health.Failing = time.Now().Add(-time.Minute)
	w.mu.Unlock()
	s.answer(nil)
	if err := st.box.Test(t.Context(), "sink0"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all told", func() bool { return st.box.Health()[0].Waiting == 0 })
	if all := s.all(); all[len(all)-1].catchUp != 10 {
		t.Errorf("%+v", all[len(all)-1])
	}
}

// crash is a sink with a mistake.
type crash struct{}

func (crash) Traits() sink.Traits { return sink.Traits{} }
func (crash) Send(context.Context, *sink.Notice) (json.RawMessage, error) {
	panic("a mistake")
}

func TestPanic(t *testing.T) {
	t.Parallel()
	s := &script{}
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	box := New(Options{Book: book, Routes: []Route{{Name: "bad", Sink: crash{}}, {Name: "good", Sink: s}}, Log: slog.New(slog.DiscardHandler)})
	box.Start(t.Context())
	defer box.Stop()
	book.Raise(incident.Alarm{Time: time.Now(), Rule: "a", Subject: "1"})
	eventually(t, "the other is told", func() bool { return len(s.all()) == 1 })
	eventually(t, "it is known", func() bool { return strings.Contains(box.Health()[0].Error, "a mistake") })
	if err := box.Test(t.Context(), "bad"); err == nil || !strings.Contains(err.Error(), "a mistake") {
		t.Errorf("a test of it: %v", err)
	}
}

// A sink for some callers' runs hears nothing of others'.
func TestOnly(t *testing.T) {
	t.Parallel()
	s := &filter{}
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	box := New(Options{Book: book, Log: slog.New(slog.DiscardHandler), Routes: []Route{{Name: "s", Sink: s, Only: func(r incident.Run) bool { return r.Caller == "4294967294" }}}})
	for _, uid := range []uint32{4294967293, 4294967294} {
		run := fmt.Sprint("run-", uid)
		book.Observe(&audit.Event{Run: run, Time: time.Now(), Kind: audit.KindStart, Start: &audit.Request{Caller: audit.Caller{UID: uid}, Agent: audit.Text("agent of " + run)}})
		book.Observe(&audit.Event{Run: run, Time: time.Now(), Kind: audit.KindQuery, Query: &audit.Query{Name: audit.Text(run + ".example"), Decision: audit.Blocked}})
		book.Raise(incident.Alarm{Time: time.Now(), Rule: "spike.destination", Subject: "evil.example", Text: "60 at evil.example", Run: run})
	}
	box.Start(t.Context())
	defer box.Stop()
	eventually(t, "told", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.taken) == 1 })
	body, err := json.Marshal(s.taken[0].Incident)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(body); strings.Contains(text, "4294967293") || !strings.Contains(text, "agent of run-4294967294") || strings.Contains(text, "evil.example") {
		t.Errorf("told %s", text)
	}
}

// What one of many lost is not lost of all.
func TestDigestIsWhole(t *testing.T) {
	t.Parallel()
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := book.Raise(incident.Alarm{Time: time.Now(), Rule: "a", Subject: "1", Text: "what it is"})
	w := New(Options{Book: book, Routes: []Route{{Name: "s", Sink: &script{}}}, Log: slog.New(slog.DiscardHandler)}).workers[0]
	w.tries[id] = &try{fails: 1, probe: true}
	i := book.Get(id)
	if got := w.shown(&sink.Notice{Incident: i}).Incident.Title(); got == "what it is" {
		t.Errorf("alone: %s", got)
	}
	if got := w.shown(&sink.Notice{Incident: i, CatchUp: []*incident.Incident{i}}).CatchUp[0].Title(); got != "what it is" {
		t.Errorf("among many: %s", got)
	}
}
