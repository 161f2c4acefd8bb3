package incident

import (
	"fmt"
	"testing"
	"time"

	"proctor/audit"
)

// A silence is of what it names: what else a run does, and what others do, is told.
func TestSilenceOfParts(t *testing.T) {
	for name, test := range map[string]struct {
		m      Matcher
		act    func(s *stage, run string) *Incident
		silent bool
	}{
		"destination": {Matcher{Destination: "telemetry.example"}, func(s *stage, run string) *Incident {
			s.tries(run, "a.telemetry.example", 30)
			return s.alarm("spike.run", run, run)
		}, true},
		"its series": {Matcher{Destination: "198.51.100.0/24"}, func(s *stage, run string) *Incident {
			s.tries(run, "198.51.100.7", 30)
			return s.alarm("spike.destination", "198.51.100.0/24", run)
		}, true},
		"address in another network": {Matcher{Destination: "198.51.100.0/24"}, func(s *stage, run string) *Incident {
			s.tries(run, "198.51.101.7", 30)
			return s.alarm("spike.run", run, run)
		}, false},
		"destination and another": {Matcher{Destination: "telemetry.example"}, func(s *stage, run string) *Incident {
			s.tries(run, "telemetry.example", 30)
			s.tries(run, "evil.example", 1)
			return s.alarm("spike.run", run, run)
		}, false},
		"destination and an act": {Matcher{Destination: "telemetry.example"}, func(s *stage, run string) *Incident {
			s.tries(run, "telemetry.example", 30)
			s.alarm("spike.run", run, run)
			return s.sign("sign.metadata", "169.254.169.254", run)
		}, false},
		"the act by name": {Matcher{Rule: "sign.tunnel", Destination: "telemetry.example"}, func(s *stage, run string) *Incident {
			s.tries(run, "telemetry.example", 30)
			return s.sign("sign.tunnel", "telemetry.example", run)
		}, true},
		"caller": {Matcher{Caller: "1"}, func(s *stage, run string) *Incident {
			s.tries(run, "a.example", 30)
			return s.sign("sign.tunnel", "a.example", run)
		}, true},
		"caller and another": {Matcher{Caller: "1"}, func(s *stage, run string) *Incident {
			s.alarm("spike.destination", "a.example", run)
			return s.alarm("spike.destination", "a.example", s.run(2, "y"))
		}, false},
		"rule and another": {Matcher{Rule: "spike"}, func(s *stage, run string) *Incident {
			s.alarm("spike.run", run, run)
			return s.sign("sign.tunnel", "a.example", run)
		}, false},
	} {
		s := newStage(t, Options{})
		if _, _, err := s.b.Silence(Silence{Matches: test.m, Begin: s.at, End: s.at.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if i := test.act(s, s.run(1, "x")); (i.Silence != "") != test.silent {
			t.Errorf("%s: silence %q", name, i.Silence)
		}
	}
	s := newStage(t, Options{})
	run := s.run(1, "x")
	i := s.alarm("spike.run", run, run)
	if _, covers, err := s.b.Silence(Silence{Matches: Matcher{Incident: i.ID[:6]}, Begin: s.at, End: s.at.Add(time.Hour)}); err != nil || covers != 1 {
		t.Errorf("an incident by the beginning of its id: %d covered, %v", covers, err)
	}
	if _, _, err := s.b.Silence(Silence{Matches: Matcher{Incident: "none"}}); err == nil {
		t.Error("an incident that there is not is silenced")
	}
}

// A silence looks at all who take part, also where not all runs are shown.
func TestSilenceOfMany(t *testing.T) {
	for name, last := range map[string]func(s *stage) string{
		"of another profile": func(s *stage) string {
			s.n++
			id := fmt.Sprint("run-", s.n)
			s.b.Observe(&audit.Event{Run: id, Time: s.at, Kind: audit.KindStart, Start: &audit.Request{Caller: audit.Caller{UID: 1}, Agent: "x", Profile: "prod"}})
			return id
		},
		"of another caller, before many agents": func(s *stage) string {
			s.alarm("spike.destination", "a.example", s.run(2, "x"))
			for n := range 30 {
				s.alarm("spike.destination", "a.example", s.run(1, fmt.Sprint("agent ", n)))
			}
			return s.run(1, "x")
		},
		"of more than are remembered": func(s *stage) string {
			for n := range maxParties + 10 {
				s.alarm("spike.destination", "a.example", s.run(1, fmt.Sprint("agent ", n)))
			}
			return s.run(1, "x")
		},
	} {
		s := newStage(t, Options{})
		m := Matcher{Caller: "1"}
		if name == "of another profile" {
			m = Matcher{Profile: "offline"}
		}
		if _, _, err := s.b.Silence(Silence{Matches: m, Begin: s.at, End: s.at.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for range 25 {
			run := s.run(1, "x")
			if i := s.alarm("spike.destination", "a.example", run); i.Silence == "" {
				t.Fatalf("%s: not silenced before", name)
			}
		}
		if i := s.alarm("spike.destination", "a.example", last(s)); i.Silence != "" {
			t.Errorf("%s: silenced: %+v", name, i.Parties)
		}
	}
}

// One incident's silence is of all of it; another silence does not count what it does not cover.
func TestSilenceByID(t *testing.T) {
	s := newStage(t, Options{})
	run := s.run(1, "")
	var i *Incident
	for n := range 30 {
		i = s.sign("sign.escape", fmt.Sprint("call ", n), run)
	}
	if _, covers, err := s.b.Silence(Silence{Matches: Matcher{Incident: i.ID}, Begin: s.at, End: s.at.Add(time.Hour)}); err != nil || covers != 1 {
		t.Errorf("covers %d, %v", covers, err)
	}
	if _, covers, err := s.b.Silence(Silence{Matches: Matcher{Agent: "nobody"}, Begin: s.at, End: s.at.Add(time.Hour)}); err != nil || covers != 0 {
		t.Errorf("one of nobody covers %d, %v", covers, err)
	}
	// A network's is of all its addresses, however many were tried.
	other := s.run(2, "")
	for n := range 200 {
		s.tries(other, fmt.Sprintf("203.0.113.%d", n), 1)
	}
	i = s.alarm("spike.run", other, other)
	if _, covers, err := s.b.Silence(Silence{Matches: Matcher{Destination: "203.0.113.0/24"}, Begin: s.at, End: s.at.Add(time.Hour)}); err != nil || covers != 1 || i.Elsewhere != 0 {
		t.Errorf("a network's covers %d, %v; elsewhere %d", covers, err, i.Elsewhere)
	}
}
