package incident

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"proctor/audit"
)

// sign raises a single act.
func (s *stage) sign(rule, text, run string) *Incident {
	s.t.Helper()
	id := s.b.Raise(Alarm{Time: s.at, Rule: rule, Subject: audit.Text(run), Severity: Critical, Text: audit.Text(text), Run: run})
	return s.get(id)
}

// The acts of one kind of one caller's agent are one incident, whatever run they are of; each that
// says something else is kept.
func TestActsBelongTogether(t *testing.T) {
	s := newStage(t, Options{Quiet: time.Minute})
	first := s.run(1, "x")
	var i *Incident
	for _, call := range []string{"bpf", "init_module", "chroot", "chroot"} {
		i = s.sign("sign.escape", call, first)
	}
	if len(i.Alarms) != 3 || i.Alarms[0].Text != "bpf" || i.Alarms[2].Times != 2 {
		t.Errorf("alarms %+v", i.Alarms)
	}
	for range 100 {
		if o := s.sign("sign.escape", "bpf", s.run(1, "x")); o.ID != i.ID {
			t.Fatal("the next run's made another incident")
		}
	}
	for name, run := range map[string]string{"caller": s.run(2, "x"), "agent": s.run(1, "y")} {
		if o := s.sign("sign.escape", "bpf", run); o.ID == i.ID {
			t.Errorf("of another %s, and in the same incident", name)
		}
	}
	s.at = s.at.Add(time.Hour)
	s.b.Tick(s.at)
	if o := s.sign("sign.escape", "bpf", s.run(1, "x")); o.ID != i.ID || o.Reopened != 1 || o.RunCount() != 1 || len(o.Alarms) != 1 {
		t.Errorf("later: %+v", o)
	}
}

// A critical alarm of a kind that was not there is told loudly, though the incident was critical.
func TestLaterCritical(t *testing.T) {
	s := newStage(t, Options{})
	run := s.run(1, "")
	i := s.sign("sign.tunnel", "a.example", run)
	loud := i.Loud
	if i = s.sign("sign.tunnel", "b.example", run); i.Loud != loud {
		t.Error("more of the same is loud")
	}
	if i = s.sign("sign.scrubbed", "a credential", run); i.Loud <= loud || i.Loud != i.Material {
		t.Errorf("loud %d after %d, material %d", i.Loud, loud, i.Material)
	}
}

// What others do hides no critical alarm of a caller who is quiet.
func TestStormOfOthers(t *testing.T) {
	s := newStage(t, Options{})
	for caller := range uint32(11) {
		for n := range maxOpenOfCaller {
			run := s.run(caller, fmt.Sprint(n))
			s.tries(run, fmt.Sprintf("d%d.example", n), 1)
			s.alarm("spike.run", run, run)
		}
	}
	quiet := s.run(99, "")
	if i := s.alarm("spike.run", quiet, quiet); !i.Storm {
		t.Error("a warning is no part of the storm")
	}
	quiet = s.run(98, "")
	if i := s.sign("sign.scrubbed", "a credential", quiet); i.Storm || i.Alarms[0].Rule != "sign.scrubbed" {
		t.Errorf("a critical alarm is in the storm: %+v", i)
	}
	// Those that were resolved within the hour count.
	s.at = s.at.Add(30 * time.Minute)
	s.b.Tick(s.at)
	run := s.run(1, "more")
	if i := s.alarm("spike.run", run, run); !i.Storm {
		t.Error("a caller has as many incidents as he likes, if each is short")
	}
	s.at = s.at.Add(time.Hour)
	s.b.Tick(s.at)
	run = s.run(1, "later")
	if i := s.alarm("spike.run", run, run); i.Storm {
		t.Error("an hour later it is still a storm")
	}
}

// A slow scan is of all its runs, though they ended one by one before there was an alarm.
func TestSlowScan(t *testing.T) {
	for rule, subject := range map[string]string{"spike.caller": "4294967294", "spike.agent": "x", "spike.image": "shell", "spike.destination": "evil.example", "spike.host": ""} {
		s := newStage(t, Options{})
		s.tries(s.run(4294967293, "y"), "other.example", 1)
		for n := range 60 {
			run := s.run(4294967294, "x")
			s.tries(run, fmt.Sprintf("h%d.evil.example", n), 1)
			if n < 59 {
				s.b.Ended(run, s.at)
				s.at = s.at.Add(50 * time.Second)
				continue
			}
			i := s.alarm(rule, subject, run)
			if i.RunCount() != 60 || i.Attempts != 60 || len(i.Destinations) == 1 {
				t.Errorf("%s: %d runs, %d attempts at %v", rule, i.RunCount(), i.Attempts, i.Destinations)
			}
			// Once.
			if i = s.alarm(rule, subject, run); i.RunCount() != 60 {
				t.Errorf("%s again: %d runs", rule, i.RunCount())
			}
		}
	}
}

