package pagerduty

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/netpolicy/secret"
)

func TestEvents(t *testing.T) {
	var events []event
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		events = append(events, e)
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"status":"success","message":"Event processed","dedup_key":"proctor-abc"}`))
	}))
	defer server.Close()
	s := New(Options{RoutingKey: secret.New([]byte("key")), URL: server.URL, Client: sink.NewClient(nil), Message: message.Options{WebURL: "https://web.example/", CodeLines: 20}})
	i := &incident.Incident{
		ID: "abc", Severity: incident.Critical, State: incident.Open, Opened: time.Now(),
		Alarms: []incident.Alarm{{Rule: "spike.run", Text: "many " + "x"}, {Rule: "spike.run", Text: "more"}}, Runs: []incident.Run{{Run: "run-1"}},
	}
	i.Alarms[0].Text += "\x1b"
	for _, change := range []func(){func() {}, func() { i.Ack = &incident.Ack{By: "ann"} }, func() { i.State = incident.Resolved }} {
		change()
		if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Updated, Incident: i}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Test, Incident: i}); err != nil {
		t.Fatal(err)
	}
	i.State = incident.Resolved // over before it could be told
	if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: i}); err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range events {
		actions = append(actions, e.EventAction)
		if e.DedupKey != "proctor-abc" || e.RoutingKey != "key" {
			t.Errorf("%+v", e)
		}
	}
	if want := []string{"trigger", "acknowledge", "resolve", "trigger", "resolve", "acknowledge"}; !slices.Equal(actions, want) {
		t.Errorf("actions %q, want %q", actions, want)
	}
	p := events[0].Payload
	if p.Severity != "critical" || p.Source != "proctor" || strings.Contains(p.Summary, "\x1b") || !strings.HasSuffix(p.CustomDetails["Rule spike.run"], "\nmore") || p.CustomDetails["See"] != "sudo proctor audit show run-1" || events[0].ClientURL != "https://web.example/run-1" {
		t.Errorf("payload %+v, %s", p, events[0].ClientURL)
	}
}

// A wrong key is the same in all messages, so it is no matter of one.
func TestRoutingKeyRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"status":"invalid event","message":"Event object is invalid","errors":["Length of 'routing_key' is incorrect (should be 32 characters)"]}`))
	}))
	defer server.Close()
	s := New(Options{RoutingKey: secret.New([]byte("too short")), URL: server.URL, Client: sink.NewClient(nil)})
	_, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: &incident.Incident{ID: "abc", Alarms: []incident.Alarm{{Rule: "spike.run"}}}})
	if e := sink.As(err); err == nil || e.Outcome != sink.Refused {
		t.Errorf("%+v", err)
	}
}
