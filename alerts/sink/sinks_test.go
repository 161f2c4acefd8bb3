package sink_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/alerts/sink/alertmanager"
	"proctor/alerts/sink/pagerduty"
	"proctor/alerts/sink/slackbot"
	"proctor/alerts/sink/slackhook"
	"proctor/alerts/sink/webhook"
	"proctor/netpolicy/secret"
)

const (
	canary = "Canary5f3a9cB1"                 // in a file
	path   = "/services/T000/PathCanary77d1?" // with what follows in the URL
	query  = "key=QueryCanary0b42"
)

// kinds are all sinks, with what each takes for success.
var kinds = []struct {
	name   string
	make   func(url string, c *http.Client) sink.Sink
	status int
	yes    string
	portal bool // what takes any 2xx can't tell a portal
	secret bool // it has the canary
}{
	{"slack", func(url string, c *http.Client) sink.Sink {
		return slackbot.New(slackbot.Options{Token: secret.New([]byte(canary)), Channel: "C1", APIURL: strings.TrimSuffix(url, "?"+query), Client: c})
	}, 200, `{"ok":true,"channel":"C1","ts":"1.1"}`, false, true},
	{"slack-webhook", func(url string, c *http.Client) sink.Sink {
		return slackhook.New(slackhook.Options{URL: secret.New([]byte(url)), Client: c})
	}, 200, "ok", false, false},
	{"alertmanager", func(url string, c *http.Client) sink.Sink {
		return alertmanager.New(alertmanager.Options{URL: strings.TrimSuffix(url, "?"+query), Client: c})
	}, 200, "", false, false},
	{"webhook", func(url string, c *http.Client) sink.Sink {
		return webhook.New(webhook.Options{URL: url, Secret: secret.New([]byte(canary)), Client: c})
	}, 204, "", true, true},
	{"pagerduty", func(url string, c *http.Client) sink.Sink {
		return pagerduty.New(pagerduty.Options{RoutingKey: secret.New([]byte(canary)), URL: url, Client: c})
	}, 202, `{"status":"success","message":"Event processed","dedup_key":"x"}`, false, true},
}

// each has a notice be told by a sink of each kind to who answers.
func each(t *testing.T, answer http.HandlerFunc, check func(t *testing.T, kind int, took time.Duration, err error)) {
	t.Helper()
	eachIn(t, 30*time.Second, answer, check)
}

// eachIn does it with a client that waits for so long.
func eachIn(t *testing.T, timeout time.Duration, answer http.HandlerFunc, check func(t *testing.T, kind int, took time.Duration, err error)) {
	t.Helper()
	for k, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if answer == nil {
					w.WriteHeader(kind.status)
					_, _ = io.WriteString(w, kind.yes)
					return
				}
				answer(w, r)
			}))
			defer server.Close()
			client := sink.NewClient(nil)
			client.Timeout = timeout
			defer client.CloseIdleConnections()
			began := time.Now()
			_, err := kind.make(server.URL+path+query, client).Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: &incident.Incident{
				ID: "abc", State: incident.Open, Opened: time.Now(), Alarms: []incident.Alarm{{Rule: "spike.run", Text: "many"}},
			}})
			check(t, k, time.Since(began), err)
		})
	}
}

func TestSuccess(t *testing.T) {
	each(t, nil, func(t *testing.T, _ int, _ time.Duration, err error) {
		if err != nil {
			t.Error(err)
		}
	})
}