// Looked at first is the run that does most; who takes part is shown, however many runs there are.
func TestWhoIsShown(t *testing.T) {
	s := newStage(t, Options{})
	first := s.run(1, "x")
	s.tries(first, "a.example", 10)
	i := s.alarm("spike.destination", "a.example", first)
	for range 30 {
		run := s.run(1, "x")
		s.tries(run, "a.example", 12)
		s.alarm("spike.destination", "a.example", run)
	}
	if i = s.get(i.ID); i.Leading().Run != first || i.RunCount() != 31 {
		t.Errorf("%d runs, first of all %s", i.RunCount(), i.Leading().Run)
	}
	other := s.run(2, "y")
	s.tries(other, "a.example", 1)
	s.alarm("spike.destination", "a.example", other)
	if i = s.get(i.ID); !slices.ContainsFunc(i.Runs, func(r Run) bool { return r.Caller == "2" || r.Agent == "y" }) || i.Runs[0].Run != first {
		t.Errorf("another caller is not shown: %+v", i.Runs)
	}
	busy := s.run(1, "x")
	s.alarm("spike.destination", "a.example", busy)
	s.tries(busy, "a.example", 1100)
	if i = s.get(i.ID); i.Leading().Run != busy || i.Leading().Attempts != 1100 || !i.ManyAttempts() || i.RunCount() != 33 {
		t.Errorf("%d runs, first of all %+v", i.RunCount(), i.Leading())
	}
}

// What no sink was told of yet is forgotten last.
func TestUntoldIsKept(t *testing.T) {
	s := newStage(t, Options{Quiet: time.Second, Keep: 365 * 24 * time.Hour, Sinks: []string{"s"}})
	untold := s.sign("sign.tunnel", "a.example", s.run(1, ""))
	for range maxResolved + 50 {
		s.at = s.at.Add(time.Hour)
		run := s.run(2, fmt.Sprint(s.at))
		i := s.alarm("spike.run", run, run)
		s.b.Deliver(i.ID, "s", func(d *Delivery) { d.State = Open })
		s.b.Tick(s.at.Add(time.Minute))
	}
	if s.b.Get(untold.ID) == nil {
		t.Error("it is forgotten, and others that were told are not")
	}
}

// What an alarm of many runs counts has nothing to do with what one of them does by itself: neither
// another caller's act nor another agent's is hidden in it.
func TestActsInANoise(t *testing.T) {
	s := newStage(t, Options{})
	noise := s.run(1, "noisy")
	s.tries(noise, "a.example", 1)
	i := s.alarm("spike.host", "", noise)
	seen := map[string]bool{}
	for uid := range uint32(10) {
		run := s.run(10+uid, "x")
		s.tries(run, "a.example", 1)
		s.b.Raise(Alarm{Time: s.at, Rule: "spike.host", Run: run, Again: true})
		o := s.sign("sign.metadata", "169.254.169.254", run)
		seen[o.ID] = true
		if o.ID == i.ID || o.Leading().Run != run {
			t.Errorf("an act of caller %d is in the noise's incident", 10+uid)
		}
	}
	if n := s.get(i.ID); len(seen) != 10 || n.RunCount() != 11 || n.Attempts != 11 || len(n.Alarms) != 1 {
		t.Errorf("%d incidents; the noise's has %d runs, %d attempts, %d alarms", len(seen), n.RunCount(), n.Attempts, len(n.Alarms))
	}
	// Nor is another caller's series; but one caller's are one incident.
	run := s.run(20, "x")
	s.b.Raise(Alarm{Time: s.at, Rule: "spike.host", Run: run, Again: true})
	c := s.alarm("spike.caller", "20", run)
	if c.ID == i.ID {
		t.Error("a caller's series is in the noise's incident")
	}
	if o := s.alarm("spike.agent", "x", run); o.ID != c.ID {
		t.Error("and his agent's is in a third")
	}
	// What goes on elsewhere does not take the series away from its incident.
	own := s.run(30, "")
	s.alarm("spike.run", own, own)
	s.at = s.at.Add(time.Minute)
	s.b.Raise(Alarm{Time: s.at, Rule: "spike.host", Run: own, Again: true})
	if n := s.get(i.ID); n.Last != s.at {
		t.Errorf("it does not go on: %v", n.Last)
	}
}

// However many alarms there are, those of another kind and more severe ones are seen, and are news once.
func TestManyAlarms(t *testing.T) {
	s := newStage(t, Options{})
	run := s.run(1, "")
	var i *Incident
	for n := range 25 {
		i = s.sign("sign.escape", fmt.Sprint("call ", n), run)
	}
	loud := i.Loud
	for n := range 100 {
		i = s.sign("sign.metadata", fmt.Sprint("port ", n), run)
		if n == 0 && i.Loud == loud || n > 0 && i.Loud != loud {
			t.Fatalf("act %d: loud %d after %d", n, i.Loud, loud)
		}
		loud = i.Loud
	}
	if !slices.ContainsFunc(i.Alarms, func(a Alarm) bool { return a.Rule == "sign.metadata" }) || len(i.Alarms) != maxAlarms || i.OtherAlarms != 105 {
		t.Errorf("%d alarms, %d more: %+v", len(i.Alarms), i.OtherAlarms, i.Alarms)
	}
}

// What is shown first is the run that the worst alarm names.
func TestWhoseAct(t *testing.T) {
	s := newStage(t, Options{})
	busy, bad := s.run(1, "x"), s.run(1, "x")
	s.tries(busy, "a.example", 500)
	s.tries(bad, "a.example", 1)
	s.alarm("spike.run", busy, busy)
	i := s.sign("sign.metadata", "169.254.169.254", bad)
	s.tries(busy, "a.example", 500)
	if i = s.get(i.ID); i.Leading().Run != bad || i.RunCount() != 2 {
		t.Errorf("%+v", i.Leading())
	}
}
