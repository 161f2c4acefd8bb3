package spike

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stage has one detector and a clock.
type stage struct {
	d  *Detector
	at time.Time
	n  int
}

func newStage(rules Rules) *stage { return &stage{d: New(Options{Rules: rules}), at: begin} }

// run starts one.
func (s *stage) run(uid uint32) string {
	s.n++
	id := fmt.Sprint("run-", s.n)
	s.d.Observe(&audit.Event{Run: id, Time: s.at, Kind: audit.KindStart, Start: &audit.Request{
		Caller: audit.Caller{UID: uid}, Agent: "agent", Image: audit.ImageRef{Name: "image"}, Profile: "p",
	}})
	return id
}

// asks makes n attempts at a name.
func (s *stage) asks(run, name string, n int) (alarms []Alarm) {
	for range n {
		alarms = append(alarms, s.d.Observe(&audit.Event{Run: run, Time: s.at, Kind: audit.KindQuery, Query: &audit.Query{Name: audit.Text(name), Decision: audit.Blocked}})...)
	}
	return alarms
}

func only(by By, r Rule) Rules { return Rules{by: r} }

var minute = Rule{Threshold: 10, Window: time.Minute, Factor: 3, History: 3}

// One less than the threshold is not too many; the threshold is, once; and none after it again.
func TestThreshold(t *testing.T) {
	for _, by := range []By{ByRun, ByCaller, ByAgent, ByImage, ByDestination, ByHost} {
		s := newStage(only(by, minute))
		run := s.run(7)
		if got := s.asks(run, "a.example", 9); got != nil {
			t.Errorf("%s: alarm after 9: %+v", by, got)
		}
		got := s.asks(run, "a.example", 1)
		want := []Alarm{{
			Time: begin, By: by, Key: map[By]string{ByRun: run, ByCaller: "7", ByAgent: "agent", ByImage: "image", ByDestination: "a.example"}[by],
			Count: 10, Limit: 10, Young: true, Rule: minute, Run: run,
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", by, diff)
		}
		if got := s.asks(run, "a.example", 100); got != nil {
			t.Errorf("%s: alarms again: %+v", by, got)
		}
	}
}

// Attempts count for the window and at most one of its sixty steps more.
func TestWindow(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		alarm bool
	}{
		{0, true}, {30 * time.Second, true}, {59 * time.Second, true}, {61 * time.Second, false}, {2 * time.Minute, false}, {24 * time.Hour, false},
		{-59 * time.Second, true}, // late: it counts as if it came now
		{-time.Hour, false},       // the clock was set back
	} {
		s := newStage(only(ByRun, minute))
		run := s.run(7)
		s.asks(run, "a.example", 9)
		s.at = s.at.Add(test.after)
		if got := s.asks(run, "a.example", 1); (got != nil) != test.alarm {
			t.Errorf("the tenth after %s: %+v", test.after, got)
		}
	}
}

// A series alarms again when there were less than half of too many in between.
func TestAlarmsAgain(t *testing.T) {
	s := newStage(only(ByRun, minute))
	run := s.run(7)
	s.asks(run, "a.example", 20)
	s.at = s.at.Add(50 * time.Second)
	s.asks(run, "a.example", 6)
	s.at = s.at.Add(20 * time.Second) // the 20 are gone, the 6 are not
	if got := s.asks(run, "a.example", 10); got != nil {
		t.Errorf("it had not ended: %+v", got)
	}
	s.at = s.at.Add(2 * time.Minute)
	if got := s.asks(run, "a.example", 10); len(got) != 1 {
		t.Errorf("it had ended: %+v", got)
	}
}

// What runs always do is no alarm, however many there are; three times of it is.
func TestHistory(t *testing.T) {
	s := newStage(only(ByCaller, minute))
	for window := range 4 {
		s.at = begin.Add(time.Duration(window) * time.Minute)
		run := s.run(7)
		s.asks(run, "a.example", 5)
		s.run(7) // two runs a window, 2.5 attempts each
	}
	s.at = begin.Add(10 * time.Minute)
	for range 9 {
		run := s.run(7)
		if got := s.asks(run, "a.example", 2); got != nil {
			t.Fatalf("more work is no alarm: %+v", got)
		}
	}
	var got []Alarm
	run := s.run(7)
	for n := 18; n < 200 && got == nil; n++ {
		got = s.asks(run, "a.example", 1)
	}
	// 10 runs of 2.5 would try 25 times; no more is expected than four times the 5 of a busy window.
	if len(got) != 1 || got[0].Count != 60 || got[0].Limit != 60 || got[0].Expected != 20 || got[0].Young {
		t.Errorf("three times of it: %+v", got)
	}
}

