package spikes

import (
	"strconv"
	"time"
)

// An Alarm is what a rule said: that there is too much of something. By is the kind of what it
// is said of: run, caller, agent, image, destination or host; Key is its name.
type Alarm struct {
	Time time.Time
	By   string
	Key  string
}

// Score is how good alarms were.
type Score struct {
	True   int // alarms that are about an attack
	False  int // others
	Found  int // attacks of which there was an alarm
	Missed []string
}

// Precision is the part of alarms that were right; 1 where there were none.
func (s Score) Precision() float64 { return part(s.True, s.True+s.False) }

// Recall is the part of attacks that were found; 1 where there were none.
func (s Score) Recall() float64 { return part(s.Found, s.Found+len(s.Missed)) }

func part(n, of int) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}

// Add sums up.
func (s *Score) Add(o Score) {
	s.True, s.False, s.Found = s.True+o.True, s.False+o.False, s.Found+o.Found
	s.Missed = append(s.Missed, o.Missed...)
}

// Score judges alarms, each of which stands for an incident.
func (s Scenario) Score(alarms []Alarm) (score Score) {
	found := make([]bool, len(s.Attacks))
	for _, alarm := range alarms {
		right := false
		for i := range s.Attacks {
			if s.Attacks[i].concerns(alarm) {
				right, found[i] = true, true
			}
		}
		if right {
			score.True++
		} else {
			score.False++
		}
	}
	for i, ok := range found {
		if ok {
			score.Found++
		} else {
			score.Missed = append(score.Missed, s.Name+": "+s.Attacks[i].Name)
		}
	}
	return score
}

// concerns reports whether an alarm is about the attack, and in time. Of all of the host or of
// an image, an alarm is right while an attack goes on: who is told looks at once.
func (a *Attack) concerns(alarm Alarm) bool {
	if alarm.Time.Before(a.From) || alarm.Time.After(a.Until.Add(Grace)) {
		return false
	}
	switch alarm.By {
	case "run":
		return a.Runs[alarm.Key]
	case "caller":
		uid, err := strconv.ParseUint(alarm.Key, 10, 32)
		return err == nil && a.Callers[uint32(uid)]
	case "agent":
		return a.Agents[alarm.Key]
	case "destination":
		return a.Destination == alarm.Key
	case "host", "image":
		return true
	}
	return false
}
