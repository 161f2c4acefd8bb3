package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proctor/audit"
	"proctor/supervisor"
	"proctor/supervisor/room"
	"proctor/testenv"
)

const (
	myRun    = "0190b0a4-7c1e-7a5e-8f6b-00000000000a"
	otherRun = "0190b0a4-7c1e-7a5e-8f6b-00000000000b"
	noRun    = "0190b0a4-7c1e-7a5e-8f6b-00000000000f"
	inLine   = "0190b0a4-7c1e-7a5e-8f6b-00000000000c" // root's
	ownLine  = "0190b0a4-7c1e-7a5e-8f6b-00000000000d" // the other's
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

	waiting map[string]audit.Caller
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
	if _, waits := f.waiting[run]; !waits && !slices.Contains(f.active, run) {
		return fmt.Errorf("run %s: %w, or it has ended", run, audit.ErrNoRun)
	}
	f.killed = append(f.killed, run)
	return nil
}

func (f *fake) Waiting() map[string]audit.Caller {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.waiting)
}

func (f *fake) wait(run string, caller audit.Caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = map[string]audit.Caller{}
	}
	f.waiting[run] = caller
}

func (f *fake) Active() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.active)
}

func (f *fake) Records() *audit.Store { return f.store }

func (f *fake) Feed() *audit.Feed { return &f.feed }

func (f *fake) Since() time.Time { return f.since }

func (f *fake) Room() []room.State {
	return []room.State{{Name: "state directory", Dir: "/x", Free: 5, Least: 6, Problem: "full", Fix: "make room"}}
}

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