// What many callers' runs try counts for itself alone. On a young host it is told once, and then
// only if there is twice as much of it; on one that is not, whenever there is too much.
func TestCommon(t *testing.T) {
	old := minute
	old.History = 30
	s := newStage(Rules{ByCaller: minute, ByDestination: old, ByHost: old})
	try := func(name string) (alarms []Alarm) {
		for i := range 12 {
			alarms = append(alarms, s.asks(s.run(uint32(i%3)), name, 1)...)
			s.at = s.at.Add(20 * time.Second)
		}
		return alarms
	}
	// burst is how many alarms a minute with so many attempts makes.
	burst := func(name string, n int) (alarms int) {
		for _, a := range s.asks(s.run(1), name, n) {
			if a.By != ByDestination || a.Again || a.Rule != old {
				t.Errorf("alarm of %s: %+v", name, a)
			}
			alarms++
		}
		s.at = s.at.Add(3 * time.Minute)
		s.asks(s.run(1), name, 1)
		return alarms
	}
	if got := try("noise.example"); got != nil {
		t.Errorf("it is slow: %+v", got)
	}
	for i, test := range []struct{ attempts, alarms int }{{20, 1}, {20, 0}, {38, 0}, {45, 1}, {80, 0}, {200, 1}} {
		if got := burst("noise.example", test.attempts); got != test.alarms {
			t.Errorf("young, %d: %d attempts: %d alarms", i, test.attempts, got)
		}
	}
	if got := s.asks(s.run(1), "other.example", 50); len(got) != 3 {
		t.Errorf("of what is not common: %+v", got)
	}
	for range 30 {
		s.run(1)
		s.at = s.at.Add(time.Minute)
	}
	try("news.example")
	for range 3 {
		if got := burst("news.example", 20); got != 1 {
			t.Errorf("news: %d alarms", got)
		}
	}
}

// A profile's rule holds for its runs, and for them alone.
func TestProfile(t *testing.T) {
	d := New(Options{Rules: only(ByRun, minute), Profile: func(name string) (Rule, bool) {
		return Rule{Threshold: 2, Window: time.Minute, Factor: 1, History: 1}, name == "strict"
	}})
	s := &stage{d: d, at: begin}
	run := s.run(7)
	if got := s.asks(run, "a.example", 9); got != nil {
		t.Errorf("another profile's: %+v", got)
	}
	d.Observe(&audit.Event{Run: "strict", Time: begin, Kind: audit.KindStart, Start: &audit.Request{Profile: "strict"}})
	if got := s.asks("strict", "a.example", 2); len(got) != 1 {
		t.Errorf("its own: %+v", got)
	}
	off := New(Options{Rules: only(ByRun, Rule{Off: true})})
	if got := (&stage{d: off, at: begin}).asks("r", "a.example", 1000); got != nil {
		t.Errorf("switched off: %+v", got)
	}
}

// One run can't push out what is known of others' destinations, nor a million of runs memory.
func TestBounds(t *testing.T) {
	s := newStage(Defaults())
	run := s.run(7)
	for i := range 100_000 {
		s.asks(run, fmt.Sprintf("x%d.example", i), 1)
	}
	if n := s.d.kept[ByDestination].Len(); n > maxDestinations+1 {
		t.Errorf("%d destinations of one run", n)
	}
	for i := range maxRuns + 100 {
		s.asks(fmt.Sprint("unknown-", i), fmt.Sprintf("y%d.example", i), 1)
	}
	if s.d.runs.Len() > maxRuns || s.d.kept[ByDestination].Len() > maxSeries {
		t.Errorf("%d runs, %d destinations", s.d.runs.Len(), s.d.kept[ByDestination].Len())
	}
}

func TestAttempts(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8:1:2::3")
	for name, test := range map[string]struct {
		event audit.Event
		n     uint64
		to    string
	}{
		"allowed":    {audit.Event{Net: &audit.Network{Address: v4, Decision: audit.Allowed}}, 0, ""},
		"bind":       {audit.Event{Net: &audit.Network{Address: v4}}, 0, ""},
		"address":    {audit.Event{Net: &audit.Network{Address: v4, Decision: audit.Blocked}}, 1, "192.0.2.0/24"},
		"IPv6":       {audit.Event{Net: &audit.Network{Address: v6, Decision: audit.Blocked}}, 1, "2001:db8:1::/48"},
		"mapped":     {audit.Event{Net: &audit.Network{Address: netip.MustParseAddr("::ffff:192.0.2.77"), Decision: audit.Blocked}}, 1, "192.0.2.0/24"},
		"repeated":   {audit.Event{Repeat: &audit.Repeat{Count: 400}, Net: &audit.Network{Address: v4, Decision: audit.Blocked}}, 400, "192.0.2.0/24"},
		"no address": {audit.Event{Net: &audit.Network{Name: "\x00x", Decision: audit.Blocked}}, 1, "no address"},
		"name":       {audit.Event{Query: &audit.Query{Name: "A.b.Example.co.uk.", Decision: audit.Blocked}}, 1, "example.co.uk"},
		"one label":  {audit.Event{Query: &audit.Query{Name: "printer", Decision: audit.Blocked}}, 1, "printer"},
		"bytes":      {audit.Event{Query: &audit.Query{Name: "\xff\n.x", Decision: audit.Blocked}}, 1, "\xff\n.x"},
		"granted":    {audit.Event{Query: &audit.Query{Name: "a.example", Decision: audit.Allowed}}, 0, ""},
		"flow":       {audit.Event{Flow: &audit.Flow{Name: "a.b.example", Decision: audit.Blocked, Count: 3}}, 3, "b.example"},
		"literal":    {audit.Event{Flow: &audit.Flow{Name: "192.0.2.9", Decision: audit.Blocked}}, 1, "192.0.2.0/24"},
		"open":       {audit.Event{Open: &audit.Open{Path: "/etc/passwd", Errno: "EACCES"}}, 0, ""},
	} {
		if n, to := Attempts(&test.event); n != test.n || to != test.to {
			t.Errorf("%s: %d of %q, want %d of %q", name, n, to, test.n, test.to)
		}
		if Counts(&test.event) != (test.n > 0) {
			t.Errorf("%s: counts %t", name, Counts(&test.event))
		}
	}
}

