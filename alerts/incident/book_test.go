package incident

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proctor/audit"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stage has a book, a clock and runs.
type stage struct {
	t  *testing.T
	b  *Book
	at time.Time
	n  int
}

func newStage(t *testing.T, o Options) *stage {
	t.Helper()
	b, err := NewBook(o)
	if err != nil {
		t.Fatal(err)
	}
	return &stage{t: t, b: b, at: begin}
}

func (s *stage) run(uid uint32, agent string) string {
	s.n++
	id := fmt.Sprint("run-", s.n)
	s.b.Observe(&audit.Event{Run: id, Time: s.at, Kind: audit.KindStart, Start: &audit.Request{
		Caller: audit.Caller{UID: uid}, Agent: audit.Text(agent), Image: audit.ImageRef{Name: "shell"}, Profile: "offline", Code: audit.CodeRef{SHA256: "abc"},
	}})
	return id
}

func (s *stage) tries(run, name string, n int) {
	for range n {
		s.b.Observe(&audit.Event{Run: run, Time: s.at, Kind: audit.KindQuery, Query: &audit.Query{Name: audit.Text(name), Decision: audit.Blocked},
			Process: &audit.Process{Comm: "curl", Argv: []audit.Text{"curl", audit.Text(name)}}})
	}
}

func (s *stage) alarm(rule, subject, run string) *Incident {
	s.t.Helper()
	return s.get(s.b.Raise(Alarm{Time: s.at, Rule: rule, Subject: audit.Text(subject), Severity: Warning, Text: "too many", Run: run}))
}

func (s *stage) get(id string) *Incident {
	s.t.Helper()
	i := s.b.Get(id)
	if i == nil {
		s.t.Fatalf("there is no incident %q", id)
	}
	return i
}

// What a run tried before its alarm is in the incident, and what it tries after.
func TestIncidentHasWhatWasTried(t *testing.T) {
	s := newStage(t, Options{Code: func(run string) audit.Text { return audit.Text("code of " + run) }})
	run := s.run(4294967294, "an agent")
	s.tries(run, "a.example", 20)
	s.tries(run, "b.example", 5)
	s.alarm("spike.run", run, run)
	s.b.Complete()
	i := s.b.List()[0]
	if i.Attempts != 25 || len(i.Destinations) != 2 || i.Destinations[0] != (Tally{"a.example", 20}) {
		t.Errorf("%d attempts at %v", i.Attempts, i.Destinations)
	}
	want := Run{Run: run, Caller: "4294967294", Agent: "an agent", Image: "shell", Profile: "offline", CodeSHA256: "abc", Code: audit.Text("code of " + run), Attempts: 25}
	if len(i.Runs) != 1 || i.Runs[0] != want {
		t.Errorf("runs %+v, want %+v", i.Runs, want)
	}
	if len(i.Processes) != 1 || i.Processes[0].Name != "curl a.example" {
		t.Errorf("processes %v", i.Processes)
	}
	before := i.Revision
	s.tries(run, "b.example", 100)
	i = s.get(i.ID)
	if i.Attempts != 125 || i.Destinations[0] != (Tally{"b.example", 105}) || i.Revision == before {
		t.Errorf("later %d attempts at %v, revision %d after %d", i.Attempts, i.Destinations, i.Revision, before)
	}
}

// One attack raises alarms of many kinds: they are one incident. Another caller's is another.
func TestWhatBelongsTogether(t *testing.T) {
	s := newStage(t, Options{})
	run := s.run(1, "x")
	s.tries(run, "a.example", 3)
	first := s.alarm("spike.run", run, run)
	for _, rule := range []string{"spike.caller", "spike.destination", "sign.metadata"} {
		if i := s.alarm(rule, "subject of "+rule, run); i.ID != first.ID {
			t.Errorf("%s made another incident", rule)
		}
	}
	// The same caller's next run, at the same destination.
	again := s.run(1, "x")
	s.tries(again, "a.example", 3)
	if i := s.alarm("spike.run", again, again); i.ID != first.ID || i.RunCount() != 2 || len(i.Alarms) != 5 {
		t.Errorf("the same again: %+v", i)
	}
	// The same series, by whoever.
	stranger := s.run(2, "y")
	s.tries(stranger, "c.example", 3)
	if i := s.alarm("spike.destination", "subject of spike.destination", stranger); i.ID != first.ID {
		t.Error("the same destination made another incident")
	}
	for name, other := range map[string]string{"caller": s.run(3, "x"), "agent": s.run(1, "z"), "destination": s.run(1, "x")} {
		s.tries(other, map[bool]string{true: "elsewhere.example", false: "a.example"}[name == "destination"], 3)
		if i := s.alarm("spike.run", other, other); i.ID == first.ID {
			t.Errorf("of another %s, and in the same incident", name)
		}
	}
}