// Who answers may say back what it was sent.
func TestNoSecretInErrors(t *testing.T) {
	for _, status := range []int{200, 400, 404, 429, 500} {
		for name, say := range map[string]func(r *http.Request) string{
			"the URL":           func(r *http.Request) string { return "Cannot POST " + r.URL.String() },
			"it in lower case":  func(r *http.Request) string { return strings.ToLower(r.URL.String()) },
			"it escaped":        func(r *http.Request) string { return url.QueryEscape(r.URL.String()) },
			"it late":           func(r *http.Request) string { return strings.Repeat("-", 150) + r.URL.String() },
			"the secrets":       func(r *http.Request) string { return canary + " " + r.Header.Get("Authorization") },
			"a part":            func(*http.Request) string { return canary[:10] },
			"an error of Slack": func(*http.Request) string { return fmt.Sprintf(`{"ok":false,"error":"what is %s?"}`, canary) },
		} {
			each(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Retry-After", canary)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, say(r))
			}, func(t *testing.T, kind int, _ time.Duration, err error) {
				if err == nil {
					if status != 200 || !kinds[kind].portal && kinds[kind].name != "alertmanager" {
						t.Errorf("%d, %s: taken for success", status, name)
					}
					return
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					text := strings.ToLower(e.Error())
					for _, s := range []string{canary[:10], "pathcanary", "querycanary"} {
						if strings.Contains(text, strings.ToLower(s)) && (s != canary[:10] || kinds[kind].secret) {
							t.Errorf("%d, %s: the error says %s", status, name, text)
						}
					}
				}
			})
		}
	}
}

// A portal before the network says that all is fine.
func TestPortal(t *testing.T) {
	each(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>Please accept our terms</html>")
	}, func(t *testing.T, kind int, _ time.Duration, err error) {
		if kinds[kind].portal {
			return
		}
		if e := sink.As(err); err == nil || e.Outcome != sink.Unknown || !strings.Contains(e.Error(), "accept our terms") || !strings.Contains(e.Error(), "portal") {
			t.Errorf("%+v", err)
		}
	})
}

// An answer that trickles is waited for as long as one that does not come.
func TestSlowAnswers(t *testing.T) {
	eachIn(t, 500*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}, func(t *testing.T, kind int, took time.Duration, err error) {
		if took > 20*time.Second || err == nil && !kinds[kind].portal && kinds[kind].name != "alertmanager" {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// An answer without an end is given up, and not kept.
func TestEndlessAnswers(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	block := []byte(strings.Repeat("a", 1<<20))
	each(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ok":true,"error":"`)
		for range 200 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}, func(t *testing.T, kind int, _ time.Duration, err error) {
		if err == nil && !kinds[kind].portal {
			t.Error("taken for success")
		}
	})
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("allocated %d MiB", grown>>20)
	}
}

// What is wrong with one message is told from what is wrong with the sink.
func TestUnfit(t *testing.T) {
	for status, want := range map[int]sink.Outcome{400: sink.Unfit, 413: sink.Unfit, 415: sink.Unfit, 422: sink.Unfit, 401: sink.Refused, 403: sink.Refused, 404: sink.Refused, 406: sink.Refused} {
		each(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }, func(t *testing.T, _ int, _ time.Duration, err error) {
			if e := sink.As(err); err == nil || e.Outcome != want {
				t.Errorf("%d: outcome %d, want %d: %v", status, e.Outcome, want, err)
			}
		})
	}
}

// The link is of the run to look at first.
func TestLinks(t *testing.T) {
	for _, kind := range []string{"pagerduty", "alertmanager"} {
		var body []byte
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, `{"status":"success"}`)
		}))
		client, m := sink.NewClient(nil), message.Options{WebURL: "https://web.example/"}
		s := alertmanager.New(alertmanager.Options{URL: server.URL, Client: client, Message: m})
		if kind == "pagerduty" {
			s = pagerduty.New(pagerduty.Options{URL: server.URL, RoutingKey: secret.New([]byte(canary)), Client: client, Message: m})
		}
		_, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: &incident.Incident{
			ID: "abc", State: incident.Open, Alarms: []incident.Alarm{{Rule: "spike.run", Text: "many"}}, Runs: []incident.Run{{Run: "run-1"}, {Run: "run-2"}}, Lead: "run-2",
		}})
		server.Close()
		if err != nil || !strings.Contains(string(body), `_url":"https://web.example/run-2"`) && !strings.Contains(string(body), `generatorURL":"https://web.example/run-2"`) {
			t.Errorf("%s: %v: %s", kind, err, body)
		}
	}
}
