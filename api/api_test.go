package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor"
	"proctor/testenv"
)

// actVariable names what this binary is to do as another user, instead of testing.
const actVariable = "PROCTOR_API_ACT"

func TestMain(m *testing.M) {
	if socket := os.Getenv(actVariable); socket != "" {
		actAsAnother(socket)
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	myRun    = "0190b0a4-7c1e-7a5e-8f6b-00000000000a"
	otherRun = "0190b0a4-7c1e-7a5e-8f6b-00000000000b"
	noRun    = "0190b0a4-7c1e-7a5e-8f6b-00000000000f"
)

// fake serves from a real store and feed; what would need a box is made up.
type fake struct {
	store *audit.Store
	feed  audit.Feed
	since time.Time

	mu     sync.Mutex
	run    runFunc
	active []string
	killed []string
}

type runFunc = func(context.Context, *supervisor.Request, supervisor.Observer) (*audit.Verdict, error)

func (f *fake) onRun(run runFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run = run
}

func (f *fake) Run(ctx context.Context, q *supervisor.Request, o supervisor.Observer) (*audit.Verdict, error) {
	f.mu.Lock()
	run := f.run
	f.mu.Unlock()
	return run(ctx, q, o)
}

func (f *fake) goOn(runs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = runs
}

func (f *fake) Kill(run string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.active, run) {
		return fmt.Errorf("run %s: %w, or it has ended", run, audit.ErrNoRun)
	}
	f.killed = append(f.killed, run)
	return nil
}

func (f *fake) Active() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.active)
}
func (f *fake) Records() *audit.Store { return f.store }
func (f *fake) Feed() *audit.Feed     { return &f.feed }
func (f *fake) Since() time.Time      { return f.since }
func (f *fake) Counters() (map[string]uint64, error) {
	return map[string]uint64{"events": 7}, nil
}
func (f *fake) Images() []supervisor.Image {
	return []supervisor.Image{{Name: "shell", Digest: "sha256:11", Interpreters: map[string][]string{"sh": {"/bin/sh"}, "bash": {"/bin/bash"}}}}
}

// serve serves a fake on a socket of its own until the test's end.
func serve(t *testing.T) (*fake, *Client) { return serveWith(t, func(*Server) {}) }

func serveWith(t *testing.T, change func(*Server)) (*fake, *Client) {
	t.Helper()
	dir := testenv.Dir(t)
	store, err := audit.OpenStore(filepath.Join(dir, "runs"))
	must(t, err)
	f := &fake{store: store, since: time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)}
	s := NewServer(ServerOptions{
		Supervisor: f, Version: "v0", Containerd: func() string { return "serving" }, Logger: slog.New(slog.DiscardHandler),
	})
	change(s)
	l, err := Listen(filepath.Join(dir, "s"))
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f, &Client{Socket: filepath.Join(dir, "s")}
}

func me() audit.Caller {
	return audit.Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: int32(os.Getpid())}
}

func runRequest() *RunRequest {
	return &RunRequest{Language: "sh", Name: "x.sh", Code: []byte("echo \xff"), Args: []audit.Text{"a", "\xff\\"}, Limits: supervisor.LimitRequest{Memory: 5}}
}

// told collects what a run's caller is told.
type told struct {
	admitted       []string
	stdout, stderr bytes.Buffer
}

func (o *told) handler() RunHandler {
	return RunHandler{
		Admitted: func(run string) { o.admitted = append(o.admitted, run) },
		Stdout:   func(p []byte) error { _, err := o.stdout.Write(p); return err },
		Stderr:   func(p []byte) error { _, err := o.stderr.Write(p); return err },
	}
}

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

// flat waits until no more descriptors are open than before.
func flat(t *testing.T, before int) {
	t.Helper()
	n := 0
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if n = descriptors(t); n <= before {
			return
		}
	}
	t.Errorf("%d descriptors are open, %d were before", n, before)
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

