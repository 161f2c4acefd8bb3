package spike

import (
	"bytes"
	"testing"
	"time"

	"proctor/audit"
)

// A clock that was ahead for a moment, of a year or an hour or two, costs no alarm after that; nor
// does a history that was written then.
func TestClockAhead(t *testing.T) {
	for _, by := range []By{ByRun, ByCaller, ByAgent, ByImage, ByDestination, ByHost} {
		for _, ahead := range []time.Duration{2 * time.Minute, time.Hour, 365 * 24 * time.Hour} {
			for _, restart := range []bool{false, true} {
				s := newStage(only(by, minute))
				run := s.run(7)
				s.at = begin.Add(ahead)
				s.asks(run, "a.example", 20)
				if restart {
					var file bytes.Buffer
					if err := s.d.History().Write(&file); err != nil {
						t.Fatal(err)
					}
					h, err := ReadHistory(&file)
					if err != nil {
						t.Fatal(err)
					}
					s.d = New(Options{Rules: only(by, minute)})
					s.d.Learn(h)
				}
				if s.at = begin; restart {
					run = s.run(7)
				}
				if got := s.asks(run, "a.example", 9); got != nil {
					t.Errorf("%s, %s ahead: alarm: %+v", by, ahead, got)
				}
				if got := s.asks(run, "a.example", 1); len(got) != 1 || got[0].Again || got[0].Count != 10 {
					t.Errorf("%s, %s ahead: alarms: %+v", by, ahead, got)
				}
				// It learns again, too.
				for range 5 {
					s.at = s.at.Add(time.Minute)
					s.asks(s.run(7), "a.example", 2)
				}
				if by == ByRun {
					continue
				}
				if got := first(s.asks(s.run(7), "a.example", 100)); len(got) != 1 || got[0].Young {
					t.Errorf("%s, %s ahead: alarms of what is not young: %+v", by, ahead, got)
				}
			}
		}
	}
}

// A record may have any time, and events that are not whole.
func TestAnyTime(t *testing.T) {
	s := newStage(Defaults())
	began := time.Now()
	for range 200 {
		for _, at := range []time.Time{
			{}, time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1677, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC),
			time.Unix(0, 0), begin, time.Date(2262, 4, 12, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Unix(1<<62, 0),
		} {
			for _, later := range []time.Duration{0, time.Second, time.Hour, 90 * time.Hour} {
				s.at = at.Add(later)
				s.asks(s.run(7), "a.example", 3)
			}
		}
	}
	s.d.Observe(&audit.Event{Run: "r", Kind: audit.KindStart})
	s.d.Observe(&audit.Event{Run: "r", Kind: audit.KindFlow})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	for _, window := range []time.Duration{MinWindow, time.Minute, MaxWindow} {
		if n := (Rule{Window: window}).step(time.Time{}); n < steps {
			t.Errorf("step %d of %s", n, window)
		}
	}
}
