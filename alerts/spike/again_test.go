package spike

import (
	"testing"
	"time"
)

// An attack that goes on is told again, twice a minute and when a run first takes part in it; a new
// one that comes after it is none of that.
func TestAgain(t *testing.T) {
	for _, by := range []By{ByRun, ByCaller, ByAgent, ByImage, ByDestination, ByHost} {
		s := newStage(only(by, minute))
		run := s.run(7)
		s.asks(run, "a.example", 10)
		for _, test := range []struct {
			after time.Duration
			again int
		}{{0, 0}, {29 * time.Second, 0}, {time.Second, 1}, {0, 0}, {30 * time.Second, 1}} {
			s.at = s.at.Add(test.after)
			got := s.asks(run, "a.example", 10)
			if len(got) != test.again || test.again == 1 && (!got[0].Again || got[0].Run != run || got[0].Count < 20 || got[0].Limit != 10) {
				t.Errorf("%s: %s later: %+v", by, test.after, got)
			}
		}
		s.at = s.at.Add(5 * time.Minute)
		s.asks(run, "a.example", 1)
		if got := s.asks(run, "a.example", 9); len(got) != 1 || got[0].Again {
			t.Errorf("%s: another time: %+v", by, got)
		}
		if by == ByRun {
			continue
		}
		for range 5 {
			other := s.run(7)
			if got := s.asks(other, "a.example", 5); len(got) != 1 || !got[0].Again || got[0].Run != other {
				t.Errorf("%s: another run: %+v", by, got)
			}
		}
		all := 0
		for range 500 {
			all += len(s.asks(s.run(7), "a.example", 3))
		}
		if all < 30 || all > sayAtMost {
			t.Errorf("%s: said %d times in a minute", by, all)
		}
	}
}

// While an attack goes on in ever other runs, nobody can think that it is over.
func TestAgainUntilTheEnd(t *testing.T) {
	s := newStage(Defaults())
	var last time.Time
	for i := range 1000 {
		for _, a := range s.asks(s.run(uint32(i%20)), "evil.example", 24) {
			if a.By == ByDestination {
				last = a.Time
			}
		}
		if i > 10 && s.at.Sub(last) > time.Minute {
			t.Fatalf("run %d: nothing was said for %s", i, s.at.Sub(last))
		}
		s.at = s.at.Add(10 * time.Second)
	}
}
