package sink

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"proctor/alerts/incident"
)

// What is known after a request that went wrong; the URL, which may be a secret, is in no error.
func TestPostOutcomes(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not seen
		switch r.URL.Path {
		case "/secret/429":
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/secret/503":
			w.Header().Set("Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/secret/year":
			w.Header().Set("Retry-After", "99999999999")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/secret/400":
			w.WriteHeader(http.StatusBadRequest)
		case "/secret/403":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("no\x1b[31m"))
		case "/secret/302":
			http.Redirect(w, r, "/secret/200", http.StatusFound)
		case "/secret/hang":
			<-r.Context().Done()
		case "/secret/drop":
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
			}
			c.Close()
		}
	}))
	defer server.Close()
	client := NewClient(nil)
	client.Timeout = 30 * time.Second
	impatient := *client
	impatient.Timeout = 2 * time.Second
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + dead.Addr().String()
	dead.Close()
	for _, test := range []struct {
		url          string
		outcome      Outcome
		least, most  time.Duration
		fine, unseen bool
	}{
		{url: server.URL + "/secret/200", fine: true},
		{url: server.URL + "/secret/429", outcome: Unknown, least: 3 * time.Second, most: 3 * time.Second},
		{url: server.URL + "/secret/503", outcome: Unknown, least: 50 * time.Second, most: time.Minute},
		{url: server.URL + "/secret/year", outcome: Unknown, least: time.Hour, most: time.Hour},
		{url: server.URL + "/secret/400", outcome: Unfit},
		{url: server.URL + "/secret/403", outcome: Refused},
		{url: server.URL + "/secret/302", outcome: Refused},
		{url: server.URL + "/secret/drop", outcome: Unknown},
		{url: server.URL + "/secret/hang", outcome: Unknown},
		{url: nobody + "/secret/", outcome: NotSent, unseen: true},
		{url: "http://[::1", outcome: Refused, unseen: true},
	} {
		before := requests.Load()
		with := client
		if strings.HasSuffix(test.url, "/hang") {
			with = &impatient
		}
		_, err := Post(t.Context(), with, test.url, []byte(`{}`), nil)
		var e *Error
		switch {
		case test.fine:
			if err != nil {
				t.Errorf("%s: %v", test.url, err)
			}
		case !errors.As(err, &e) || e.Outcome != test.outcome || e.RetryAfter < test.least || e.RetryAfter > test.most:
			t.Errorf("%s: %+v", test.url, err)
		case strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\x1b"):
			t.Errorf("%s: the error says %q", test.url, err)
		}
		if n := requests.Load() - before; !test.unseen && n != 1 {
			t.Errorf("%s: %d requests", test.url, n)
		}
	}
}

// What is most severe is shown first, then what is newest.
func TestDigest(t *testing.T) {
	var n Notice
	at := time.Now()
	for k, severity := range []incident.Severity{incident.Info, incident.Critical, incident.Warning, incident.Critical} {
		n.CatchUp = append(n.CatchUp, &incident.Incident{ID: fmt.Sprint(k), Severity: severity, Opened: at.Add(time.Duration(k) * time.Second)})
	}
	var got string
	for _, i := range n.Digest() {
		got += i.ID
	}
	if got != "3120" || n.CatchUp[0].ID != "0" {
		t.Errorf("order %s; the notice begins with %s", got, n.CatchUp[0].ID)
	}
}
