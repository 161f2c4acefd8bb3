// Package alerts watches what runs do for what somebody should be told of: too many blocked
// attempts (package spike) and single acts (package sign), which become incidents (package
// incident) that sinks are told of (packages outbox and sink).
package alerts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sign"
	"proctor/alerts/spike"
	"proctor/audit"
)

// Rules say what is an alarm. A kind that is missing is none.
type Rules struct {
	Spikes spike.Rules
	Signs  map[sign.Kind]incident.Severity
}

// DefaultSigns are all of them, with how severe each is.
func DefaultSigns() map[sign.Kind]incident.Severity {
	return map[sign.Kind]incident.Severity{
		sign.Metadata: incident.Critical, sign.Scrubbed: incident.Critical, sign.Mismatch: incident.Warning, sign.Finding: incident.Critical,
		sign.Escape: incident.Warning, sign.Tunnel: incident.Critical, sign.Blind: incident.Critical,
	}
}

// RuleNames are all that alarms have.
func RuleNames() (names []string) {
	for by := range spike.Defaults() {
		names = append(names, "spike."+string(by))
	}
	for _, kind := range sign.Kinds() {
		names = append(names, "sign."+string(kind))
	}
	slices.Sort(names)
	return append(names, incident.StormRule, incident.RefusedRule)
}

// A Watch turns events into alarms, and those into incidents of its book. It may be used by
// several goroutines.
type Watch struct {
	rules Rules
	book  *incident.Book
	left  bool // the book may have been told

	mu       sync.Mutex
	spikes   *spike.Detector
	signs    *sign.Detector
	profiles map[string]spike.Rule // of runs that began since
}

// New returns a Watch that has seen nothing.
func New(rules Rules, book *incident.Book) *Watch {
	w := &Watch{rules: rules, book: book, profiles: map[string]spike.Rule{}, signs: sign.New()}
	w.spikes = spike.New(spike.Options{Rules: rules.Spikes, Profile: func(name string) (spike.Rule, bool) {
		r, ok := w.profiles[name]
		return r, ok
	}})
	return w
}

// Profile notes what a profile's rule is now, for the runs that begin from now on.
func (w *Watch) Profile(name string, rule spike.Rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.profiles[name] = rule
}

// History copies what was learned of attempts.
func (w *Watch) History() *spike.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spikes.History()
}

// Learn has a Watch that has seen nothing go on with what another learned.
func (w *Watch) Learn(h *spike.History) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spikes.Learn(h)
}

// Left returns a Watch of one run that an earlier supervisor left: by the rules for single runs, and
// for what the book has not been told.
func (w *Watch) Left() *Watch {
	left := New(Rules{Spikes: spike.Rules{spike.ByRun: w.rules.Spikes[spike.ByRun]}, Signs: w.rules.Signs}, w.book)
	w.mu.Lock()
	defer w.mu.Unlock()
	left.profiles, left.left = maps.Clone(w.profiles), true
	return left
}

// Observe looks at an event. Most have nothing to do with alarms, and cost nothing. It returns the
// alarms that are new.
func (w *Watch) Observe(e *audit.Event) []incident.Alarm {
	counts := spike.Counts(e)
	if !counts && !sign.Looks(e) {
		return nil
	}
	var alarms []incident.Alarm
	w.mu.Lock()
	if counts {
		for _, a := range w.spikes.Observe(e) {
			alarms = append(alarms, OfSpike(a))
		}
	}
	for _, s := range w.signs.Observe(e) {
		if severity, on := w.rules.Signs[s.Kind]; on {
			alarms = append(alarms, OfSign(s, severity))
		}
	}
	w.mu.Unlock()
	w.book.Observe(e)
	if w.left {
		alarms = slices.DeleteFunc(alarms, w.book.Told)
	}
	for _, a := range alarms {
		w.book.Raise(a)
	}
	if e.End != nil {
		w.book.Ended(e.Run, e.Time)
	}
	return slices.DeleteFunc(alarms, func(a incident.Alarm) bool { return a.Again })
}

// OfSpike says in words what there was too much of.
func OfSpike(a spike.Alarm) incident.Alarm {
	of := map[spike.By]string{
		spike.ByRun: "of one run", spike.ByCaller: "of caller ", spike.ByAgent: "of agent ", spike.ByImage: "of runs of image ",
		spike.ByDestination: "at ", spike.ByHost: "of all runs",
	}[a.By]
	text := fmt.Sprintf("%d blocked attempts %s", a.Count, of)
	if a.By != spike.ByRun && a.By != spike.ByHost {
		text += a.Key
	}
	text += fmt.Sprintf(" in %s: the limit is %d", short(a.Rule.Window), a.Limit)
	if !a.Young {
		text += fmt.Sprintf(", where %.0f were expected", a.Expected)
	}
	return incident.Alarm{Time: a.Time, Rule: "spike." + string(a.By), Subject: audit.Text(a.Key), Severity: incident.Warning, Text: audit.Text(text), Run: a.Run, Again: a.Again}
}

// short is a duration without what is zero at its end.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

var signTexts = map[sign.Kind]string{
	sign.Metadata: "Attempt at the cloud's metadata service: ",
	sign.Scrubbed: "A credential stood in an answer, and was taken out: ",
	sign.Mismatch: "A connection that says it is for another host: ",
	sign.Finding:  "Kernel and gateway contradict each other: ",
	sign.Escape:   "A call that is for leaving a box was refused: ",
	sign.Tunnel:   "Many long names below one domain, as of data in questions: ",
	sign.Blind:    "Not everything is seen: ",
}

// OfSign says in words what was seen.
func OfSign(s sign.Sign, severity incident.Severity) incident.Alarm {
	return incident.Alarm{
		Time: s.Time, Rule: "sign." + string(s.Kind), Subject: audit.Text(cmp.Or(s.Subject, s.Run, s.What)), Severity: severity,
		Text: audit.Text(signTexts[s.Kind] + s.What), Run: s.Run,
	}
}