// raw sends bytes and returns the answer.
func raw(t *testing.T, c *Client, method, path, body string) (int, string) {
	t.Helper()
	resp, err := rawResponse(t, c, method, path, strings.NewReader(body))
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

func rawResponse(t *testing.T, c *Client, method, path string, body io.Reader) (*http.Response, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", c.Socket) }}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, body)
	must(t, err)
	return transport.RoundTrip(req)
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
	const timeout = 100 * time.Millisecond
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

// writeRun puts a run of somebody's in the store.
func writeRun(t *testing.T, f *fake, run string, uid uint32) *audit.Record {
	t.Helper()
	rec, err := f.store.Create(run, []byte("code of "+run+"\xff"))
	must(t, err)
	must(t, rec.WriteRequest(&audit.Request{Run: run, Caller: audit.Caller{UID: uid}}))
	must(t, os.WriteFile(rec.Path("events.jsonl"), []byte(`{"run":"`+run+`","seq":1,"kind":"oom"}`+"\n"), 0o600))
	must(t, rec.WriteVerdict(&audit.Verdict{Run: run, Status: audit.StatusOK, Stdout: audit.Output{Head: []byte("out"), Total: 3}}))
	must(t, os.Mkdir(rec.Path("outputs"), 0o700))
	must(t, os.WriteFile(rec.Path("outputs", "0"), []byte("output"), 0o600))
	return rec
}

func TestReadRun(t *testing.T) {
	f, c := serve(t)
	ctx := t.Context()
	writeRun(t, f, myRun, uint32(os.Geteuid()))
	info, err := c.Show(ctx, myRun)
	must(t, err)
	if info.Run != myRun || info.Active || info.Request.Run != myRun || info.Verdict.Status != audit.StatusOK || string(info.Verdict.Stdout.Head) != "out" {
		t.Errorf("show: %+v", info)
	}
	var code, output bytes.Buffer
	must(t, c.Code(ctx, myRun, &code))
	must(t, c.Output(ctx, myRun, 0, &output))
	if code.String() != "code of "+myRun+"\xff" || output.String() != "output" {
		t.Errorf("code %q, output %q", code.String(), output.String())
	}
	n := 0
	must(t, c.Events(ctx, myRun, func(e audit.Event) error {
		n++
		if e.Run != myRun || e.Seq != 1 || e.Kind != audit.KindOOM {
			t.Errorf("event %+v", e)
		}
		return nil
	}))
	if n != 1 {
		t.Errorf("%d events", n)
	}
	for _, bad := range []int{1, -1, 1 << 30} {
		var e *Error
		if err := c.Output(ctx, myRun, bad, io.Discard); !errors.As(err, &e) || e.Code != http.StatusNotFound {
			t.Errorf("output %d: %v", bad, err)
		}
	}
	var e *Error
	if err := c.Kill(ctx, myRun); !errors.As(err, &e) || e.Code != http.StatusNotFound {
		t.Errorf("kill of what has ended: %v", err)
	}
	f.goOn(myRun)
	must(t, c.Kill(ctx, myRun))
	if diff := cmp.Diff([]string{myRun}, f.killed); diff != "" {
		t.Error(diff)
	}
}

// While a run goes on its record may end within a line.
func TestReadRunGoingOn(t *testing.T) {
	f, c := serve(t)
	rec, err := f.store.Create(myRun, nil)
	must(t, err)
	must(t, rec.WriteRequest(&audit.Request{Run: myRun, Caller: me()}))
	whole := strings.Repeat(`{"seq":1,"kind":"oom"}`+"\n", 5000)
	must(t, os.WriteFile(rec.Path("events.jsonl"), []byte(whole+`{"seq":2,`), 0o600))
	count := func() (n int, err error) {
		err = c.Events(t.Context(), myRun, func(audit.Event) error { n++; return nil })
		return n, err
	}
	if n, err := count(); n != 5000 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a run that is over: %d events, %v; it must be said that the record is cut", n, err)
	}
	f.goOn(myRun)
	if n, err := count(); n != 5000 || err != nil {
		t.Errorf("of a run that goes on: %d events, %v", n, err)
	}
	info, err := c.Show(t.Context(), myRun)
	if err != nil || !info.Active || info.Verdict != nil {
		t.Errorf("show: %+v, %v", info, err)
	}
}

func TestList(t *testing.T) {
	f, c := serve(t)
	if runs, err := c.Runs(t.Context(), 10); err != nil || len(runs) != 0 {
		t.Errorf("%v, %v", runs, err)
	}
	writeRun(t, f, myRun, uint32(os.Geteuid()))
	writeRun(t, f, otherRun, uint32(os.Geteuid()))
	runs, err := c.Runs(t.Context(), 10)
	must(t, err)
	if len(runs) != 2 || runs[0].Run != otherRun || runs[1].Run != myRun {
		t.Errorf("runs %+v", runs)
	}
	if runs[0].Verdict == nil || len(runs[0].Verdict.Stdout.Head) > 0 {
		t.Errorf("verdict in a list: %+v", runs[0].Verdict)
	}
	if runs, err := c.Runs(t.Context(), 1); err != nil || len(runs) != 1 {
		t.Errorf("at most one: %v, %v", runs, err)
	}
	for _, bad := range []string{"0", "-1", "x", "99999999999999999999"} {
		if code, answer := raw(t, c, http.MethodGet, "/v1/runs?limit="+bad, ""); code != http.StatusBadRequest || !strings.Contains(answer, bad) {
			t.Errorf("limit %s: %d %s", bad, code, answer)
		}
	}
}

func TestHostileRunIDs(t *testing.T) {
	f, c := serve(t)
	writeRun(t, f, myRun, uint32(os.Geteuid()))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(c.Socket), "code"), []byte("the secret"), 0o600))
	for _, id := range []string{
		"", ".", "..", "../..", "../" + myRun, myRun + "/../" + myRun, "/etc", "a\x00b", myRun + "\n", "%2e%2e", "%", "?", "#", "\xff", strings.ToUpper(myRun),
		strings.Repeat("a", 100_000), "x?limit=1", noRun,
	} {
		for what, call := range map[string]func() error{
			"show":   func() error { _, err := c.Show(t.Context(), id); return err },
			"code":   func() error { return c.Code(t.Context(), id, io.Discard) },
			"events": func() error { return c.Events(t.Context(), id, func(audit.Event) error { return nil }) },
			"output": func() error { return c.Output(t.Context(), id, 0, io.Discard) },
			"kill":   func() error { return c.Kill(t.Context(), id) },
		} {
			err := call()
			var e *Error
			if !errors.As(err, &e) || e.Code != http.StatusNotFound || !e.Refused || !strings.Contains(e.Message, "no such run") || len(e.Message) > 600 {
				t.Errorf("%s of %.40q: %v", what, id, err)
			}
		}
	}
	// What a client that is not ours sends.
	for _, id := range []string{"..%2f..%2fcode", "%2e%2e", "..%2f", "%2fetc%2fpasswd", myRun + "%00", "%ff", "..%5c..", "%2e%2e%2fcode", myRun + "%2f..%2f" + myRun} {
		for _, what := range []string{"", "/code", "/events", "/outputs/0"} {
			code, answer := raw(t, c, http.MethodGet, "/v1/runs/"+id+what, "")
			if code != http.StatusNotFound && code/100 != 3 || strings.Contains(answer, "the secret") {
				t.Errorf("%s%s: %d %.100s", id, what, code, answer)
			}
		}
	}
	for _, n := range []string{"..%2fcode", "-1", "+0", "0x0", "1e0", "99999999999", "%00"} {
		if code, answer := raw(t, c, http.MethodGet, "/v1/runs/"+myRun+"/outputs/"+n, ""); code != http.StatusNotFound {
			t.Errorf("output %s: %d %.100s", n, code, answer)
		}
	}
}