func TestResolvedAndReopened(t *testing.T) {
	s := newStage(t, Options{Quiet: time.Minute, Reopen: time.Hour})
	run := s.run(1, "")
	id := s.alarm("spike.caller", "1", run).ID
	for _, step := range []struct {
		after time.Duration
		state State
	}{{59 * time.Second, Open}, {time.Second, Resolved}} {
		s.at = s.at.Add(step.after)
		s.b.Tick(s.at)
		if i := s.get(id); i.State != step.state {
			t.Errorf("after %s: %s", step.after, i.State)
		}
	}
	// Attempts of the run that it was about are no news of their own.
	s.tries(run, "a.example", 1)
	if i := s.get(id); i.State != Resolved {
		t.Error("an attempt opened it")
	}
	s.at = s.at.Add(59 * time.Minute)
	other := s.run(1, "")
	if i := s.alarm("spike.caller", "1", other); i.ID != id || i.State != Open || i.Reopened != 1 || !i.Resolved.IsZero() {
		t.Errorf("not reopened: %+v", i)
	}
	s.at = s.at.Add(time.Minute)
	s.b.Tick(s.at)
	s.at = s.at.Add(time.Hour)
	if i := s.alarm("spike.caller", "1", s.run(1, "")); i.ID == id {
		t.Error("reopened after too long")
	}
}

func TestSilence(t *testing.T) {
	s := newStage(t, Options{})
	id, covers, err := s.b.Silence(Silence{Matches: Matcher{Caller: "7"}, Begin: s.at, End: s.at.Add(time.Minute), Reason: "r", By: "me"})
	if err != nil || covers != 0 {
		t.Fatal(covers, err)
	}
	mine, other := s.run(7, ""), s.run(8, "")
	i := s.alarm("spike.run", mine, mine)
	if i.Silence != id || i.Suppressed != 1 {
		t.Errorf("not silenced: %+v", i)
	}
	if o := s.alarm("spike.run", other, other); o.Silence != "" {
		t.Errorf("another's is silenced: %+v", o)
	}
	s.at = s.at.Add(time.Minute)
	s.b.Tick(s.at)
	if now := s.get(i.ID); now.Silence != "" || now.Material == i.Material {
		t.Errorf("still silenced after its end: %+v", now)
	}
	if err := s.b.Expire(id[:6], s.at); err != nil {
		t.Error(err)
	}
	if err := s.b.Expire("nothing", s.at); err == nil {
		t.Error("a silence that there is not could be ended")
	}
}

func TestMatcher(t *testing.T) {
	i := &Incident{
		ID: "abc", Alarms: []Alarm{{Rule: "spike.run"}, {Rule: "sign.metadata"}}, Destinations: []Tally{{Name: "x.evil.example"}, {Name: "192.0.2.1"}},
		Parties: []Party{{Caller: "1000 (ann)", Agent: "a", Profile: "offline", Image: "shell"}, {Caller: "1001", Agent: "b", Profile: "other", Image: "python-data"}},
	}
	for _, test := range []struct {
		m    Matcher
		fits bool
	}{
		{Matcher{}, true}, {Matcher{Incident: "abc"}, true}, {Matcher{Incident: "ab"}, false},
		{Matcher{Caller: "1000"}, true}, {Matcher{Caller: "ann"}, true}, {Matcher{Caller: "an"}, false}, {Matcher{Caller: "1001"}, true},
		{Matcher{Caller: "ann", Agent: "b"}, false}, {Matcher{Caller: "ann", Agent: "a", Profile: "offline", Image: "shell"}, true},
		{Matcher{Rule: "spike.run"}, true}, {Matcher{Rule: "sign"}, true}, {Matcher{Rule: "sig"}, false}, {Matcher{Rule: "sign.tunnel"}, false},
		{Matcher{Destination: "evil.example"}, true}, {Matcher{Destination: "EVIL.example."}, true}, {Matcher{Destination: "vil.example"}, false}, {Matcher{Destination: "192.0.2.1"}, true},
		{Matcher{Destination: "evil.example", Caller: "nobody"}, false},
	} {
		if got := test.m.Match(i); got != test.fits {
			t.Errorf("%+v: %v", test.m, got)
		}
	}
}

