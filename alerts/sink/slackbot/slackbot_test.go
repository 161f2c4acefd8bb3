package slackbot

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slack-go/slack/slacktest"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/netpolicy/secret"
)

func opened() *incident.Incident {
	return &incident.Incident{ID: "abcdef", State: incident.Open, Severity: incident.Critical, Opened: time.Now(), Alarms: []incident.Alarm{{Rule: "spike.run", Text: "25 blocked attempts"}}}
}

// slack-go's own server takes what is sent.
func TestSlackTest(t *testing.T) {
	server := slacktest.NewTestServer()
	server.Start()
	defer server.Stop()
	s := New(Options{Token: secret.New([]byte("xoxb-1")), Channel: "C1", APIURL: server.GetAPIURL(), Client: sink.NewClient(nil)})
	ref, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: opened()})
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(ref, &r); err != nil || r.TS == "" || r.Channel != "C1" {
		t.Errorf("reference %s: %v", ref, err)
	}
}

// call is one that a server got.
type call struct {
	method string
	values url.Values
}

type fake struct {
	*httptest.Server
	mu      sync.Mutex
	calls   []call
	answers map[string]string // by method; default: ok
	status  int
	header  http.Header
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{answers: map[string]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		f.calls = append(f.calls, call{strings.TrimPrefix(r.URL.Path, "/"), r.PostForm})
		if r.Header.Get("Authorization") != "Bearer xoxb-1" && r.PostForm.Get("token") != "xoxb-1" {
			t.Error("the token is not there")
		}
		for name := range f.header {
			w.Header().Set(name, f.header.Get(name))
		}
		if f.status != 0 {
			w.WriteHeader(f.status)
			return
		}
		answer := f.answers[strings.TrimPrefix(r.URL.Path, "/")]
		if answer == "" {
			answer = fmt.Sprintf(`{"ok":true,"channel":"C9","ts":"1.%d"}`, len(f.calls))
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) sink() sink.Sink {
	return New(Options{Token: secret.New([]byte("xoxb-1")), Channel: "C1", APIURL: f.URL + "/", Client: sink.NewClient(nil)})
}

// One message for an incident, edited as it grows, and a line in its thread where people should
// be notified.
func TestEditsAndThread(t *testing.T) {
	f := newFake(t)
	s := f.sink()
	i := opened()
	ref, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: i, Loud: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Updated, Incident: i, Ref: ref}); err != nil {
		t.Fatal(err)
	}
	i.State = incident.Resolved
	if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Resolved, Incident: i, Ref: ref, Loud: true}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range f.calls {
		got = append(got, fmt.Sprintf("%s %s %s %s", c.method, c.values.Get("channel"), c.values.Get("ts"), c.values.Get("thread_ts")))
	}
	want := []string{"chat.postMessage C1  ", "chat.update C9 1.1 ", "chat.update C9 1.1 ", "chat.postMessage C9  1.1"}
	if !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	if f.calls[0].values.Get("blocks") == "" || f.calls[0].values.Get("text") == "" {
		t.Errorf("no blocks or text: %v", f.calls[0].values)
	}
}

