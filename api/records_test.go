package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
	"proctor/testenv"
)

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
	testenv.Root(t) // only root may read the live feed
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
	want := &Status{Version: "v0", PID: os.Getpid(), Since: f.since, Active: []string{}, Waiting: []string{}, Images: []string{"shell"}, Room: (&fake{}).Room(), Containerd: "serving"}
	if os.Geteuid() == 0 {
		want.Active, want.Counters = []string{myRun}, map[string]uint64{"events": 7, "requests_refused": 0}
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
