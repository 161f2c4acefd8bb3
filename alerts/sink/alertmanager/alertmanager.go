// Package alertmanager tells incidents to Prometheus Alertmanager by its API v2, as alerts that go
// on until they are resolved. Alertmanager tells people of the same alert once, however often it
// comes, and takes one for over that does not come again.
package alertmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/netpolicy/secret"
)

// Options of New.
type Options struct {
	URL     string // of Alertmanager, without a path of its API
	Client  *http.Client
	Message message.Options
}

// Alertmanager takes an alert for over that did not come for so long, if it comes each minute.
const (
	every = time.Minute
	lasts = 5 * time.Minute
)

type manager struct{ o Options }

// New returns a sink. Nothing is sent yet.
func New(o Options) sink.Sink { return sink.Guarded(manager{o}, secret.New([]byte(o.URL))) }

func (manager) Traits() sink.Traits { return sink.Traits{Edits: true, Once: true, Repeat: every} }

// An alert as API v2 has it. Labels are what it is known by, so they are few and don't change;
// annotations are what is shown.
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// A reference is the alert that an incident was told as.
type reference struct {
	Labels   map[string]string `json:"labels"`
	Reopened int               `json:"reopened,omitempty"` // as the incident had it
	Over     bool              `json:"over,omitempty"`     // its end was told
}

func (m manager) Send(ctx context.Context, n *sink.Notice) (json.RawMessage, error) {
	i := n.Incident
	var before reference
	if n.Ref != nil && json.Unmarshal(n.Ref, &before) != nil {
		before = reference{} // of another kind of sink that had this name
	}
	ref := reference{Labels: m.labels(n), Reopened: i.Reopened, Over: i.State == incident.Resolved && n.What != sink.Opened}
	if before.Labels != nil && before.Reopened == i.Reopened {
		// What an incident is about may be known better later; with other labels it would be
		// another alert. So it is with another severity, but routes go by that.
		severity := ref.Labels["severity"]
		ref.Labels = maps.Clone(before.Labels)
		ref.Labels["severity"] = severity
	}
	a := alert{Labels: ref.Labels, Annotations: m.annotations(n), StartsAt: i.Since, EndsAt: time.Now().Add(lasts)}
	if run := i.Leading(); run != nil && m.o.Message.WebURL != "" {
		a.GeneratorURL = m.o.Message.WebURL + run.Run
	}
	switch {
	case n.What == sink.Test:
		a.EndsAt = time.Now().Add(time.Minute)
	case i.State == incident.Resolved && n.What != sink.Opened:
		a.EndsAt = i.Resolved
	}
	list := []alert{a}
	if before.Labels != nil && !before.Over && !maps.Equal(before.Labels, ref.Labels) {
		old := a
		old.Labels, old.EndsAt = before.Labels, time.Now()
		list = append(list, old)
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, sink.Errorf(sink.Refused, "%w", err)
	}
	told, err := json.Marshal(ref)
	if err != nil {
		return nil, sink.Errorf(sink.Refused, "%w", err)
	}
	answer, err := sink.Post(ctx, m.o.Client, strings.TrimSuffix(m.o.URL, "/")+"/api/v2/alerts", body, nil)
	if err == nil && len(bytes.TrimSpace(answer)) > 0 && !json.Valid(answer) {
		err = sink.Unlike(answer, "nothing or JSON, as Alertmanager answers")
	}
	return told, err
}

// labels are those of an incident that was not told yet.
func (m manager) labels(n *sink.Notice) map[string]string {
	i := n.Incident
	l := map[string]string{"alertname": "ProctorIncident", "incident": i.ID, "severity": i.Severity.String(), "rule": i.Alarms[0].Rule}
	if n.What == sink.Test {
		l["alertname"] = "ProctorTest"
	}
	if m.o.Message.Host != "" {
		l["instance"] = m.o.Message.Host
	}
	if run := i.Leading(); run != nil {
		l["profile"] = run.Profile
		l["caller"], _, _ = strings.Cut(run.Caller, " ")
	}
	return l
}

func (m manager) annotations(n *sink.Notice) map[string]string {
	all := map[string]string{"summary": message.Headline(n)}
	if m.o.Message.Runbook != "" {
		all["runbook_url"] = m.o.Message.Runbook // as dashboards and templates know it
	}
	for _, f := range m.o.Message.Fields(n) {
		if k := key(f.Name); all[k] == "" {
			all[k] = f.Value
		} else {
			all[k] += "\n" + f.Value
		}
	}
	return all
}

// key makes an annotation's name of a field's: its words in lower case, with one _ between.
func key(name string) string {
	words := strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(name, "'s", "")), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "_")
}