func TestTail(t *testing.T) {
	f, c := serve(t)
	if os.Geteuid() != 0 {
		var e *Error
		if err := c.Tail(t.Context(), func() {}, nil); !errors.As(err, &e) || e.Code != http.StatusForbidden {
			t.Errorf("for who is not root: %v", err)
		}
		return
	}
	enough := errors.New("enough")
	var got []audit.Event
	err := c.Tail(t.Context(), func() { f.feed.Publish(myRun, []audit.Event{{Run: myRun, Seq: 1}, {Run: myRun, Seq: 2}}) }, func(e audit.Event) error {
		if got = append(got, e); len(got) == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || got[0].Seq != 1 || got[1].Seq != 2 {
		t.Errorf("%v, %+v", err, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Tail(ctx, cancel, nil); err == nil {
		t.Error("a tail that nobody wants any more ends well")
	}
}

// A reader of the live feed does not hold up the end.
func TestShutdownEndsTails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may read the live feed")
	}
	ended := make(chan error, 1)
	t.Run("served", func(t *testing.T) {
		_, c := serve(t)
		started := make(chan struct{})
		go func() { ended <- c.Tail(context.Background(), func() { close(started) }, nil) }()
		<-started
	})
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the reader is told %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the reader is not told")
	}
}

func TestStatusAndImages(t *testing.T) {
	f, c := serve(t)
	f.goOn(myRun)
	st, err := c.Status(t.Context())
	must(t, err)
	want := &Status{Version: "v0", PID: os.Getpid(), Since: f.since, Active: []string{}, Images: []string{"shell"}, Containerd: "serving"}
	if os.Geteuid() == 0 {
		want.Active, want.Counters = []string{myRun}, map[string]uint64{"events": 7}
	}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Error(diff)
	}
	list, err := c.Images(t.Context())
	must(t, err)
	if len(list) != 1 || list[0].Name != "shell" || list[0].Digest != "sha256:11" || !slices.Equal(list[0].Languages, []string{"bash", "sh"}) {
		t.Errorf("images %+v", list)
	}
}

