// Package pagerduty tells incidents to PagerDuty by its Events API v2, which makes one incident of
// all events with one dedup_key: https://developer.pagerduty.com/docs/events-api-v2-overview
package pagerduty

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/netpolicy/secret"
)

// DefaultURL is PagerDuty's.
const DefaultURL = "https://events.pagerduty.com/v2/enqueue"

// Options of New.
type Options struct {
	RoutingKey secret.Secret // of the service's integration
	URL        string        // empty: DefaultURL
	Client     *http.Client
	Message    message.Options
}

type pager struct{ o Options }

// New returns a sink. Nothing is sent yet.
func New(o Options) sink.Sink {
	secrets := []secret.Secret{o.RoutingKey, secret.New([]byte(o.URL))}
	if o.URL == "" {
		o.URL = DefaultURL
	}
	return sink.Guarded(pager{o}, secrets...)
}

func (pager) Traits() sink.Traits { return sink.Traits{Edits: true, Once: true} }

// An event as the API has it.
type event struct {
	RoutingKey  string   `json:"routing_key"`
	EventAction string   `json:"event_action"`
	DedupKey    string   `json:"dedup_key"`
	Client      string   `json:"client,omitempty"`
	ClientURL   string   `json:"client_url,omitempty"`
	Payload     *payload `json:"payload,omitempty"`
}

type payload struct {
	Summary       string            `json:"summary"` // at most 1,024 characters
	Source        string            `json:"source"`
	Severity      string            `json:"severity"` // critical, error, warning or info
	Timestamp     time.Time         `json:"timestamp"`
	Component     string            `json:"component"`
	CustomDetails map[string]string `json:"custom_details"`
}

const (
	maxSummary = 1024
	maxDetail  = 4000 // an event is at most 512 KB
)

func (p pager) Send(ctx context.Context, n *sink.Notice) (json.RawMessage, error) {
	i := n.Incident
	e := event{
		RoutingKey: string(p.o.RoutingKey.Reveal()), EventAction: "trigger", DedupKey: "proctor-" + i.ID, Client: "Proctor",
		Payload: &payload{
			Summary: cut(message.Headline(n), maxSummary), Source: p.o.Message.Host, Severity: i.Severity.String(), Timestamp: i.Opened, Component: "proctor",
			CustomDetails: map[string]string{},
		},
	}
	if e.Payload.Source == "" {
		e.Payload.Source = "proctor"
	}
	for _, f := range p.o.Message.Fields(n) {
		value := f.Value
		if before := e.Payload.CustomDetails[f.Name]; before != "" { // several alarms of one rule
			value = before + "\n" + value
		}
		e.Payload.CustomDetails[f.Name] = cut(value, maxDetail)
	}
	if run := i.Leading(); p.o.Message.WebURL != "" && run != nil {
		e.ClientURL = p.o.Message.WebURL + run.Run
	}
	switch {
	case n.What == sink.Test: // it is over at once
		if err := p.send(ctx, &e); err != nil {
			return nil, err
		}
		e.EventAction, e.Payload = "resolve", nil
	case i.State == incident.Resolved && n.What != sink.Opened:
		e.EventAction, e.Payload = "resolve", nil
	case i.Ack != nil:
		e.EventAction = "acknowledge"
	}
	return nil, p.send(ctx, &e)
}

func (p pager) send(ctx context.Context, e *event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return sink.Errorf(sink.Refused, "%w", err)
	}
	answer, err := sink.Post(ctx, p.o.Client, p.o.URL, body, nil)
	if err != nil {
		if e := sink.As(err); e.Outcome == sink.Unfit && bytes.Contains(answer, []byte("routing_key")) {
			e.Outcome = sink.Refused // it is the same in all messages
		}
		return err
	}
	var said struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(answer, &said) != nil || said.Status != "success" {
		return sink.Unlike(answer, `{"status": "success"}, as PagerDuty answers`)
	}
	return nil
}

// cut is at most so many characters.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
