package message

import (
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// grown is an incident that opened again, in which a later run does most.
func grown() *incident.Incident {
	return &incident.Incident{
		ID: "abc", State: incident.Open, Severity: incident.Critical, Opened: begin, Since: begin.Add(time.Hour), Reopened: 2, Attempts: 1140,
		Alarms: []incident.Alarm{
			{Rule: "spike.run", Subject: "run-1", Run: "run-1", Severity: incident.Warning, Text: "25 blocked attempts of one run in 1m: the limit is 25"},
			{Rule: "spike.run", Subject: "run-2", Run: "run-2", Severity: incident.Warning, Text: "25 blocked attempts of one run in 1m: the limit is 25", Times: 3},
		},
		Destinations: []incident.Tally{{Name: "198.51.100.0/24", Count: 1000}, {Name: "evil.example", Count: 140}},
		Lead:         "run-2",
		Runs: []incident.Run{
			{Run: "run-1", Caller: "1000 (ann)", Agent: "small", Attempts: 40, Ended: true, CodeSHA256: "first"},
			{Run: "run-2", Caller: "1001 (bob)", Agent: "big", Attempts: 1100, CodeSHA256: "second", Code: "import os\n\tx = 1\n"},
			{Run: "run-3", Caller: "1001 (bob)", Agent: "big", Attempts: 0, Ended: true},
		},
	}
}

func text(o Options, n *sink.Notice) string {
	var b strings.Builder
	b.WriteString(Headline(n) + "\n")
	for _, f := range o.Fields(n) {
		b.WriteString(f.Name + ": " + f.Value + "\n")
	}
	return b.String()
}

// What is said first is about the run that matters, and says why, who, and what can be done.
func TestFields(t *testing.T) {
	got := text(Options{Host: "box7", CodeLines: 20, WebURL: "https://web.example/"}, &sink.Notice{What: sink.Reopened, Incident: grown()})
	const want = `CRITICAL (open again): 25 blocked attempts of one run in 1m: the limit is 25; agent big; caller 1001 (bob)
Incident: abc
Host: box7
Since: 2026-03-01T13:00:00Z
Before: opened 2026-03-01T12:00:00Z, and 2 times again since
Critical: for 1140 attempts
Rule spike.run: 25 blocked attempts of one run in 1m: the limit is 25: run-1
Rule spike.run: 25 blocked attempts of one run in 1m: the limit is 25: run-2 (3 times)
Caller: 1001 (bob)
Agent: big
Others: 1000 (ann), agent small
Runs: run-2 goes on, 1100 attempts
run-1 has ended, 40 attempts
run-3 has ended, 0 attempts
Blocked attempts: 1140
Destinations: 1000 × others in 198.51.100.0/24
140 × evil.example
Code's sha256: second
Code: import os
    x = 1
See: sudo proctor audit show run-2
Web: https://web.example/run-2
Then: sudo proctor alerts ack abc, and to end the run, sudo proctor kill run-2
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestHeadline(t *testing.T) {
	over := grown()
	over.State, over.Resolved = incident.Resolved, begin.Add(2*time.Hour)
	small := &incident.Incident{ID: "small", State: incident.Open, Alarms: []incident.Alarm{{Text: "little"}}}
	for what, test := range map[string]struct {
		n    *sink.Notice
		want string
	}{
		"told late": {&sink.Notice{What: sink.Opened, Incident: over}, "CRITICAL (is over, was not told before): 25"},
		"resolved":  {&sink.Notice{What: sink.Resolved, Incident: over}, "CRITICAL (resolved): 25"},
		"many":      {&sink.Notice{What: sink.Opened, Incident: small, CatchUp: []*incident.Incident{small, grown(), small}}, "3 incidents while this could not be reached, the worst CRITICAL: 25"},
	} {
		if got := Headline(test.n); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if got := Line(grown()); got != "abc CRITICAL, open, 25 blocked attempts of one run in 1m: the limit is 25; agent big; caller 1001 (bob), run run-2" {
		t.Errorf("line: %s", got)
	}
}

// Of an incident that is over there is nothing to do.
func TestOver(t *testing.T) {
	over := grown()
	over.State, over.Resolved = incident.Resolved, begin.Add(2*time.Hour)
	if got := text(Options{}, &sink.Notice{What: sink.Resolved, Incident: over}); strings.Contains(got, "Then: ") || !strings.Contains(got, "Resolved: 2026-03-01T14:00:00Z") {
		t.Errorf("got:\n%s", got)
	}
}