// actAsAnother prints what the supervisor tells another user than its own.
func actAsAnother(socket string) {
	c := &Client{Socket: socket}
	ctx := context.Background()
	runs, err := c.Runs(ctx, 10)
	for _, r := range runs {
		fmt.Println("list", r.Run)
	}
	if err != nil {
		fmt.Println("list", err)
	}
	for _, run := range []string{myRun, otherRun} {
		_, err := c.Show(ctx, run)
		var e *Error
		fmt.Println("show", run, errors.As(err, &e) && e.Code == http.StatusNotFound, err == nil)
		fmt.Println("code", run, c.Code(ctx, run, io.Discard) == nil)
		fmt.Println("events", run, c.Events(ctx, run, func(audit.Event) error { return nil }) == nil)
		fmt.Println("output", run, c.Output(ctx, run, 0, io.Discard) == nil)
		fmt.Println("kill", run, c.Kill(ctx, run) == nil)
	}
	var e *Error
	fmt.Println("tail", errors.As(c.Tail(ctx, func() {}, nil), &e) && e.Code == http.StatusForbidden)
	st, err := c.Status(ctx)
	fmt.Println("status", err == nil && len(st.Active) == 0)
	v, err := c.Run(ctx, &RunRequest{Language: "sh"}, nil, RunHandler{Admitted: func(string) {}})
	fmt.Println("run", err == nil && v.Run == otherRun)
}

