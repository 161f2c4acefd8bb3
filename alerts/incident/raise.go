package incident

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// What is too many. A caller with that many open incidents has one more, for all that follow.
const (
	maxOpenOfCaller = 25
	maxOpen         = 250
	maxResolved     = 1000 // remembered; the oldest are forgotten
	maxRemembered   = 8192 // runs
	maxNames        = 16   // destinations of a run before an alarm
	maxParties      = 64   // of an incident
	maxGroups       = 256  // likewise, of destinations
	maxPast         = 256  // runs that ended without an alarm, of the last hour
	maxSubject      = 300  // bytes
	maxText         = 500  // likewise
)

const recallWithin = time.Hour

// RefusedRule is of a sink that refuses, which is the alarm's subject.
const RefusedRule = "sink.refused"

// StormRule is of an incident that holds what would have been too many.
const StormRule = "storm"

// manyAttempts make any incident critical.
const manyAttempts = 1000

// rise makes an incident critical for how many attempts it has, and reports whether it was not.
func (i *Incident) rise() bool {
	rises := i.Severity < Critical && i.Attempts >= manyAttempts
	if rises {
		i.Severity = Critical
	}
	return rises
}

// Raise notes an alarm, and returns the incident that it belongs to.
func (b *Book) Raise(a Alarm) (id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.Subject, a.Text, a.Times = cut(a.Subject, maxSubject), cut(a.Text, maxText), 1
	if a.Again {
		if i := b.by[a.fingerprint()]; i != nil && i.State == Open {
			b.goesOn(i, &a)
			return i.ID
		}
		a.Again = false // its incident is over: this is news
	}
	b.raised[a.Rule]++
	i, opened := b.belongs(&a)
	i.Last = later(i.Last, a.Time)
	i.Severity = max(i.Severity, a.Severity)
	loud := i.loud(&a)
	material := i.note(a) || opened || loud
	if !i.Storm {
		b.by[a.fingerprint()] = i
	}
	if a.Run != "" && (b.open[a.Run].Incident != i || !ofMany(a.Rule)) {
		material = b.join(i, a.Run, ofMany(a.Rule)) || material
	}
	if opened {
		b.recall(i, &a)
	}
	if a.Run != "" && !ofMany(a.Rule) && i.leading().repeats(a) {
		b.setLead(i, b.remember(a.Run))
	}
	material = i.rise() || material
	b.hush(i, a.Time)
	if i.Silence != "" && i.OtherAlarms > 0 && b.covered(i, &a, a.Time) == "" {
		i.Silence = ""
	}
	if i.Silence != "" {
		i.Suppressed++
	}
	b.touch(i, a.Time, material)
	if loud && !opened || opened && i.Reopened > 0 {
		i.Loud = i.Revision
	}
	return i.ID
}

// goesOn notes that what an alarm was raised for goes on, in a run that may be another.
func (b *Book) goesOn(i *Incident, a *Alarm) {
	i.Last = later(i.Last, a.Time)
	material := false
	if a.Run != "" && b.open[a.Run].Incident == nil {
		material = b.join(i, a.Run, true)
	}
	material = i.rise() || material
	b.hush(i, a.Time)
	b.touch(i, a.Time, material)
}

// loud reports whether people are to be notified of an alarm of an incident that they know: it is of
// a critical kind that was not there.
func (i *Incident) loud(a *Alarm) bool {
	if a.Severity < Critical || slices.Contains(i.Criticals, a.Rule) {
		return false
	}
	i.Criticals = append(i.Criticals, a.Rule)
	return true
}

// note keeps an alarm with the others, and reports whether that is more than a higher count. Where
// there is no place, it takes that of one that is less severe, or of the last of a kind that has
// several.
func (i *Incident) note(a Alarm) (material bool) {
	if at := slices.IndexFunc(i.Alarms, a.repeats); at >= 0 {
		o := &i.Alarms[at]
		o.Times++
		o.Time, o.Text = a.Time, a.Text
		material = a.Severity > o.Severity
		o.Severity = max(o.Severity, a.Severity)
		return material
	}
	if len(i.Alarms) < maxAlarms {
		i.Alarms = append(i.Alarms, a)
		return true
	}
	i.OtherAlarms++
	is := func(rule string) func(Alarm) bool { return func(o Alarm) bool { return o.Rule == rule } }
	known := slices.ContainsFunc(i.Alarms, is(a.Rule))
	for k := len(i.Alarms) - 1; k > 0; k-- {
		o := &i.Alarms[k]
		several := slices.IndexFunc(i.Alarms, is(o.Rule)) < k
		if several && (!known || o.Severity < a.Severity) {
			*o = a
			return true
		}
	}
	return false
}

// ofMany reports whether a rule counts what many runs do.
func ofMany(rule string) bool { return strings.HasPrefix(rule, "spike.") && rule != "spike.run" }

// Told reports whether an incident has an alarm of that rule, subject and run.
func (b *Book) Told(a Alarm) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.Subject = cut(a.Subject, maxSubject)
	i := b.by[a.fingerprint()]
	switch {
	case i == nil || string(a.Subject) != a.Run && i.run(a.Run) == nil:
		return false
	case isAct(a.Rule) && string(a.Subject) == a.Run:
		return i.OtherAlarms > 0 || slices.ContainsFunc(i.Alarms, a.repeats)
	}
	return true
}

// isAct reports whether a rule is of single acts.
func isAct(rule string) bool { return strings.HasPrefix(rule, "sign.") }

// repeats reports whether an alarm is one that is known, come again. Acts of a run that say
// something else are others.
func (a *Alarm) repeats(known Alarm) bool {
	return known.fingerprint() == a.fingerprint() && (a.Run == "" || !isAct(a.Rule) || known.Text == a.Text)
}

// newID is short enough to be typed and sorts by time.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system has no randomness
	}
	text := strings.ReplaceAll(id.String(), "-", "")
	return text[:12] + text[24:]
}
