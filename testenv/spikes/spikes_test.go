package spikes

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
)

// Scenarios are the same each time, in order of time, and every attack's runs are in them.
func TestScenarios(t *testing.T) {
	all, again := All(), All()
	if !reflect.DeepEqual(all, again) {
		t.Error("another draw is another")
	}
	attacks := 0
	for _, s := range all {
		if !slices.IsSortedFunc(s.Events, func(a, b audit.Event) int { return a.Time.Compare(b.Time) }) {
			t.Errorf("%s: not in order", s.Name)
		}
		starts := map[string]bool{}
		for _, e := range s.Events {
			if e.Kind == audit.KindStart {
				starts[e.Run] = true
			}
		}
		if len(starts) < 100 {
			t.Errorf("%s: %d runs", s.Name, len(starts))
		}
		for _, a := range s.Attacks {
			attacks++
			if len(a.Runs) == 0 || !a.From.Before(a.Until) {
				t.Errorf("%s: %s: %d runs, from %s until %s", s.Name, a.Name, len(a.Runs), a.From, a.Until)
			}
			for r := range a.Runs {
				if !starts[r] {
					t.Errorf("%s: %s: no run %s", s.Name, a.Name, r)
				}
			}
		}
	}
	if attacks < 15 {
		t.Errorf("%d attacks are too few to tell", attacks)
	}
}

func TestScore(t *testing.T) {
	s := Scenario{Name: "s", Attacks: []Attack{
		{Name: "a", From: Start, Until: Start.Add(time.Minute), Runs: map[string]bool{"r1": true}, Callers: map[uint32]bool{7: true}, Destination: "evil.example"},
		{Name: "b", From: Start.Add(time.Hour), Until: Start.Add(2 * time.Hour), Runs: map[string]bool{"r2": true}, Agents: map[string]bool{"x": true}},
	}}
	got := s.Score([]Alarm{
		{Start, "run", "r1"},
		{Start.Add(time.Minute + Grace), "destination", "evil.example"},
		{Start.Add(time.Minute + Grace + 1), "caller", "7"}, // too late
		{Start.Add(-1), "caller", "7"},                      // too early
		{Start.Add(time.Second), "run", "r2"},               // another's
		{Start.Add(time.Second), "host", ""},
		{Start.Add(time.Second), "agent", "x"}, // not yet
	})
	want := Score{True: 3, False: 4, Found: 1, Missed: []string{"s: b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Precision() != 3.0/7 || got.Recall() != 0.5 || (Score{}).Precision() != 1 {
		t.Errorf("precision %v, recall %v", got.Precision(), got.Recall())
	}
}