// One caller can't fill the book: what is too much becomes one incident.
func TestStorm(t *testing.T) {
	s := newStage(t, Options{})
	seen := map[string]bool{}
	for n := range 200 {
		run := s.run(1, "")
		s.tries(run, fmt.Sprintf("d%d.example", n), 1)
		seen[s.alarm("spike.run", run, run).ID] = true
	}
	if len(seen) != maxOpenOfCaller+1 {
		t.Errorf("%d incidents of 200 runs", len(seen))
	}
	storm := slices.IndexFunc(s.b.List(), func(i *Incident) bool { return i.Storm })
	if storm < 0 {
		t.Fatal("none is of all others")
	}
	if i := s.b.List()[storm]; i.RunCount() != 200-maxOpenOfCaller || len(i.Runs) > maxRuns || i.Severity != Critical || !strings.Contains(string(i.Title()), "caller 1") {
		t.Errorf("it has %d runs, %d by name, is %s: %s", i.RunCount(), len(i.Runs), i.Severity, i.Title())
	}
	// Somebody else's is his own.
	other := s.run(2, "")
	s.tries(other, "mine.example", 1)
	if i := s.alarm("spike.run", other, other); i.Storm {
		t.Error("another caller's incident is in the storm")
	}
}

// What is remembered of one incident is bounded, and nothing is left out of the count.
func TestBounds(t *testing.T) {
	s := newStage(t, Options{})
	run := s.run(1, strings.Repeat("a", 10_000))
	i := s.alarm("spike.run", run, run)
	for n := range 1000 {
		s.tries(run, fmt.Sprintf("%d.d%d.example", n, n%300), 1)
		s.alarm(fmt.Sprint("rule", n), strings.Repeat("b", 10_000), run)
	}
	i = s.get(i.ID)
	sum := i.Elsewhere
	for _, d := range i.Destinations {
		sum += d.Count
	}
	if sum != 1000 || i.Attempts != 1000 || len(i.Destinations) > 2*maxDestinations || len(i.Alarms) != maxAlarms || i.OtherAlarms != 1001-maxAlarms || len(i.Runs[0].Agent) > 300 {
		t.Errorf("%d counted of %d; %d destinations, %d alarms, %d more", sum, i.Attempts, len(i.Destinations), len(i.Alarms), i.OtherAlarms)
	}
}

// Of runs that ended nothing is remembered but what their incident says, however many there were.
func TestEndedRunsAreForgotten(t *testing.T) {
	s := newStage(t, Options{})
	for range 1000 {
		run := s.run(1, "")
		s.tries(run, "a.example", 1)
		s.alarm("spike.caller", "1", run)
		s.b.Ended(run, s.at)
	}
	list := s.b.List()
	if len(list) != 1 || list[0].RunCount() != 1000 || list[0].Attempts != 1000 {
		t.Fatalf("%d incidents, of %d runs, %d attempts", len(list), list[0].RunCount(), list[0].Attempts)
	}
	if i := s.b.all[list[0].ID]; len(i.runs) != 0 || len(s.b.open) != 0 || s.b.runs.Len() != 0 {
		t.Errorf("remembered: %d, %d, %d", len(i.runs), len(s.b.open), s.b.runs.Len())
	}
}

func TestDestinationNames(t *testing.T) {
	for _, test := range []struct {
		e    audit.Event
		want audit.Text
	}{
		{audit.Event{Query: &audit.Query{Name: "a.example"}}, "a.example"},
		{audit.Event{Net: &audit.Network{Host: "b.example", Address: netip.MustParseAddr("192.0.2.1")}}, "b.example"},
		{audit.Event{Net: &audit.Network{Address: netip.MustParseAddr("::ffff:192.0.2.1")}}, "192.0.2.1"},
		{audit.Event{Flow: &audit.Flow{Claimed: "c.example"}}, "c.example"},
		{audit.Event{Net: &audit.Network{}}, "no address"},
	} {
		if got := destination(&test.e); got != test.want {
			t.Errorf("%+v: %q", test.e, got)
		}
	}
}
