package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"proctor/alerts"
	"proctor/alerts/incident"
	"proctor/alerts/outbox"
	"proctor/audit"
)

// Alarms is what the supervisor's alarms can be asked. Its methods are those of desk.Desk.
type Alarms interface {
	Book() *incident.Book
	Sinks() []outbox.Health
	Test(ctx context.Context, sink string) error
}

// Alerts is the answer of GET /v1/alerts.
type Alerts struct {
	Incidents []*incident.Incident `json:"incidents"` // the newest first
	Silences  []incident.Silence   `json:"silences"`
	Sinks     []outbox.Health      `json:"sinks"`
}

// AckRequest is the body of POST /v1/alerts/incidents/{id}/ack.
type AckRequest struct {
	Note audit.Text `json:"note,omitempty"`
}

// SilenceRequest is the body of POST /v1/alerts/silences.
type SilenceRequest struct {
	Matches incident.Matcher `json:"matches"`
	Seconds int64            `json:"seconds"`
	Reason  string           `json:"reason"`
}

// Silenced is the answer.
type Silenced struct {
	ID     string `json:"id"`
	Covers int    `json:"covers"` // open incidents that nobody is told of any more
}

// TestRequest is the body of POST /v1/alerts/test.
type TestRequest struct {
	Sink string `json:"sink,omitempty"` // empty: all
}

// Tested is what came of a test at a sink.
type Tested struct {
	Sink  string `json:"sink"`
	Error string `json:"error,omitempty"`
}

// Bounds of a silence.
const (
	maxSilence = 90 * 24 * time.Hour
	maxReason  = 1000
)

func (s *Server) alertRoutes(handle func(string, handler)) {
	operators := func(f handler) handler {
		return func(w http.ResponseWriter, r *http.Request, c *peer) error {
			if !c.Role.Operates() {
				return forbidden("alarms are for operators to change")
			}
			return f(w, r, c)
		}
	}
	handle("GET /v1/alerts", s.alerts)
	handle("POST /v1/alerts/incidents/{id}/ack", operators(s.acknowledge))
	handle("POST /v1/alerts/silences", operators(s.silence))
	handle("POST /v1/alerts/silences/{id}/expire", operators(s.expire))
	handle("POST /v1/alerts/test", operators(s.testSinks))
}

func (s *Server) alerts(w http.ResponseWriter, _ *http.Request, c *peer) error {
	if !c.Role.Sees() {
		return forbidden("alarms are about all callers' runs, which is for auditors")
	}
	a := Alerts{Incidents: s.Alarms.Book().List(), Silences: s.Alarms.Book().Silences(), Sinks: s.Alarms.Sinks()}
	if a.Sinks == nil {
		a.Sinks = []outbox.Health{}
	}
	reply(w, a)
	return nil
}

func (s *Server) acknowledge(w http.ResponseWriter, r *http.Request, c *peer) error {
	var q AckRequest
	if err := s.small(w, r, &q); err != nil {
		return err
	}
	if len(q.Note) > maxReason {
		return badAlert("the note has more than %d bytes", maxReason)
	}
	if err := s.Alarms.Book().Acknowledge(r.PathValue("id"), incident.Ack{By: userName(c.UID), Time: time.Now().UTC(), Note: q.Note}); err != nil {
		return unknownAlert(err)
	}
	return s.kept(w, struct{}{})
}

func (s *Server) silence(w http.ResponseWriter, r *http.Request, c *peer) error {
	var q SilenceRequest
	if err := s.small(w, r, &q); err != nil {
		return err
	}
	switch length := time.Duration(q.Seconds) * time.Second; {
	case q.Seconds <= 0 || q.Seconds > int64(maxSilence/time.Second):
		return badAlert("a silence of %s: it is at least a second and at most %s", length, maxSilence)
	case q.Reason == "":
		return badAlert("a silence needs a reason, which others will read")
	case len(q.Reason) > maxReason:
		return badAlert("the reason has more than %d bytes", maxReason)
	case q.Matches.Empty():
		return badAlert("a silence of everything: say which caller, agent, profile, image, rule, destination or incident")
	}
	if err := checkMatcher(q.Matches); err != nil {
		return err
	}
	now := time.Now().UTC()
	id, covers, err := s.Alarms.Book().Silence(incident.Silence{
		Matches: q.Matches, Begin: now, End: now.Add(time.Duration(q.Seconds) * time.Second), Reason: q.Reason, By: userName(c.UID),
	})
	if err != nil {
		return unknownAlert(err)
	}
	return s.kept(w, Silenced{ID: id, Covers: covers})
}

