package spike

import (
	"fmt"
	"testing"
	"time"
)

// first are the alarms that are not said again.
func first(all []Alarm) (alarms []Alarm) {
	for _, a := range all {
		if !a.Again {
			alarms = append(alarms, a)
		}
	}
	return alarms
}

// One attempt in each of a hundred runs is found whoever asks for them, also on a host that has
// seen nothing before; and it is one alarm.
func TestSlowScan(t *testing.T) {
	for _, callers := range []int{1, 2, 3, 20} {
		for _, apart := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute} {
			s := newStage(only(ByDestination, Defaults()[ByDestination]))
			var got []Alarm
			for i := range 100 {
				got = append(got, first(s.asks(s.run(uint32(i%callers)), "evil.example", 1))...)
				s.at = s.at.Add(apart)
			}
			if len(got) != 1 || got[0].Count != 60 {
				t.Errorf("%d callers, %s apart: %+v", callers, apart, got)
			}
		}
	}
}

// Whatever was taught, what is learned has bounds: by run, by window, and by the threshold.
func TestBoundsOfWhatIsLearned(t *testing.T) {
	r := Rule{Threshold: 60, Window: time.Hour, Factor: 3, History: 24}
	for name, test := range map[string]struct {
		past  counts
		runs  float64
		limit uint64
	}{
		"ordinary":             {counts{120, 60}, 60, 360},
		"four times the runs":  {counts{120, 60}, 240, 1440},
		"forty times the runs": {counts{120, 60}, 2400, 1440},
		"taught by one run":    {counts{59, 1}, 600, 708},
		"much of one run":      {counts{1000, 1}, 2, 120},
		"much of many":         {counts{4_000_000_000, 4_000_000}, 4_000_000, 60_000},
		"hardly any":           {counts{1, 60}, 60, 60},
	} {
		s := series{}
		for range maxPast {
			s.learn(test.past)
		}
		if got, _ := s.limit(r, test.runs); got != test.limit {
			t.Errorf("%s: limit %d, want %d", name, got, test.limit)
		}
	}
	// What most windows have none of is not news in those that have.
	s := series{}
	for i := range maxPast {
		s.learn(counts{attempts: uint32(i % 3 / 2 * 96), runs: 60})
	}
	if got, _ := s.limit(r, 60); got != 241 {
		t.Errorf("limit %d of what is tried in each third window", got)
	}
}

// More runs, each of which does no more than what was taught, are too many some time.
func TestTaught(t *testing.T) {
	s := newStage(Defaults())
	for range 26 {
		run := s.run(7)
		for range 59 {
			if got := s.asks(run, "evil.example", 1); got != nil {
				t.Fatalf("it is below the threshold: %+v", got)
			}
			s.at = s.at.Add(time.Minute)
		}
		s.at = s.at.Add(time.Minute)
	}
	found := map[By]uint64{}
	for range 600 {
		for _, a := range first(s.asks(s.run(7), "evil.example", 24)) {
			found[a.By] = a.Count
		}
		s.at = s.at.Add(6 * time.Second)
	}
	for _, by := range []By{ByCaller, ByAgent, ByDestination, ByImage, ByHost} {
		if n := found[by]; n == 0 || n > 708 {
			t.Errorf("%s: found at the %dth attempt", by, n)
		}
	}
}

// What is beyond the destinations that are told apart, and what has none, is nobody's usual noise.
func TestNoDestination(t *testing.T) {
	s := newStage(only(ByCaller, minute))
	many := func(uid uint32, n int) (alarms []Alarm) {
		run := s.run(uid)
		for i := range maxDestinations {
			s.asks(run, fmt.Sprintf("d%d.example", i), 1)
			s.at = s.at.Add(time.Minute)
		}
		for i := range n {
			alarms = append(alarms, s.asks(run, fmt.Sprintf("x%d.example", i), 1)...)
		}
		return alarms
	}
	for i := range 30 {
		many(uint32(i%3), 2)
		s.asks(s.run(uint32(i%3)), nowhere, 1)
	}
	if got := first(many(9, 20)); len(got) != 1 {
		t.Errorf("others: %+v", got)
	}
	s.at = s.at.Add(time.Hour)
	if got := first(s.asks(s.run(10), nowhere, 20)); len(got) != 1 {
		t.Errorf("no address: %+v", got)
	}
}

// A destination counts every run of the host, also those of windows in which nothing tried it.
func TestPulse(t *testing.T) {
	s := newStage(only(ByDestination, minute))
	want := []counts{}
	for window := range 10 {
		s.at = begin.Add(time.Duration(window) * time.Minute)
		for range window % 4 { // none in each fourth
			s.run(7)
		}
		if window%3 == 0 {
			s.asks("some run", "a.example", 2)
		}
		if runs := uint32(window % 4); runs > 0 && window < 9 {
			want = append(want, counts{attempts: map[bool]uint32{true: 2}[window%3 == 0], runs: runs})
		}
	}
	k := s.d.of(ByDestination, "a.example")
	if fmt.Sprint(k.past) != fmt.Sprint(want) {
		t.Errorf("past %v, want %v", k.past, want)
	}
	if _, runs := s.d.pulse.sum(); runs != 1 {
		t.Errorf("%d runs in the window", runs)
	}
}
