package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"proctor/audit"
	"proctor/supervisor"
)

func TestBudget(t *testing.T) {
	b := newBudget(10, 25)
	first, ok := b.take(1, 6)
	if !ok {
		t.Fatal("there is no room at all")
	}
	if _, ok := b.take(1, 5); ok {
		t.Error("more than there is was given")
	}
	second, ok := b.take(2, 10)
	if !ok {
		t.Error("one caller's use is another's")
	}
	third, ok := b.take(1, 4)
	if !ok {
		t.Error("the rest was not given")
	}
	if _, ok := b.take(3, 6); ok {
		t.Error("more than all may have together was given")
	}
	first()
	second()
	third()
	if len(b.used) != 0 || b.sum != 0 {
		t.Errorf("left: %v", b.used)
	}
}

// Requests that are not answered yet have a bound in bytes, which is not that of others'.
func TestBodiesAreBounded(t *testing.T) {
	f, c := serveWith(t, func(s *Server) { s.bodies = newBudget(3<<20, 1<<30) })
	going, end := make(chan struct{}), make(chan struct{})
	f.onRun(func(context.Context, *supervisor.Request, supervisor.Observer) (*audit.Verdict, error) {
		going <- struct{}{}
		<-end
		return &audit.Verdict{Run: myRun}, nil
	})
	request := &RunRequest{Language: "sh", Code: bytes.Repeat([]byte("#"), 1<<20)} // 4/3 of it in base64
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := c.Run(context.Background(), request, nil, RunHandler{})
			done <- err
		}()
		<-going
	}
	var e *Error
	if _, err := c.Run(t.Context(), request, nil, RunHandler{}); !errors.As(err, &e) || e.Code != http.StatusTooManyRequests || e.RetryAfter == 0 || !strings.Contains(e.Message, "may have 3145728 together") {
		t.Errorf("%+v", err)
	}
	close(end)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	go func() { <-going }()
	if err := takenAtLast(func() error { _, err := c.Run(t.Context(), request, nil, RunHandler{}); return err }); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// Connections that say nothing have a bound; those who come when they are gone are served.
func TestConnectionsAreBounded(t *testing.T) {
	_, c := serveWith(t, func(s *Server) { s.connections = newBudget(5, 100) })
	var open []net.Conn
	closed := func(conn net.Conn, within time.Duration) bool {
		conn.SetReadDeadline(time.Now().Add(within))
		_, err := conn.Read(make([]byte, 1))
		var n net.Error
		return !errors.As(err, &n) || !n.Timeout()
	}
	for i := range 7 {
		conn, err := net.Dial("unix", c.Socket)
		must(t, err)
		defer conn.Close()
		beyond, within := i >= 5, 300*time.Millisecond
		if beyond {
			within = 10 * time.Second
		}
		if closed(conn, within) != beyond {
			t.Errorf("connection %d: closed is %v", i, !beyond)
		}
		open = append(open, conn)
	}
	for _, conn := range open {
		conn.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := c.Status(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Open inputs have a bound, whether a run has them or nobody took them yet.
func TestOpenInputsAreBounded(t *testing.T) {
	f, c := serveWith(t, func(s *Server) { s.descriptors = newBudget(5, 100) })
	going, end := make(chan struct{}), make(chan struct{})
	f.onRun(func(context.Context, *supervisor.Request, supervisor.Observer) (*audit.Verdict, error) {
		going <- struct{}{}
		<-end
		return &audit.Verdict{Run: myRun}, nil
	})
	run := func(n int) error {
		q := runRequest()
		q.Inputs = make([]audit.Text, n)
		_, err := c.Run(context.Background(), q, inputs(t, n), RunHandler{})
		return err
	}
	done := make(chan error, 1)
	go func() { done <- run(3) }()
	<-going
	before := descriptors(t)
	var e *Error
	if err := run(3); !errors.As(err, &e) || e.Code != http.StatusTooManyRequests || e.RetryAfter == 0 || !strings.Contains(e.Message, "may be 5 together") {
		t.Errorf("%+v", err)
	}
	closedSoon(t, before+3) // the test's own
	close(end)
	must(t, <-done)
	go func() { <-going }()
	if err := takenAtLast(func() error { return run(5) }); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// takenAtLast runs until it is not told to come again: what a run had is given back just after
// its caller has the verdict.
func takenAtLast(run func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := run()
		var e *Error
		if !errors.As(err, &e) || e.Code != http.StatusTooManyRequests || time.Now().After(deadline) {
			return err
		}
	}
}

// A caller who does not read has its next ones wait, and no others.
func TestFewAnswersAtATime(t *testing.T) {
	s := &Server{asking: newBudget(1, 100)}
	held, going := make(chan struct{}), make(chan struct{}, 1)
	h := s.few(func(http.ResponseWriter, *http.Request, *peer) error {
		going <- struct{}{}
		<-held
		return nil
	})
	ask := func(ctx context.Context, uid uint32) chan error {
		done := make(chan error, 1)
		p := &peer{}
		p.UID = uid
		go func() { done <- h(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil), p) }()
		return done
	}
	first := ask(t.Context(), 1)
	<-going
	ctx, cancel := context.WithCancel(t.Context())
	gone := ask(ctx, 1)
	waits := ask(t.Context(), 1)
	other := ask(t.Context(), 2)
	<-going
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("one that went away: %v", err)
	}
	select {
	case <-waits:
		t.Error("a second of one caller did not wait")
	case <-going:
		t.Error("a second of one caller went on beside the first")
	case <-time.After(100 * time.Millisecond):
	}
	close(held)
	<-going
	for _, done := range []chan error{first, waits, other} {
		must(t, <-done)
	}
}

// What a caller wrote stands in the log as far as one needs to know it by.
func TestLogIsClipped(t *testing.T) {
	var log bytes.Buffer
	newRefusals(slog.New(slog.NewTextHandler(&log, nil))).note(httptest.NewRequest("GET", "/"+strings.Repeat("p", 100_000), nil), nil,
		&Error{Code: 400, Refused: true, Message: strings.Repeat("\xff\u2028m", 1<<20)})
	if n := log.Len(); n < 1000 || n > 10_000 || !strings.Contains(log.String(), "(5242880 bytes)") {
		t.Errorf("%d bytes: %.300s", n, &log)
	}
}

// A list of a request's takes no more memory than any may have.
func TestListsAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		`null`: "", `[]`: "", `["a", "b"]`: "", `{"a": 1}`: "not an array", `"a"`: "not an array", `[1]`: "number", `[[]]`: "array",
		"[" + strings.Repeat(`"",`, maxList-1) + `""]`: "", "[" + strings.Repeat(`"",`, maxList) + `""]`: "more than 8192 elements",
	} {
		var q RunRequest
		err := json.Unmarshal([]byte(`{"allow":`+text+`}`), &q)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v", text, err)
		}
		var plain struct{ Allow []string }
		if err == nil && json.Unmarshal([]byte(`{"allow":`+text+`}`), &plain) == nil && !slices.Equal(plain.Allow, q.Allow) {
			t.Errorf("%.40s: %.40q, not %.40q", text, q.Allow, plain.Allow)
		}
	}
}
