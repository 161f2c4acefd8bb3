package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
	"proctor/supervisor"
)

func TestRun(t *testing.T) {
	f, c := serve(t)
	files := inputs(t, 3)
	var passed []*os.File // held, so that nothing but a Close closes them
	f.onRun(func(_ context.Context, q *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
		if q.Caller != me() {
			t.Errorf("caller %+v, want %+v", q.Caller, me())
		}
		if diff := cmp.Diff([]string{"a", "\xff\\"}, q.Args); diff != "" || string(q.Code) != "echo \xff" || q.Language != "sh" || q.Name != "x.sh" || q.Limits.Memory != 5 {
			t.Errorf("request %+v, arguments %s", q, diff)
		}
		for i, in := range q.Inputs {
			passed = append(passed, in.File)
			content := make([]byte, 1)
			if _, err := in.File.ReadAt(content, 0); err != nil || string(content) != fmt.Sprint(i) || in.Name != fmt.Sprintf("in%d\xff", i) {
				t.Errorf("input %d is %q with %q, %v", i, in.Name, content, err)
			}
		}
		if len(q.Inputs) != 3 {
			t.Errorf("%d inputs", len(q.Inputs))
		}
		o.Admitted(myRun)
		var both sync.WaitGroup
		both.Go(func() {
			for range 100 {
				if err := o.Stdout([]byte("out\xff\n")); err != nil {
					t.Error(err)
				}
			}
		})
		both.Go(func() {
			for range 100 {
				if err := o.Stderr([]byte("err\n")); err != nil {
					t.Error(err)
				}
			}
		})
		both.Wait()
		return &audit.Verdict{Run: myRun, Status: audit.StatusExit, ExitCode: 3, Stdout: audit.Output{Head: []byte("\xff"), Total: 1}}, nil
	})
	q := runRequest()
	for i := range files {
		q.Inputs = append(q.Inputs, audit.Text(fmt.Sprintf("in%d\xff", i)))
	}
	before := descriptors(t)
	var o told
	v, err := c.Run(t.Context(), q, files, o.handler())
	must(t, err)
	if v.Status != audit.StatusExit || v.ExitCode != 3 || string(v.Stdout.Head) != "\xff" {
		t.Errorf("verdict %+v", v)
	}
	if diff := cmp.Diff([]string{myRun}, o.admitted); diff != "" {
		t.Error(diff)
	}
	if o.stdout.String() != strings.Repeat("out\xff\n", 100) || o.stderr.String() != strings.Repeat("err\n", 100) {
		t.Errorf("streams of %d and %d bytes", o.stdout.Len(), o.stderr.Len())
	}
	flat(t, before)
	for _, f := range passed {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("an input is open after the run: %v", err)
		}
	}
}

func TestRunErrors(t *testing.T) {
	f, c := serve(t)
	for _, test := range []struct {
		err     error
		code    int
		refused bool
		says    string
	}{
		{&supervisor.Refusal{What: "memory 1: too little", Fix: "ask for more"}, http.StatusUnprocessableEntity, true, "memory 1: too little: ask for more"},
		{fmt.Errorf("wrapped: %w", &supervisor.Refusal{What: "w", Fix: "f"}), http.StatusUnprocessableEntity, true, "w: f"},
		{supervisor.ErrStopping, http.StatusServiceUnavailable, false, "stopping"},
		{fmt.Errorf("run x: %w", audit.ErrNoRun), http.StatusNotFound, true, "no such run"},
		{errors.New("disk on fire\n"), http.StatusInternalServerError, false, "disk on fire"},
	} {
		f.onRun(func(context.Context, *supervisor.Request, supervisor.Observer) (*audit.Verdict, error) {
			return nil, test.err
		})
		var o told
		v, err := c.Run(t.Context(), runRequest(), nil, o.handler())
		var e *Error
		if v != nil || !errors.As(err, &e) || e.Code != test.code || e.Refused != test.refused || !strings.Contains(e.Error(), test.says) {
			t.Errorf("%v becomes %+v", test.err, err)
		}
		if len(o.admitted) > 0 {
			t.Errorf("%v: admitted", test.err)
		}
	}
}

