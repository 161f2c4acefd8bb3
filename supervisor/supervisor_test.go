package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
	"proctor/bpf"
	"proctor/supervisor/box"
	"proctor/supervisor/cgroup"
	"proctor/supervisor/container"
	"proctor/supervisor/turns"
	"proctor/testenv"
)

// A runtime that makes no box, for what comes before one and after.
type noRuntime struct {
	create func(context.Context) error
	sweep  error
}

func (r noRuntime) Create(ctx context.Context, _ box.Spec) (box.Box, error) {
	return nil, r.create(ctx)
}
func (r noRuntime) Sweep(context.Context) ([]string, error) { return nil, r.sweep }

func newSupervisor(t *testing.T, change func(*Options)) *Supervisor {
	t.Helper()
	dir := testenv.Dir(t)
	o := Options{
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		Runtime: noRuntime{create: func(context.Context) error { return errors.New("no box today") }},
		Lock:    testLock(t, map[string]string{"shell": shells}),
		Limits:  LimitRange{Default: defaults, Ceiling: ceiling},
		Logger:  slog.New(slog.DiscardHandler),
		Network: Network{Addresses: func() ([]netip.Addr, error) { return nil, nil }},
	}
	if change != nil {
		change(&o)
	}
	if o.Sensor != nil { // as root
		o.Network.Gateway = filepath.Join(testenv.BinDir(t), "proctor-gateway")
	}
	s, err := New(o)
	must(t, err)
	t.Cleanup(func() { s.Stop(context.Background()) })
	return s
}

func TestNewRefusesLimits(t *testing.T) {
	for name, change := range map[string]func(*LimitRange){
		"no default":            func(l *LimitRange) { l.Default = box.Limits{} },
		"senseless default":     func(l *LimitRange) { l.Default.OpenFiles = 1 },
		"default above ceiling": func(l *LimitRange) { l.Default.Memory = l.Ceiling.Memory + 1 },
	} {
		o := Options{StateDir: t.TempDir(), Limits: LimitRange{Default: defaults, Ceiling: ceiling}}
		change(&o.Limits)
		if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "default limits: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStop(t *testing.T) {
	s := newSupervisor(t, func(o *Options) { o.StopTimeout = 20 * time.Millisecond })
	ctx, cancel := context.WithCancelCause(t.Context())
	must(t, s.admit("a", cancel))
	if diff := cmp.Diff([]string{"a"}, s.Active()); diff != "" {
		t.Error(diff)
	}
	stopped := make(chan struct{})
	go func() { s.Stop(context.Background()); close(stopped) }()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ErrStopping) {
		t.Errorf("ended because of %v", context.Cause(ctx))
	}
	if err := s.admit("b", func(error) {}); !errors.Is(err, ErrStopping) {
		t.Errorf("let in while stopping: %v", err)
	}
	select {
	case <-stopped:
		t.Error("stopped before the run was released")
	case <-time.After(20 * time.Millisecond):
	}
	s.forget("a")
	s.runs.Done()
	<-stopped
	s.Stop(context.Background()) // again
}

func TestStopWhoHasNoTime(t *testing.T) {
	s := newSupervisor(t, func(o *Options) { o.StopTimeout = time.Hour })
	run, cancel := context.WithCancelCause(t.Context())
	must(t, s.admit("a", cancel))
	go func() { <-run.Done(); s.forget("a"); s.runs.Done() }()
	ctx, hurry := context.WithCancel(t.Context())
	hurry()
	s.Stop(ctx)
}

// Whoever is let in is ended by Stop, however close together the two are.
func TestStopMissesNobody(t *testing.T) {
	for range 300 {
		s := bareSupervisor(t)
		ctx, hurry := context.WithCancel(t.Context())
		hurry()
		var runs sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} {
			runs.Go(func() {
				run, cancel := context.WithCancelCause(context.Background())
				if err := s.admit(id, cancel); err != nil {
					return
				}
				<-run.Done()
				s.forget(id)
				s.runs.Done()
			})
		}
		s.Stop(ctx)
		runs.Wait()
	}
}

