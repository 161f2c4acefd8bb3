package outbox

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/audit"
)

// A sink that takes nothing, whatever is left out, is one that refuses.
func TestNothingFits(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{sink.Errorf(sink.Unfit, "answered 400")}}
	heard := make(chan string, 10)
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	box := New(Options{Book: book, Routes: []Route{{Name: "s", Sink: s}}, Log: slog.New(slog.DiscardHandler), Broken: func(name string, _ error) { heard <- name }})
	box.Start(t.Context())
	defer box.Stop()
	for n := range 5 {
		book.Raise(incident.Alarm{Time: time.Now(), Rule: "a", Subject: audit.Text(rune('0' + n))})
	}
	select {
	case <-heard:
	case <-time.After(15 * time.Second):
		t.Fatal("nobody hears of it")
	}
	if h := box.Health()[0]; !h.Refused || h.Failing.IsZero() {
		t.Errorf("health %+v", h)
	}
}

// What opened again before its end could be told is told as that.
func TestReopenedUnseen(t *testing.T) {
	t.Parallel()
	posts, edits := &script{}, &script{traits: sink.Traits{Edits: true}}
	st := newStage(t, posts, edits)
	now := time.Now()
	raise := func(at time.Time) {
		st.book.Raise(incident.Alarm{Time: at, Rule: "spike.caller", Subject: "1", Text: "x"})
	}
	raise(now)
	eventually(t, "both are told", func() bool { return len(posts.all()) == 1 && len(edits.all()) == 1 })
	posts.answer(down)
	edits.answer(down)
	st.book.Tick(now.Add(2 * time.Hour))
	eventually(t, "its end is tried", func() bool { return len(posts.all()) > 1 && len(edits.all()) > 1 })
	raise(now.Add(2 * time.Hour))
	posts.answer(nil)
	edits.answer(nil)
	eventually(t, "both are told that it is open again", func() bool {
		p, e := posts.all(), edits.all()
		return p[len(p)-1].what == sink.Reopened && p[len(p)-1].took && e[len(e)-1].what == sink.Reopened && e[len(e)-1].loud && e[len(e)-1].took
	})
}

// What an earlier supervisor gave up is tried once more when the sink takes something; and if there is
// news of it.
func TestParkedOverRestart(t *testing.T) {
	t.Parallel()
	s := &script{}
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := book.Raise(incident.Alarm{Time: time.Now(), Rule: "sign.tunnel", Subject: "r", Severity: incident.Critical, Text: "x", Run: "r"})
	book.Deliver(id, "sink0", func(d *incident.Delivery) { d.Unknown, d.Parked, d.GaveUp = maxTries, true, 1 })
	st := &stage{t: t, book: book}
	s.answer(broken)
	st.start(s)
	time.Sleep(1200 * time.Millisecond)
	if got := s.all(); len(got) != 0 {
		t.Fatalf("told %+v", got)
	}
	book.Raise(incident.Alarm{Time: time.Now(), Rule: "sign.scrubbed", Subject: "r", Severity: incident.Critical, Text: "x", Run: "r"})
	eventually(t, "the news is tried", func() bool { return len(s.all()) == 1 })
	for range 3 {
		st.box.workers[0].pass()
		time.Sleep(1200 * time.Millisecond)
	}
	if got := s.all(); len(got) != 1 || !book.Get(id).Deliveries["sink0"].Parked {
		t.Fatalf("tried %+v", got)
	}
	s.answer(nil)
	st.box.workers[0].pass()
	other := st.alarm()
	eventually(t, "both are told", func() bool {
		return book.Get(id).Deliveries["sink0"].State == incident.Open && book.Get(other).Deliveries["sink0"] != nil
	})
}

