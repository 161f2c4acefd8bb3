package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// shims are the processes that keep this supervisor's containers.
func (s *supervisor) shims() []int {
	var pids []int
	for pid, line := range processesWith(s.dir) {
		if strings.Contains(line, "containerd-shim-runc-v2 -namespace "+s.group+" -id ") {
			n, _ := strconv.Atoi(pid)
			pids = append(pids, n)
		}
	}
	return pids
}

// H1: a shim is killed, whatever the run is about then. The run has one end, which is not laid
// at the code's door, nothing of it stays, and the next one is well.
func TestShimKilled(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	s := newSupervisor(t)
	const code = "echo hi; sleep 1; exit 7"
	s.verdict(t, "sh", code) // what is there from now on
	began := time.Now()
	s.verdict(t, "sh", code)
	undisturbed := time.Since(began)
	var whole, ended, unmade int
	for i := range 16 {
		run := startCall(t, s.command(context.WithoutCancel(t.Context()), "run", "--json", "--lang", "sh", "-"), code)
		// From when there is none yet to when there is none any more.
		time.Sleep(time.Duration(i)*undisturbed/13 + rand.N(undisturbed/13))
		// Every third time whoever starts or cleans up after one is killed, too.
		for until := time.Now().Add(time.Duration(i%3/2) * 400 * time.Millisecond); ; {
			for _, pid := range s.shims() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			if time.Now().After(until) {
				break
			}
		}
		switch v := run.verdict(t); {
		case v.Status == audit.StatusExit && v.ExitCode == 7:
			whole++
		case v.Status == audit.StatusError && v.ExitCode == 125 && strings.Contains(v.Reason, "ended from outside: the process that keeps its container"):
			ended++
		case v.Status == audit.StatusError && v.ExitCode == 125 && (strings.Contains(v.Reason, "create box: ") || strings.Contains(v.Reason, "start box: ")):
			unmade++
		default:
			t.Errorf("%s, code %d: %s", v.Status, v.ExitCode, v.Reason)
		}
		eventually(t, 20*time.Second, s.empty)
	}
	if ended == 0 || unmade+whole == 0 {
		t.Errorf("%d were ended, %d not made, %d done: the moments were not random", ended, unmade, whole)
	}
	if text, _ := os.ReadFile(s.logFile()); bytes.Contains(text, []byte("not released")) {
		t.Error("something was not released")
	}
	checkStore(t, s)
	if v := s.verdict(t, "sh", "echo next"); v.Status != audit.StatusOK {
		t.Errorf("the next run: %s: %s", v.Status, v.Reason)
	}
}

// inContainerd calls f with a client of the supervisor's own namespace.
func (s *supervisor) inContainerd(t *testing.T, f func(context.Context, *containerd.Client) error) {
	t.Helper()
	c, err := containerd.New(s.dir + "/run/containerd/containerd.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := f(namespaces.WithNamespace(t.Context(), s.group), c); err != nil {
		t.Fatal(err)
	}
}

// checkStore looks for what nothing needs in containerd's store, with no run going on.
func checkStore(t *testing.T, s *supervisor) {
	t.Helper()
	// The directories of snapshots that were removed go with the next collection.
	s.collectGarbage(t)
	s.inContainerd(t, func(ctx context.Context, c *containerd.Client) error {
		var left, roots []string
		list, err := c.Containers(ctx)
		for _, one := range list {
			left = append(left, "container "+one.ID())
		}
		resources, lerr := c.LeasesService().List(ctx)
		for _, one := range resources {
			left = append(left, "lease "+one.ID)
		}
		ingests, ierr := c.ContentStore().ListStatuses(ctx)
		for _, one := range ingests {
			left = append(left, "half of blob "+one.Ref)
		}
		serr := c.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			if info.Kind == snapshots.KindCommitted {
				roots = append(roots, info.Name)
			} else {
				left = append(left, "snapshot "+info.Name)
			}
			return nil
		})
		// What the database does not know of.
		dirs, err2 := os.ReadDir(filepath.Join(s.dir, "state/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"))
		if len(dirs) != len(roots) {
			left = append(left, fmt.Sprintf("%d directories for %d snapshots", len(dirs), len(roots)))
		}
		images, merr := c.ImageService().List(ctx)
		if len(left) > 0 || len(roots) != len(images) {
			t.Errorf("left in containerd: %q; %d images have the snapshots %q", left, len(images), roots)
		}
		return errors.Join(err, lerr, ierr, serr, err2, merr)
	})
}

// H4: the supervisor, or containerd below it, is killed while an image is brought in. The next
// start brings it in, and nothing of the first try stays.
func TestKilledWhileUnpacking(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	s := describe(t, dir, pickImages(t, dir, "python-data"))
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		s.unmountAll(t)
	})
	s.showLog(t)
	for _, victim := range []string{"supervisor", "containerd"} {
		from := 0
		if text, err := os.ReadFile(s.logFile()); err == nil {
			from = len(text)
		}
		// Of the first try there may be something that did not go yet.
		layers := filepath.Join(dir, "state/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/usr")
		before, _ := filepath.Glob(layers)
		started := make(chan error, 1)
		go func() { started <- s.start() }()
		eventually(t, time.Minute, func() error {
			if text, _ := os.ReadFile(s.logFile()); !strings.Contains(string(text[from:]), `progress="unpack image`) {
				return errors.New("nothing is unpacked")
			}
			if now, _ := filepath.Glob(layers); slices.Equal(now, before) {
				return errors.New("no layer is there")
			}
			return nil
		})
		pid := 0
		for p, line := range processesWith(dir) {
			if victim == "supervisor" && strings.Contains(line, "proctor serve ") || victim == "containerd" && strings.Contains(line, "/containerd --config ") {
				pid, _ = strconv.Atoi(p)
			}
		}
		if pid == 0 {
			t.Fatalf("no %s among %v", victim, processesWith(dir))
		}
		_ = unix.Kill(pid, unix.SIGKILL)
		if err := <-started; err == nil {
			// It was done by then, or has started over with a new containerd.
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}
		eventually(t, 20*time.Second, func() error {
			if left := processesWith(dir); len(left) > 0 {
				return fmt.Errorf("left behind: %v", left)
			}
			return nil
		})
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	if v := s.verdict(t, "python", "import numpy; print(numpy.arange(3).sum())"); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "3\n" {
		t.Errorf("%s: %s: %s", v.Status, v.Reason, v.Stderr.Bytes())
	}
	eventually(t, 20*time.Second, s.empty)
	checkStore(t, s)
}