// Of many incidents in one message, each goes on in its thread. A message that is gone is made again.
func TestCatchUpAndDeleted(t *testing.T) {
	f := newFake(t)
	s := f.sink()
	i := opened()
	ref, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: i, CatchUp: []*incident.Incident{i, i}})
	if err != nil {
		t.Fatal(err)
	}
	own, err := s.Send(t.Context(), &sink.Notice{What: sink.Updated, Incident: i, Ref: ref})
	if err != nil || own == nil {
		t.Fatal(own, err)
	}
	f.answers["chat.update"] = `{"ok":false,"error":"message_not_found"}`
	again, err := s.Send(t.Context(), &sink.Notice{What: sink.Updated, Incident: i, Ref: own})
	if err != nil || again == nil {
		t.Fatal(again, err)
	}
	last := f.calls[len(f.calls)-1]
	if f.calls[1].values.Get("thread_ts") != "1.1" || last.method != "chat.postMessage" || last.values.Get("channel") != "C1" {
		t.Errorf("calls %+v", f.calls)
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		status  int
		header  http.Header
		answer  string
		outcome sink.Outcome
		after   time.Duration
	}{
		{status: 429, header: http.Header{"Retry-After": {"7"}}, outcome: sink.Unknown, after: 7 * time.Second},
		{status: 500, outcome: sink.Unknown},
		{status: 403, outcome: sink.Refused},
		{answer: `{"ok":false,"error":"invalid_auth"}`, outcome: sink.Refused},
		{answer: `{"ok":false,"error":"channel_not_found"}`, outcome: sink.Refused},
		{answer: `{"ok":false,"error":"not_in_channel"}`, outcome: sink.Refused},
		{answer: `{"ok":false,"error":"internal_error"}`, outcome: sink.Unknown},
		{answer: `{"ok":false,"error":"restricted_action"}`, outcome: sink.Refused},
		{answer: `{"ok":false,"error":"invalid_blocks"}`, outcome: sink.Unfit},
		{answer: `{"ok":false,"error":"msg_too_long"}`, outcome: sink.Unfit},
		{answer: `not json`, outcome: sink.Unknown},
		{answer: `{}`, outcome: sink.Unknown},
		{answer: `{"ok":true}`, outcome: sink.Unknown},
		{answer: `{"ok":true,"channel":"C9","ts":"1.1","message":{"text":"` + strings.Repeat("x", 2<<20) + `"}}`, outcome: sink.Unknown},
		{status: 429, header: http.Header{"Retry-After": {"999999999"}}, outcome: sink.Unknown, after: time.Hour},
		{status: 429, header: http.Header{"Retry-After": {"9223372037"}}, outcome: sink.Unknown, after: time.Hour},
		{status: 429, header: http.Header{"Retry-After": {"99999999999999999999999"}}, outcome: sink.Unknown, after: time.Hour},
		{status: 429, header: http.Header{"Retry-After": {"-5"}}, outcome: sink.Unknown},
		{status: 503, header: http.Header{"Retry-After": {"Wed, 21 Oct 2099 07:28:00 GMT"}}, outcome: sink.Unknown, after: time.Hour},
		{status: 429, header: http.Header{"Retry-After": {"Wed, 21 Oct 2099 07:28:00 GMT"}}, outcome: sink.Unknown, after: time.Hour},
	} {
		f := newFake(t)
		f.status, f.header, f.answers["chat.postMessage"] = test.status, test.header, test.answer
		_, err := f.sink().Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: opened()})
		if e := sink.As(err); err == nil || e.Outcome != test.outcome || e.RetryAfter != test.after || strings.Contains(e.Error(), "xoxb") {
			t.Errorf("%d %v %.100s: %+v", test.status, test.header, test.answer, err)
		}
		if len(f.calls) != 1 {
			t.Errorf("%d %.100s: %d calls", test.status, test.answer, len(f.calls))
		}
	}
	gone := newFake(t)
	gone.Close()
	_, err := gone.sink().Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: opened()})
	if e := sink.As(err); e.Outcome != sink.NotSent {
		t.Errorf("nobody there: %+v", e)
	}
}

// An edit that Slack does not confirm was none.
func TestUnconfirmedEdit(t *testing.T) {
	f := newFake(t)
	f.answers["chat.update"] = `{"ok":true}`
	_, err := f.sink().Send(t.Context(), &sink.Notice{What: sink.Updated, Incident: opened(), Ref: json.RawMessage(`{"channel":"C9","ts":"1.1"}`)})
	if e := sink.As(err); err == nil || e.Outcome != sink.Unknown {
		t.Errorf("%+v", err)
	}
}

// Slack says back all that it was sent, with escapes.
func TestLongAnswer(t *testing.T) {
	f := newFake(t)
	f.answers["chat.postMessage"] = `{"ok":true,"channel":"C9","message":{"text":"` + strings.Repeat(`\u65e5`, 50*3000) + `"},"ts":"1.1"}`
	if _, err := f.sink().Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: opened()}); err != nil {
		t.Error(err)
	}
}

// The URL of another Slack is taken with and without its last slash.
func TestURL(t *testing.T) {
	f := newFake(t)
	for _, path := range []string{"/api", "/api/"} {
		s := New(Options{Token: secret.New([]byte("xoxb-1")), Channel: "C1", APIURL: f.URL + path, Client: sink.NewClient(nil)})
		if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: opened()}); err != nil {
			t.Error(err)
		}
		if got := f.calls[len(f.calls)-1].method; got != "api/chat.postMessage" {
			t.Errorf("%s: %s", path, got)
		}
	}
}