// A silence of an alarm keeps nothing else of its incident from being told, though that is over by then;
// what was silenced to its end is not told, but its end is to who knew of it.
func TestSilencedToItsEnd(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{down}}
	book, err := incident.NewBook(incident.Options{Quiet: time.Minute, Sinks: []string{"sink0"}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, _, err := book.Silence(incident.Silence{Matches: incident.Matcher{Rule: "spike"}, Begin: now.Add(-time.Minute), End: now.Add(24 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	raise := func(rule, run string) string {
		return book.Raise(incident.Alarm{Time: now, Rule: rule, Subject: audit.Text(run), Severity: incident.Warning, Text: "x", Run: run})
	}
	both, silenced := raise("spike.run", "a"), raise("spike.run", "b")
	if id := raise("sign.escape", "a"); id != both {
		t.Fatal("another incident")
	}
	book.Tick(now.Add(time.Hour))
	st := &stage{t: t, book: book}
	st.start(s)
	s.answer(nil)
	eventually(t, "what was not silenced", func() bool { d := book.Get(both).Deliveries["sink0"]; return d != nil && d.State != "" })
	book.Tick(now.Add(48 * time.Hour))
	time.Sleep(1200 * time.Millisecond)
	for _, one := range s.all() {
		if one.id == silenced {
			t.Errorf("told %+v", one)
		}
	}
}

// Who had no part in what is over does not hear of it when he wants to hear of more.
func TestWiderRoute(t *testing.T) {
	t.Parallel()
	var wide bool
	wants := func(string, *incident.Incident) bool { return wide }
	book, err := incident.NewBook(incident.Options{Quiet: time.Minute, Sinks: []string{"s"}, Wants: wants})
	if err != nil {
		t.Fatal(err)
	}
	book.Raise(incident.Alarm{Time: time.Now(), Rule: "a", Subject: "1", Text: "x"})
	book.Tick(time.Now().Add(time.Hour))
	wide = true
	s := &script{}
	st := &stage{t: t, book: book}
	st.start(s)
	time.Sleep(1200 * time.Millisecond)
	if got := s.all(); len(got) != 0 {
		t.Errorf("told %+v", got)
	}
}

// A pager is told to page of what is over before it could, and is not told of its end at the same moment.
func TestPagerToldLate(t *testing.T) {
	t.Parallel()
	s := &script{answers: []error{down}, traits: sink.Traits{Edits: true, Once: true}}
	book, err := incident.NewBook(incident.Options{Quiet: time.Minute, Sinks: []string{"sink0"}})
	if err != nil {
		t.Fatal(err)
	}
	id := book.Raise(incident.Alarm{Time: time.Now().Add(-time.Hour), Rule: "a", Subject: "1", Text: "x"})
	book.Tick(time.Now())
	st := &stage{t: t, book: book}
	s.answer(nil)
	st.start(s)
	eventually(t, "told", func() bool { return len(s.all()) == 1 })
	time.Sleep(1200 * time.Millisecond)
	if got := s.all(); len(got) != 1 || got[0].what != sink.Opened {
		t.Errorf("told %+v", got)
	}
	if w, when := st.box.workers[0].due(book.Get(id), time.Now(), false); w != "" || time.Until(when) < 4*time.Minute {
		t.Errorf("its end is told as %q at %v", w, when)
	}
	if w, _ := st.box.workers[0].due(book.Get(id), time.Now().Add(lateEnd), false); w != sink.Resolved {
		t.Errorf("its end is told as %q", w)
	}
}

// Every message has the code, however slow the disk is and whoever looks first.
func TestCodeIsThere(t *testing.T) {
	t.Parallel()
	book, err := incident.NewBook(incident.Options{Code: func(run string) audit.Text {
		time.Sleep(5 * time.Millisecond)
		return audit.Text("code of " + run)
	}})
	if err != nil {
		t.Fatal(err)
	}
	sinks := []*filter{{}, {}, {}}
	var routes []Route
	for n, s := range sinks {
		routes = append(routes, Route{Name: string(rune('a' + n)), Sink: s})
	}
	box := New(Options{Book: book, Routes: routes, Log: slog.New(slog.DiscardHandler)})
	box.Start(t.Context())
	defer box.Stop()
	const many = 50
	for n := range many {
		run := "run-" + strings.Repeat("x", n)
		book.Observe(&audit.Event{Run: run, Time: time.Now(), Kind: audit.KindStart, Start: &audit.Request{Caller: audit.Caller{UID: uint32(n)}}})
		book.Raise(incident.Alarm{Time: time.Now(), Rule: "spike.run", Subject: audit.Text(run), Text: "x", Run: run})
		time.Sleep(time.Millisecond)
	}
	for _, s := range sinks {
		eventually(t, "all are told", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.taken) >= many })
		for _, n := range s.taken {
			if len(n.CatchUp) == 0 && n.Incident.Leading().Code == "" {
				t.Errorf("no code of %s", n.Incident.Leading().Run)
			}
		}
	}
}