func TestRuleCheck(t *testing.T) {
	for by, r := range Defaults() {
		if field, err := r.Check(); err != nil {
			t.Errorf("default of %s: %s %v", by, field, err)
		}
	}
	for field, r := range map[string]Rule{
		"threshold": {Window: time.Minute, Factor: 1, History: 1},
		"window":    {Threshold: 1, Window: time.Millisecond, Factor: 1, History: 1},
		"factor":    {Threshold: 1, Window: time.Minute, Factor: 0.5, History: 1},
		"history":   {Threshold: 1, Window: time.Minute, Factor: 1, History: 1000},
	} {
		if got, err := r.Check(); err == nil || got != field {
			t.Errorf("%s: %q, %v", field, got, err)
		}
	}
}

// What was learned outlives the process: what is usual is no alarm, and ten times that is one; what
// was counted in a window that still goes on counts.
func TestHistoryOutlives(t *testing.T) {
	for _, by := range []By{ByCaller, ByAgent, ByImage, ByDestination, ByHost} {
		s := newStage(only(by, minute))
		for range 5 {
			for range 4 {
				s.asks(s.run(7), "telemetry.example", 5)
				s.at = s.at.Add(15 * time.Second)
			}
		}
		last := s.run(7)
		s.asks(last, "telemetry.example", 4)
		var file bytes.Buffer
		if err := s.d.History().Write(&file); err != nil {
			t.Fatal(err)
		}
		h, err := ReadHistory(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.d.History(), h); diff != "" {
			t.Errorf("%s: -written +read:\n%s", by, diff)
		}
		before := s.d
		s.d = New(Options{Rules: only(by, minute)})
		s.d.Learn(h)
		if got := s.asks(s.run(7), "telemetry.example", 5); got != nil {
			t.Errorf("%s: what is usual is an alarm: %+v", by, got)
		}
		got := s.asks(s.run(7), "telemetry.example", 100)
		if len(got) != 1 || got[0].Young || got[0].Count != got[0].Limit || got[0].Limit < 75 {
			t.Errorf("%s: alarms %+v", by, got)
		}

		// Another window's rates say nothing.
		s.d = New(Options{Rules: only(by, Rule{Threshold: 10, Window: time.Hour, Factor: 3, History: 3})})
		s.d.Learn(before.History())
		if got := s.asks(s.run(7), "telemetry.example", 10); len(got) != 1 || !got[0].Young {
			t.Errorf("%s: alarms %+v", by, got)
		}
	}
	for _, bad := range []History{
		{Series: map[By][]Past{ByCaller: {{}}}},
		{Series: map[By][]Past{ByCaller: {{Recent: make([]uint32, 2*steps), Before: []uint32{1, 0}}}}},
		{Series: map[By][]Past{ByCaller: {{Recent: make([]uint32, 2*steps), Before: make([]uint32, 1)}}}},
	} {
		var file bytes.Buffer
		if err := bad.Write(&file); err != nil {
			t.Fatal(err)
		}
		if h, err := ReadHistory(&file); err == nil {
			t.Errorf("%+v is read", h)
		}
	}
	if _, err := ReadHistory(strings.NewReader("no history")); err == nil {
		t.Error("any text is a history")
	}
}

func TestGroup(t *testing.T) {
	for name, want := range map[audit.Text]string{
		"a.b.Example.com.": "example.com", "203.0.113.7": "203.0.113.0/24", "203.0.113.0/24": "203.0.113.0/24", "2001:db8:1:2::3": "2001:db8:1::/48",
		"2001:db8:1::/48": "2001:db8:1::/48", "localhost": "localhost",
	} {
		if got := Group(name); got != want || Group(audit.Text(got)) != got {
			t.Errorf("%s: %s", name, got)
		}
	}
}