// Other users see and end what is theirs, and who they are is the kernel's word.
func TestAnotherUserRoot(t *testing.T) {
	testenv.Root(t)
	const other = 65534
	f, c := serve(t)
	f.onRun(func(_ context.Context, q *supervisor.Request, _ supervisor.Observer) (*audit.Verdict, error) {
		if q.Caller.UID != other || q.Caller.GID != other || q.Caller.PID == int32(os.Getpid()) {
			t.Errorf("caller %+v", q.Caller)
		}
		return &audit.Verdict{Run: otherRun}, nil
	})
	writeRun(t, f, myRun, 0)
	writeRun(t, f, otherRun, other)
	// One that was never given its code: nobody's but root's.
	_, err := f.store.Create(noRun, nil)
	must(t, err)
	f.goOn(myRun, otherRun)
	must(t, os.Chmod(c.Socket, 0o666))

	self, err := os.Executable()
	must(t, err)
	copied := filepath.Join(filepath.Dir(c.Socket), "self")
	data, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(copied, data, 0o755))
	cmd := exec.Command(copied)
	cmd.Dir = "/"
	cmd.Env = []string{actVariable + "=" + c.Socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
	out, err := cmd.CombinedOutput()
	must(t, err)
	want := fmt.Sprintf(`list %[2]s
show %[1]s true false
code %[1]s false
events %[1]s false
output %[1]s false
kill %[1]s false
show %[2]s false true
code %[2]s true
events %[2]s true
output %[2]s true
kill %[2]s true
tail true
status true
run true
`, myRun, otherRun)
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{otherRun}, f.killed); diff != "" {
		t.Errorf("killed: %s", diff)
	}
	if runs, err := c.Runs(t.Context(), 10); err != nil || len(runs) != 3 {
		t.Errorf("root sees %+v, %v", runs, err)
	}
}