func TestRunCountsInputs(t *testing.T) {
	f, c := serve(t)
	f.onRun(func(context.Context, *supervisor.Request, supervisor.Observer) (*audit.Verdict, error) {
		t.Error("it ran")
		return nil, errors.New("it ran")
	})
	before := descriptors(t)
	for _, test := range []struct{ named, passed int }{{1, 0}, {0, 1}, {2, 1}, {1, 250}} {
		q := runRequest()
		for i := range test.named {
			q.Inputs = append(q.Inputs, audit.Text(fmt.Sprint(i)))
		}
		files := inputs(t, test.passed)
		_, err := c.Run(t.Context(), q, files, RunHandler{})
		want := fmt.Sprintf("%d inputs named, %d descriptors passed", test.named, test.passed)
		var e *Error
		if !errors.As(err, &e) || e.Code != http.StatusBadRequest || !strings.Contains(e.Message, want) {
			t.Errorf("got %v, want %s", err, want)
		}
		for _, f := range files {
			f.Close()
		}
	}
	flat(t, before)
	if _, err := c.Run(t.Context(), runRequest(), make([]*os.File, maxDescriptors+1), RunHandler{}); err == nil || !strings.Contains(err.Error(), "254 inputs: at most 253") {
		t.Errorf("more than can be passed: %v", err)
	}
}