// checkMatcher refuses what can never match.
func checkMatcher(m incident.Matcher) error {
	if rules := alerts.RuleNames(); m.Rule != "" && !slices.ContainsFunc(rules, func(r string) bool { return r == m.Rule || strings.HasPrefix(r, m.Rule+".") }) {
		return badAlert("there is no rule %q: there are %s", m.Rule, strings.Join(rules, ", "))
	}
	if m.Caller != "" {
		_, err := strconv.ParseUint(m.Caller, 10, 32)
		if _, uerr := user.Lookup(m.Caller); err != nil && uerr != nil {
			return badAlert("caller %q is no user of this host, by name or number", m.Caller)
		}
	}
	if strings.ContainsFunc(m.Destination, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) || strings.Contains(m.Destination, "://") {
		return badAlert("destination %q is neither a host's name nor an address nor a network such as 192.0.2.0/24", m.Destination)
	}
	if strings.HasPrefix(m.Destination, "*") || strings.HasPrefix(m.Destination, ".") {
		return badAlert("destination %q: a name stands for what is below it, too: write %q", m.Destination, strings.TrimLeft(m.Destination, "*."))
	}
	if host, _, err := net.SplitHostPort(m.Destination); err == nil {
		return badAlert("destination %q: ports are no matter here: write %q", m.Destination, host)
	}
	if last := m.Destination[strings.LastIndexByte(m.Destination, '.')+1:]; last != "" && strings.Trim(last, "0123456789") == "" {
		if _, err := netip.ParseAddr(m.Destination); err != nil {
			return badAlert("destination %q is no address: %v", m.Destination, err)
		}
	}
	return nil
}

func (s *Server) expire(w http.ResponseWriter, r *http.Request, _ *peer) error {
	if err := s.Alarms.Book().Expire(r.PathValue("id"), time.Now().UTC()); err != nil {
		return unknownAlert(err)
	}
	return s.kept(w, struct{}{})
}

// kept answers once it is on the disk.
func (s *Server) kept(w http.ResponseWriter, v any) error {
	if err := s.Alarms.Book().Save(); err != nil {
		return err
	}
	reply(w, v)
	return nil
}

func (s *Server) testSinks(w http.ResponseWriter, r *http.Request, _ *peer) error {
	var q TestRequest
	if err := s.small(w, r, &q); err != nil {
		return err
	}
	all := []Tested{}
	for _, h := range s.Alarms.Sinks() {
		if q.Sink != "" && h.Sink != q.Sink {
			continue
		}
		t := Tested{Sink: h.Sink}
		if err := s.Alarms.Test(r.Context(), h.Sink); err != nil {
			t.Error = audit.Text(err.Error()).Printable()
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		if q.Sink != "" {
			return &Error{Code: http.StatusBadRequest, Refused: true, Message: fmt.Sprintf("there is no sink %q in proctor.yaml", q.Sink), Fix: "see `proctor alerts list` for those there are"}
		}
		return badAlert("no sinks are configured: see alerts.sinks in docs/alerts.md")
	}
	reply(w, all)
	return nil
}

func unknownAlert(err error) error {
	if errors.Is(err, incident.ErrUnknown) {
		return &Error{Code: http.StatusNotFound, Refused: true, Message: err.Error(), Fix: "see `proctor alerts list --all`"}
	}
	return err
}

// userName is who a caller is, for people.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

func badAlert(format string, args ...any) error {
	return &Error{Code: http.StatusBadRequest, Refused: true, Message: fmt.Sprintf(format, args...), Fix: "see `proctor alerts silence --help`"}
}

// small is a request's JSON that is no more than some KiB.
func (s *Server) small(w http.ResponseWriter, r *http.Request, into any) error {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	if err := s.readBody(w, r, into); err != nil {
		return &Error{Code: http.StatusBadRequest, Refused: true, Message: "request: " + err.Error(), Fix: "use a client of the supervisor's version, or see the documentation of the API"}
	}
	return nil
}

// Alerts returns what is kept of alarms.
func (c *Client) Alerts(ctx context.Context) (*Alerts, error) {
	a, err := get[Alerts](ctx, c, "/v1/alerts")
	return &a, err
}

// Acknowledge says that the caller looks after an incident.
func (c *Client) Acknowledge(ctx context.Context, id string, note audit.Text) error {
	return c.post(ctx, "/v1/alerts/incidents/"+url.PathEscape(id)+"/ack", AckRequest{Note: note}, &struct{}{})
}

// Silence begins a silence.
func (c *Client) Silence(ctx context.Context, q SilenceRequest) (Silenced, error) {
	var done Silenced
	err := c.post(ctx, "/v1/alerts/silences", q, &done)
	return done, err
}

// Expire ends a silence now.
func (c *Client) Expire(ctx context.Context, id string) error {
	return c.post(ctx, "/v1/alerts/silences/"+url.PathEscape(id)+"/expire", struct{}{}, &struct{}{})
}

// TestSinks sends a marked test to a sink, or to all for "".
func (c *Client) TestSinks(ctx context.Context, sink string) ([]Tested, error) {
	var tested []Tested
	err := c.post(ctx, "/v1/alerts/test", TestRequest{Sink: sink}, &tested)
	return tested, err
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	resp, err := c.do(ctx, http.MethodPost, path, bytes.NewReader(data), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("answer of the supervisor: %w", err)
	}
	return nil
}