func TestListen(t *testing.T) {
	dir := testenv.Dir(t)
	path := filepath.Join(dir, "s")
	old := unix.Umask(0)
	defer unix.Umask(old)

	l, err := Listen(path)
	must(t, err)
	if mask := unix.Umask(0); mask != 0 {
		t.Errorf("it leaves a umask of %o", mask)
	}
	info, err := os.Lstat(path)
	must(t, err)
	mode := os.FileMode(0o600)
	if _, err := user.LookupGroup(Group); err == nil {
		mode = 0o660
	}
	if info.Mode() != os.ModeSocket|mode {
		t.Errorf("mode %v, want %v", info.Mode(), mode)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another supervisor") {
		t.Errorf("over one that is served: %v", err)
	}
	if err := Vacant(path); err == nil {
		t.Error("it is said to be vacant")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Errorf("the first was taken away: %v", err)
	} else {
		c.Close()
	}

	// Left by one that was killed.
	l.SetUnlinkOnClose(false)
	l.Close()
	must(t, Vacant(path))
	l, err = Listen(path)
	if err != nil {
		t.Fatalf("over one that is left: %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}

	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	must(t, os.Symlink(filepath.Join(dir, "nothing"), filepath.Join(dir, "link")))
	for _, other := range []string{path, dir, filepath.Join(dir, "link")} {
		if _, err := Listen(other); err == nil || !strings.Contains(err.Error(), "something else is there") {
			t.Errorf("over %s: %v", other, err)
		}
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the file is %q, %v", data, err)
	}
	if _, err := Listen(filepath.Join(dir, "none", "s")); err == nil {
		t.Error("in a directory that is not there")
	}
	long := filepath.Join(dir, strings.Repeat("s", 107-len(dir)))
	if _, err := Listen(long); err == nil || !strings.Contains(err.Error(), "at most 107 bytes, this one has 108") {
		t.Errorf("too long: %v", err)
	}
	if l, err = Listen(long[:107]); err != nil {
		t.Errorf("as long as may be: %v", err)
	} else {
		l.Close()
	}
}

// One that is busy is served, though it does not answer at once.
func TestListenLeavesBusy(t *testing.T) {
	path := filepath.Join(testenv.Dir(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(fd, 0))
	for {
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		defer unix.Close(c)
		if err := unix.Connect(c, &unix.SockaddrUnix{Name: path}); err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
			break
		}
	}
	if l, err := Listen(path); err == nil {
		l.Close()
		t.Error("a busy supervisor's socket was taken away")
	}
}

func TestClientExplains(t *testing.T) {
	dir := testenv.Dir(t)
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "stale"), Net: "unix"})
	must(t, err)
	stale.SetUnlinkOnClose(false)
	stale.Close()
	for _, test := range []struct{ socket, says string }{
		{filepath.Join(dir, "none"), "none is running at " + dir},
		{filepath.Join(dir, "stale"), "sudo proctor serve"},
		{filepath.Join(dir, "file"), "none is running"},
		{filepath.Join(dir, strings.Repeat("s", 200)), "at most 107 bytes"},
	} {
		_, err := (&Client{Socket: test.socket}).Status(t.Context())
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.socket, err)
		}
	}
	if os.Geteuid() != 0 {
		closed, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "closed"), Net: "unix"})
		must(t, err)
		defer closed.Close()
		must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
		if _, err := (&Client{Socket: filepath.Join(dir, "closed")}).Status(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "group "+Group) {
			t.Errorf("without the right: %v", err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := (&Client{Socket: filepath.Join(dir, "none")}).Status(ctx); err == nil || err.Error() != "enough" {
		t.Errorf("with nobody waiting: %v", err)
	}
}

// answering is a server that says the given bytes to whoever calls, and hangs up.
func answering(t *testing.T, answer string) *Client {
	t.Helper()
	path := filepath.Join(testenv.Dir(t), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = c.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(c, answer)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return &Client{Socket: path}
}

func TestClientOfSomethingElse(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
	for _, test := range []struct{ answer, says string }{
		{"", "broke the call off"},
		{"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached"},
		{"HTTP/1.1 404 Not Found\r\n\r\nno such page", "is something else listening"},
		{"HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n", "is something else listening"},
		{ok, "the supervisor went away during the run"},
		{ok + `{"run":"` + myRun + `"}` + "\n" + `{"stdout":"eA=`, "the supervisor went away during the run"},
		{ok + "nonsense\n", "the supervisor went away during the run"},
		{ok + `{"error":{"message":"late","fix":"none"}}` + "\n", "late: none"},
	} {
		_, err := answering(t, test.answer).Run(t.Context(), runRequest(), nil, (&told{}).handler())
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v", test.answer, err)
		}
	}
	if _, err := answering(t, ok+"{").Status(t.Context()); err == nil || !strings.Contains(err.Error(), "answer of the supervisor") {
		t.Errorf("an answer that is cut off: %v", err)
	}
}

// Its messages are what the documentation of the API shows.
func TestMessages(t *testing.T) {
	for want, m := range map[string]Message{
		`{"run":"x"}`:               {Run: "x"},
		`{"stdout":"/w=="}`:         {Stdout: []byte{0xff}},
		`{"stderr":"YQ=="}`:         {Stderr: []byte("a")},
		`{"error":{"message":"m"}}`: {Error: &Error{Code: 500, Message: "m"}},
		`{"error":{"refused":true,"message":"m","fix":"f"}}`: {Error: &Error{Refused: true, Message: "m", Fix: "f"}},
	} {
		if got, err := json.Marshal(m); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

func TestLineWriter(t *testing.T) {
	var b bytes.Buffer
	l := &lineWriter{w: &b}
	for _, step := range []struct{ in, out string }{
		{"a", ""}, {"b\nc", "ab\n"}, {"", "ab\n"}, {"\n\nd\n", "ab\nc\n\nd\n"}, {"rest", "ab\nc\n\nd\n"},
	} {
		if n, err := l.Write([]byte(step.in)); n != len(step.in) || err != nil {
			t.Errorf("%q: %d, %v", step.in, n, err)
		}
		if b.String() != step.out {
			t.Errorf("after %q: %q, want %q", step.in, b.String(), step.out)
		}
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