func TestMalformedRequests(t *testing.T) {
	f, c := serve(t)
	f.onRun(func(context.Context, *supervisor.Request, supervisor.Observer) (*audit.Verdict, error) {
		t.Error("it ran")
		return nil, errors.New("it ran")
	})
	for name, body := range map[string]string{
		"nothing": "", "no JSON": "run this", "list": "[]", "cut off": `{"language":"sh"`, "unknown field": `{"language":"sh","lang":"sh"}`, "wrong type": `{"code":7}`,
		"no base64": `{"code":"?"}`, "bad escape": `{"args":["\\q"]}`, "two objects": `{"language":"sh"}{"language":"sh"}`, "something after": `{"language":"sh"} x`,
		"too large": `{"code":"` + strings.Repeat("A", maxBody) + `"}`, "deep": strings.Repeat("[", 100_000), "huge number": `{"limits":{"memory":1e99}}`,
	} {
		code, answer := raw(t, c, http.MethodPost, "/v1/runs", body)
		var m Message
		if err := json.Unmarshal([]byte(answer), &m); err != nil || m.Error == nil || !m.Error.Refused || m.Error.Message == "" || m.Error.Fix == "" || code != http.StatusBadRequest {
			t.Errorf("%s: %d %.200s", name, code, answer)
		}
	}
	for _, path := range []string{"/", "/v1", "/v2/runs", "/v1/runs/" + myRun + "/x", "/v1/runs/" + myRun + "/outputs/"} {
		if code, _ := raw(t, c, http.MethodGet, path, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _ := raw(t, c, http.MethodDelete, "/v1/runs", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d", code)
	}
}

// A client that hangs up ends its run, however it sent its request.
func TestClientGone(t *testing.T) {
	f, c := serve(t)
	ended := make(chan error, 1)
	f.onRun(func(ctx context.Context, _ *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
		o.Admitted(myRun)
		select {
		case <-ctx.Done():
			ended <- context.Cause(ctx)
		case <-time.After(20 * time.Second):
			ended <- errors.New("nobody told it")
		}
		_ = o.Stdout([]byte("late")) // fails, or is lost
		return &audit.Verdict{Run: myRun}, nil
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	h := (&told{}).handler()
	gone := errors.New("interrupted")
	h.Admitted = func(string) { cancel(gone) }
	if _, err := c.Run(ctx, runRequest(), nil, h); !errors.Is(err, gone) {
		t.Errorf("the client is told %v", err)
	}
	if err := <-ended; !errors.Is(err, errClientGone) {
		t.Errorf("the run ended for %v", err)
	}

	// In chunks, as curl sends from a pipe.
	resp, err := rawResponse(t, c, http.MethodPost, "/v1/runs", io.MultiReader(strings.NewReader(`{"language":"sh"}`)))
	must(t, err)
	line := make([]byte, 10)
	_, err = io.ReadFull(resp.Body, line)
	must(t, err)
	resp.Body.Close()
	if err := <-ended; !errors.Is(err, errClientGone) {
		t.Errorf("the run ended for %v", err)
	}
}

// A request has to come in within a time; a run may take longer.
func TestBodyTimeout(t *testing.T) {
	const timeout = 500 * time.Millisecond
	f, c := serveWith(t, func(s *Server) { s.bodyTimeout = timeout })
	f.onRun(func(ctx context.Context, _ *supervisor.Request, _ supervisor.Observer) (*audit.Verdict, error) {
		select {
		case <-ctx.Done():
			t.Errorf("the run ended for %v", context.Cause(ctx))
		case <-time.After(5 * timeout):
		}
		return &audit.Verdict{Run: myRun}, nil
	})
	if v, err := c.Run(t.Context(), runRequest(), nil, RunHandler{}); err != nil || v.Run != myRun {
		t.Errorf("a longer run: %+v, %v", v, err)
	}

	conn, err := net.Dial("unix", c.Socket)
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = io.WriteString(conn, "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"+`{"language":`) // and no more
	must(t, err)
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("half a request: %q, %v", answer, err)
	}
}

// A client that stops reading holds up what it is told, and nobody else.
func TestSlowClient(t *testing.T) {
	f, c := serve(t)
	blocked, done := make(chan struct{}), make(chan struct{})
	f.onRun(func(ctx context.Context, _ *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
		defer close(done)
		o.Admitted(myRun)
		go func() { time.Sleep(50 * time.Millisecond); close(blocked) }()
		for range 1000 {
			if o.Stdout(make([]byte, 64<<10)) != nil {
				break
			}
		}
		return &audit.Verdict{}, nil
	})
	resp, err := rawResponse(t, c, http.MethodPost, "/v1/runs", strings.NewReader(`{}`))
	must(t, err)
	<-blocked
	select {
	case <-done:
		t.Error("64 MB went to nobody")
	default:
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("another client: %v", err)
	}
	resp.Body.Close()
	<-done
}

// A handler's error ends the run's following with that error.
func TestRunHandlerFails(t *testing.T) {
	f, c := serve(t)
	f.onRun(func(ctx context.Context, _ *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
		o.Admitted(myRun)
		_ = o.Stderr([]byte("x"))
		<-ctx.Done()
		return &audit.Verdict{}, nil
	})
	h := (&told{}).handler()
	h.Stderr = func([]byte) error { return syscall.EPIPE }
	if _, err := c.Run(t.Context(), runRequest(), nil, h); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
}

// Who may not even wait is told when to come again.
func TestBusy(t *testing.T) {
	f, c := serve(t)
	f.onRun(func(_ context.Context, _ *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
		return nil, &supervisor.BusyError{Refusal: supervisor.Refusal{What: "too many runs", Fix: "try again in about 3s"}, Retry: 3 * time.Second}
	})
	_, err := c.Run(t.Context(), runRequest(), nil, RunHandler{})
	var e *Error
	if !errors.As(err, &e) || e.Code != http.StatusTooManyRequests || !e.Refused || e.RetryAfter != 3 || e.Error() != "too many runs: try again in about 3s" {
		t.Errorf("%+v", err)
	}
	// One that waited is told the same, when its answer has begun.
	f.onRun(func(_ context.Context, _ *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
		o.Waits(myRun, 7)
		return nil, supervisor.ErrStopping
	})
	var waits []int
	var runs []string
	_, err = c.Run(t.Context(), runRequest(), nil, RunHandler{Waits: func(run string, before int) { waits = append(waits, before); runs = append(runs, run) }})
	if !errors.As(err, &e) || e.Message != supervisor.ErrStopping.Error() || !slices.Equal(waits, []int{7}) || !slices.Equal(runs, []string{myRun}) {
		t.Errorf("%v, waits %v", err, waits)
	}
	// Nobody needs to listen.
	f.onRun(func(_ context.Context, _ *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
		o.Waits(myRun, 0)
		return &audit.Verdict{Run: myRun}, nil
	})
	if v, err := c.Run(t.Context(), runRequest(), nil, RunHandler{}); err != nil || v.Run != myRun {
		t.Errorf("%+v, %v", v, err)
	}
}

func FuzzRunRequest(f *testing.F) {
	for _, seed := range []string{`{"language":"sh","code":"YQ==","args":["\\xff"],"inputs":["a"],"limits":{"cpus":0.5}}`, `{}`, `[]`, `{"a":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var q RunRequest
		if json.Unmarshal(body, &q) != nil {
			return
		}
		again, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		var w RunRequest
		if err := json.Unmarshal(again, &w); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if !bytes.Equal(q.Code, w.Code) || !slices.Equal(q.Args, w.Args) || !slices.Equal(q.Inputs, w.Inputs) || q.Limits != w.Limits {
			t.Fatalf("%+v became %+v", q, w)
		}
	})
}
