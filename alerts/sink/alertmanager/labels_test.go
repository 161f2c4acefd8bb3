package alertmanager

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
)

// teller tells notices to a server that keeps the alerts of the last.
type teller struct {
	t      *testing.T
	s      sink.Sink
	ref    json.RawMessage
	alerts []alert
}

func newTeller(t *testing.T, m message.Options) *teller {
	t.Helper()
	l := &teller{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l.alerts = nil
		if err := json.NewDecoder(r.Body).Decode(&l.alerts); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	l.s = New(Options{URL: server.URL, Client: sink.NewClient(nil), Message: m})
	return l
}

func (l *teller) tell(what sink.What, i *incident.Incident) []alert {
	l.t.Helper()
	ref, err := l.s.Send(l.t.Context(), &sink.Notice{What: what, Incident: i, Ref: l.ref})
	if err != nil {
		l.t.Fatal(err)
	}
	l.ref = ref
	return l.alerts
}

// Labels are kept, whatever becomes known later, but for the severity, where the alert as it was is
// ended; an incident that opens again is about something else, and has labels of its own.
func TestLabelsStay(t *testing.T) {
	l := newTeller(t, message.Options{Host: "box7"})
	i := &incident.Incident{ID: "abc", Severity: incident.Warning, State: incident.Open, Opened: time.Now(), Alarms: []incident.Alarm{{Rule: "sign.blind", Text: "a disk is full"}}}
	first := l.tell(sink.Opened, i)[0]

	i.Runs = []incident.Run{{Run: "run-1", Caller: "1000 (ann)", Profile: "offline"}}
	again := l.tell(sink.Repeated, i)
	if len(again) != 1 || !maps.Equal(again[0].Labels, first.Labels) {
		t.Errorf("with a run: %+v, first %+v", again, first)
	}

	i.Severity = incident.Critical
	risen := l.tell(sink.Updated, i)
	if len(risen) != 2 || risen[0].Labels["severity"] != "critical" || risen[0].Labels["caller"] != "" || !maps.Equal(risen[1].Labels, first.Labels) || risen[1].EndsAt.After(time.Now()) {
		t.Errorf("more severe: %+v", risen)
	}

	i.State, i.Resolved = incident.Resolved, time.Now()
	end := l.tell(sink.Resolved, i)
	if len(end) != 1 || !maps.Equal(end[0].Labels, risen[0].Labels) || end[0].EndsAt.After(time.Now()) {
		t.Errorf("its end: %+v", end)
	}

	i.State, i.Resolved, i.Reopened, i.Severity = incident.Open, time.Time{}, 1, incident.Warning
	i.Alarms, i.Runs = []incident.Alarm{{Rule: "spike.run", Text: "many"}}, []incident.Run{{Run: "run-2", Caller: "1001 (bob)", Profile: "p"}, {Run: "run-3", Caller: "1002 (eve)", Profile: "q"}}
	i.Lead = "run-3"
	open := l.tell(sink.Reopened, i)
	want := map[string]string{"alertname": "ProctorIncident", "incident": "abc", "severity": "warning", "rule": "spike.run", "instance": "box7", "caller": "1002", "profile": "q"}
	if len(open) != 1 || !maps.Equal(open[0].Labels, want) || !open[0].EndsAt.After(time.Now()) {
		t.Errorf("open again: %+v", open)
	}
}

// Resolved and open again while Alertmanager was out of reach: the alert before has no other end.
func TestReopenedUnseen(t *testing.T) {
	l := newTeller(t, message.Options{})
	i := &incident.Incident{ID: "abc", State: incident.Open, Opened: time.Now(), Alarms: []incident.Alarm{{Rule: "sign.blind", Text: "x"}}}
	first := l.tell(sink.Opened, i)[0]
	i.Reopened, i.Alarms = 1, []incident.Alarm{{Rule: "spike.run", Text: "many"}}
	got := l.tell(sink.Updated, i)
	if len(got) != 2 || got[0].Labels["rule"] != "spike.run" || !maps.Equal(got[1].Labels, first.Labels) || got[1].EndsAt.After(time.Now()) {
		t.Errorf("%+v", got)
	}
}

func TestAnnotations(t *testing.T) {
	l := newTeller(t, message.Options{Host: "box7", Runbook: "https://runbook.example/x", WebURL: "https://web.example/", CodeLines: 20})
	a := l.tell(sink.Opened, &incident.Incident{
		ID: "abc", State: incident.Open, Opened: time.Now(), Attempts: 3, Alarms: []incident.Alarm{{Rule: "spike.run", Text: "many"}},
		Runs: []incident.Run{{Run: "run-1", Caller: "1000", Image: "shell", Profile: "offline", CodeSHA256: "aa", Code: "print(1)"}},
	})[0].Annotations
	for name := range a {
		if !regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`).MatchString(name) {
			t.Errorf("annotation %q", name)
		}
	}
	if a["runbook_url"] != "https://runbook.example/x" || a["summary"] == "" {
		t.Errorf("%v", a)
	}
	for name, want := range map[string]string{"Image, profile": "image_profile", "Code's sha256": "code_sha256", "Rule spike.run": "rule_spike_run", "See": "see"} {
		if got := key(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