// collectGarbage returns when containerd has looked for what nothing refers to.
func (s *supervisor) collectGarbage(t *testing.T) {
	t.Helper()
	testenv.CollectGarbage(t, s.dir+"/run/containerd/containerd.sock", s.group)
}

// H4: whatever lease a run's box was made under is over; its root file system stays.
func TestGarbageIsCollectedMidRun(t *testing.T) {
	s := root(t)
	run := s.background(t, ": >/scratch/up; while [ ! -e /scratch/go ]; do sleep 0.05; i=$((i+1)); [ $i -lt 40 ] || break; done; sha256sum /bin/sh /usr/bin/* >/dev/null && echo whole; exit 4")
	for range 3 {
		s.collectGarbage(t)
	}
	if v := run.wait(t); v.Status != audit.StatusExit || v.ExitCode != 4 || string(v.Stdout.Bytes()) != "whole\n" {
		t.Errorf("%s, code %d: %s; %q", v.Status, v.ExitCode, v.Reason, v.Stderr.Bytes())
	}
	if v := s.verdict(t, "sh", "echo next"); v.Status != audit.StatusOK {
		t.Errorf("the next run: %s: %s", v.Status, v.Reason)
	}
}

// One that waits can be taken out of the line. While the supervisor stops, whoever comes and whoever waits is told so, at once and without a
// run; what goes on may end.
func TestDrain(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	config := filepath.Join(testenv.Dir(t), "proctor.yaml")
	if err := os.WriteFile(config, []byte("stop_timeout: 40s\nruns: {at_once: 1, queue: 5}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newSupervisor(t, "--config", config)
	going := s.background(t, ": >/scratch/up; sleep 12; echo done")
	killed := startCall(t, s.command(context.WithoutCancel(t.Context()), "run", "--json", "--lang", "sh", "-"), "echo killed")
	var line []string
	eventually(t, 10*time.Second, func() error {
		if line = s.status(t).Waiting; len(line) != 1 {
			return fmt.Errorf("%q wait", line)
		}
		return nil
	})
	for _, ended := range []bool{false, true} {
		if r := s.proctor(t, "", "kill", line[0]); (r.code == 125) != ended || ended && !strings.Contains(r.stderr, "no such run") {
			t.Errorf("kill of one that waits: %d: %s", r.code, r.stderr)
		}
		if v := killed.verdict(t); v.Status != audit.StatusError || v.ExitCode != 125 || v.Run != "" || v.Reason != "ended before it was let in: somebody asked for it with `proctor kill`" {
			t.Errorf("one that waited: %s, code %d: %s", v.Status, v.ExitCode, v.Reason)
		}
	}
	waiting := startCall(t, s.command(context.WithoutCancel(t.Context()), "run", "--json", "--lang", "sh", "-"), "echo waited")
	eventually(t, 10*time.Second, func() error {
		if n := len(s.status(t).Waiting); n != 1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	if v := waiting.verdict(t); v.Status != audit.StatusError || v.ExitCode != 125 || v.Run != "" || !strings.Contains(v.Reason, "the supervisor is stopping") {
		t.Errorf("one that waits: %s, code %d: %s", v.Status, v.ExitCode, v.Reason)
	}
	select {
	case <-going.waited:
		t.Error("the run that goes on has ended before the one that waits was told")
	default:
	}
	if r := s.proctor(t, "echo late", "run", "--json", "--lang", "sh", "-"); r.code != 125 || !strings.Contains(r.stdout, "the supervisor is stopping") {
		t.Errorf("one that comes: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if v := going.wait(t); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "done\n" {
		t.Errorf("the run that goes on: %s: %s", v.Status, v.Reason)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if runs := s.records(t); !slices.Equal(runs, []string{going.run}) {
		t.Errorf("records: %q", runs)
	}
}

// Ctrl-C again, as impatient people do, changes nothing of what the first one did.
func TestInterruptedTwice(t *testing.T) {
	s := root(t)
	run := s.background(t, busy)
	for range 3 {
		_ = run.cmd.Process.Signal(os.Interrupt)
		time.Sleep(3 * time.Millisecond)
	}
	<-run.waited
	if code := run.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	if r := s.proctor(t, "", "kill", run.run); r.code != 0 && !strings.Contains(r.stderr, "or it has ended") {
		t.Errorf("kill of what ends: %d, %s", r.code, r.stderr)
	}
	eventually(t, 10*time.Second, func() error {
		if !exists(filepath.Join(s.recordDir(run.run), "verdict.json")) {
			return errors.New("no verdict")
		}
		return nil
	})
	if v := s.keptVerdict(t, run.run); v.Status != audit.StatusKilled || !strings.Contains(v.Reason, "caller went away") {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	ends := 0
	for _, e := range s.events(t, run.run) {
		if e.Kind == audit.KindEnd {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("the record ends %d times", ends)
	}
}