// sensor is one on a parent cgroup of the test's own.
func sensor(t *testing.T) *bpf.Sensor {
	t.Helper()
	cgroups, err := cgroup.Detect()
	must(t, err)
	parent := testenv.Cgroup(t)
	must(t, cgroups.MakeParent(parent))
	s, err := bpf.Open(bpf.Options{Cgroup: cgroups.Unified(parent), Dir: testenv.Dir(t), Permitted: container.Permitted(), Logger: testenv.Logger(t)})
	must(t, err)
	t.Cleanup(func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// bareSupervisor is what admit and Stop need.
func bareSupervisor(t *testing.T) *Supervisor {
	t.Helper()
	return &Supervisor{active: map[string]context.CancelCauseFunc{}, waiting: map[string]waiting{}, stopTimeout: time.Hour, turns: turns.New(turns.Options{}), log: slog.New(slog.DiscardHandler)}
}

func TestKill(t *testing.T) {
	s := bareSupervisor(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	must(t, s.admit("a", cancel))
	if err := s.Kill("b"); !errors.Is(err, audit.ErrNoRun) {
		t.Errorf("one that is not there: %v", err)
	}
	if ctx.Err() != nil {
		t.Error("killing another ended it")
	}
	must(t, s.Kill("a"))
	must(t, s.Kill("a"))
	if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "proctor kill") {
		t.Errorf("ended because of %v", cause)
	}
	s.forget("a")
	if err := s.Kill("a"); !errors.Is(err, audit.ErrNoRun) {
		t.Errorf("one that has ended: %v", err)
	}

	// One that waits, too.
	line, leave := context.WithCancelCause(t.Context())
	s.wait("c", waiting{audit.Caller{UID: 7}, leave})
	if diff := cmp.Diff(map[string]audit.Caller{"c": {UID: 7}}, s.Waiting()); diff != "" {
		t.Error(diff)
	}
	must(t, s.Kill("c"))
	if !errors.Is(context.Cause(line), errKilled) {
		t.Errorf("it left the line because of %v", context.Cause(line))
	}
	s.waitNoMore("c")
	if err := s.Kill("c"); !errors.Is(err, audit.ErrNoRun) || len(s.Waiting()) > 0 {
		t.Errorf("one that waits no more: %v", err)
	}
}

func TestRunRefusesWithoutTrace(t *testing.T) {
	s := newSupervisor(t, nil)
	for name, req := range map[string]*Request{
		"request":  {Language: "sh", Name: "x"},
		"limits":   {Language: "sh", Name: "x", Code: []byte("x"), Limits: LimitRequest{Memory: -1}},
		"language": {Language: "cobol", Name: "x", Code: []byte("x")},
	} {
		v, err := s.Run(t.Context(), req, deaf{})
		t.Run(name, func(t *testing.T) { refusedFor(t, err) })
		if v != nil {
			t.Errorf("%s: a verdict: %+v", name, v)
		}
	}
	s.Stop(t.Context())
	if _, err := s.Run(t.Context(), &Request{Language: "sh", Name: "x", Code: []byte("x")}, deaf{}); !errors.Is(err, ErrStopping) {
		t.Errorf("while stopping: %v", err)
	}
	runs, err := s.Records().Runs()
	must(t, err)
	if len(runs) != 0 {
		t.Errorf("records of %v", runs)
	}
}

// A record that cannot be begun is an error of the call, and the run is let go.
func TestRunWithoutRecord(t *testing.T) {
	s := newSupervisor(t, nil)
	must(t, os.Remove(filepath.Join(filepath.Dir(s.runDir), "state", "runs")))
	v, err := s.Run(t.Context(), &Request{Language: "sh", Name: "x", Code: []byte("x")}, deaf{})
	var refusal *Refusal
	if v != nil || err == nil || errors.As(err, &refusal) {
		t.Errorf("got %+v, %v", v, err)
	}
	s.Stop(t.Context()) // returns, as nothing is held
}

func runToError(t *testing.T, s *Supervisor, ctx context.Context) (*audit.Verdict, []audit.Event) {
	t.Helper()
	v, err := s.Run(ctx, &Request{Language: "sh", Name: "x", Code: []byte("echo")}, deaf{})
	must(t, err)
	s.Stop(t.Context())
	if active := s.Active(); len(active) != 0 {
		t.Errorf("active after Stop: %v", active)
	}
	rec, err := s.Records().Open(v.Run)
	must(t, err)
	written, err := rec.Verdict()
	must(t, err)
	if written.Status != v.Status || written.Reason != v.Reason {
		t.Errorf("told %s, %s; recorded is %s, %s", v.Status, v.Reason, written.Status, written.Reason)
	}
	return v, events(t, rec)
}

func events(t *testing.T, rec *audit.Record) (events []audit.Event) {
	t.Helper()
	f, err := os.Open(rec.Path("events.jsonl"))
	must(t, err)
	defer f.Close()
	must(t, audit.ReadEvents(f, func(e audit.Event) error { events = append(events, e); return nil }))
	return events
}

func TestRunWithoutBox(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	s := newSupervisor(t, func(o *Options) { o.Sensor = sensor(t) })
	must(t, s.Start(t.Context()))
	v, events := runToError(t, s, t.Context())
	if v.Status != audit.StatusError || v.ExitCode != CodeNotRun || !strings.Contains(v.Reason, "no box today") || v.Audit.Complete {
		t.Errorf("verdict %+v", v)
	}
	if v.Image.Name != "shell" || v.Image.Digest == "" {
		t.Errorf("image %+v", v.Image)
	}
	if len(events) != 1 || events[0].Kind != audit.KindEnd || events[0].End.Status != "error" {
		t.Errorf("record %+v", events)
	}
	left, err := os.ReadDir(filepath.Join(s.runDir, "netns"))
	must(t, err)
	if len(left) != 0 {
		t.Errorf("%d network namespaces are left", len(left))
	}
}

// A caller who goes while the box is made is no error of Proctor's.
func TestRunCanceledBeforeStart(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newSupervisor(t, func(o *Options) {
		o.Sensor = sensor(t)
		o.Runtime = noRuntime{create: func(ctx context.Context) error {
			cancel(errors.New("its caller went away"))
			<-ctx.Done()
			return ctx.Err()
		}}
	})
	v, _ := runToError(t, s, ctx)
	if v.Status != audit.StatusKilled || v.ExitCode != CodeKilled || !strings.Contains(v.Reason, "its caller went away") {
		t.Errorf("verdict %+v", v)
	}
}

const oldRun = "0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60"

func TestStartSealsInterrupted(t *testing.T) {
	var log bytes.Buffer
	s := newSupervisor(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	rec, err := s.Records().Create(oldRun, []byte("code"))
	must(t, err)
	must(t, rec.WriteRequest(&audit.Request{Run: oldRun, Image: audit.ImageRef{Name: "shell", Digest: "sha256:11"}}))
	j, err := audit.CreateJournal(rec.Path("events.jsonl"))
	must(t, err)
	acts := []audit.Event{
		{Run: oldRun, Kind: audit.KindStart},
		fork(1, 2), open(audit.AccessRead, ""), attempt(audit.KindConnect, "tcp", "198.51.100.7", 443, audit.Blocked, "no network granted"), oom(2),
	}
	for i := range acts {
		acts[i].Seq = uint64(i)
	}
	must(t, j.Append(acts...))
	_, err = j.Close()
	must(t, err)
	whole, err := os.ReadFile(rec.Path("events.jsonl"))
	must(t, err)
	must(t, os.WriteFile(rec.Path("events.jsonl"), append(bytes.Clone(whole), `{"run":"0190`...), 0o600))

	// One that was judged, one whose verdict is damaged, one that had not even begun.
	const judgedRun, damagedRun, bareRun = "0190b0a4-7c1e-7a5e-8f6b-000000000001", "0190b0a4-7c1e-7a5e-8f6b-000000000002", "0190b0a4-7c1e-7a5e-8f6b-000000000003"
	for _, id := range []string{judgedRun, damagedRun, bareRun} {
		r, err := s.Records().Create(id, nil)
		must(t, err)
		switch id {
		case judgedRun:
			must(t, r.WriteVerdict(&audit.Verdict{Run: id, Status: audit.StatusOK}))
		case damagedRun:
			must(t, os.WriteFile(r.Path("verdict.json"), []byte(`{"ru`), 0o600))
		}
	}

	must(t, s.Start(t.Context()))

	v, err := rec.Verdict()
	must(t, err)
	data, err := os.ReadFile(rec.Path("events.jsonl"))
	must(t, err)
	if v.Run != oldRun || v.Status != audit.StatusInterrupted || v.ExitCode != CodeNotRun || v.Image.Name != "shell" || v.Image.Digest != "sha256:11" {
		t.Errorf("verdict %+v", v)
	}
	if v.Audit.Counts != (audit.Counts{Events: 4}) || v.Audit.Complete || v.Audit.Seal == "" {
		t.Errorf("audit %+v", v.Audit)
	}
	blocked := []audit.Destination{{Address: netip.MustParseAddr("198.51.100.7"), Port: 443, Protocol: "tcp", Count: 1, Rule: "no network granted"}}
	if diff := cmp.Diff(blocked, v.Egress.Blocked, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if v.Files.Read != 1 || v.Usage.OOMKills != 1 {
		t.Errorf("files %+v, usage %+v", v.Files, v.Usage)
	}
	if !bytes.HasPrefix(data, whole) {
		t.Error("what was recorded has changed")
	}
	got := events(t, rec)
	if n := len(got); n != 7 || got[5].Kind != audit.KindCut || got[5].Cut.Line != `{"run":"0190` || got[6].Kind != audit.KindEnd ||
		got[6].End.Status != "interrupted" || got[6].End.Events != 4 {
		t.Errorf("record %+v", got)
	}

	for id, want := range map[string]audit.Status{judgedRun: audit.StatusOK, bareRun: audit.StatusInterrupted} {
		r, err := s.Records().Open(id)
		must(t, err)
		v, err := r.Verdict()
		if err != nil || v == nil || v.Status != want {
			t.Errorf("%s: %+v, %v", id, v, err)
		}
	}
	damaged, err := s.Records().Open(damagedRun)
	must(t, err)
	if _, err := damaged.Verdict(); err == nil {
		t.Error("a damaged verdict was replaced")
	}
	for _, id := range []string{oldRun, bareRun} {
		if !strings.Contains(log.String(), id) {
			t.Errorf("the log does not name %s", id)
		}
	}
	if strings.Contains(log.String(), judgedRun) {
		t.Error("the log names one that was judged")
	}

	// A second start finds nothing to do.
	before, err := os.ReadFile(rec.Path("verdict.json"))
	must(t, err)
	s.Stop(t.Context())
	must(t, s.Start(t.Context()))
	after, err := os.ReadFile(rec.Path("verdict.json"))
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("sealed twice")
	}
}

// Killed between the record's end and the verdict: what the record says is told.
func TestStartSealsWhatHadEnded(t *testing.T) {
	s := newSupervisor(t, nil)
	rec, err := s.Records().Create(oldRun, nil)
	must(t, err)
	line, err := json.Marshal(audit.Event{Run: oldRun, Kind: audit.KindEnd, End: &audit.End{Status: "timeout", Reason: "ended at its deadline"}})
	must(t, err)
	must(t, os.WriteFile(rec.Path("events.jsonl"), append(line, '\n'), 0o600))
	must(t, s.Start(t.Context()))
	v, err := rec.Verdict()
	must(t, err)
	if v.Status != audit.StatusInterrupted || !strings.Contains(v.Reason, `"timeout"`) || !strings.Contains(v.Reason, "ended at its deadline") || !v.Audit.Complete {
		t.Errorf("verdict %+v", v)
	}
	if got := events(t, rec); len(got) != 1 {
		t.Errorf("record %+v", got)
	}
}

func TestStartFailsWithSweep(t *testing.T) {
	s := newSupervisor(t, func(o *Options) { o.Runtime = noRuntime{sweep: io.ErrNoProgress} })
	if err := s.Start(t.Context()); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
	if !s.Since().IsZero() {
		t.Error("it says it has started")
	}
}
