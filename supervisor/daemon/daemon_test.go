package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"proctor/supervisor/daemon"
	"proctor/testenv"
)

func TestStartServeStop(t *testing.T) {
	rootTest(t)
	before := goleak.IgnoreCurrent()
	opts := testenv.DaemonOptions(t)
	opts.Logger = nil
	d, err := daemon.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.Address())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %o", info.Mode().Perm())
	}
	if s := d.Status(); !s.Serving || s.PID == 0 || s.Restarts != 0 {
		t.Errorf("status: %+v", s)
	}
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.Status().PID), "environ"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "PATH=" + filepath.Dir(opts.Binary) + ":"; !strings.HasPrefix(string(env), want) || strings.Count(string(env), "\x00") != 1 {
		t.Errorf("environment %q, want only PATH beginning with %s", env, want)
	}
	for range 2 {
		if err := d.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-d.Done():
	default:
		t.Error("stopped and not done")
	}
	for _, name := range []string{"containerd.sock", "containerd.sock.ttrpc", "containerd.pid"} {
		if _, err := os.Stat(filepath.Join(opts.State, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after Stop: %v", name, err)
		}
	}
	if err := d.WaitServing(t.Context()); err == nil {
		t.Error("serving after Stop")
	}
	goleak.VerifyNone(t, before)
}

func TestOnlyNeededPluginsAreLoaded(t *testing.T) {
	rootTest(t)
	c := connect(t, testenv.Containerd(t))
	resp, err := c.IntrospectionService().Plugins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range resp.Plugins {
		name := p.Type + "." + p.ID
		if p.InitErr != nil {
			t.Errorf("%s: %s", name, p.InitErr.Message)
		}
		for _, unwanted := range []string{"cri", "nri", "tracing", "otel", "metrics", "debug", "tcp", "opt", "restart", "erofs", "blockfile", "native"} {
			if strings.HasSuffix(name, "."+unwanted) {
				t.Errorf("%s is loaded", name)
			}
		}
	}
}

func TestTaskSurvivesCrashOfContainerd(t *testing.T) {
	rootTest(t)
	d := testenv.Containerd(t)
	c := connect(t, d)
	task := startTask(t, d.RuncOptions(), c, "survivor")
	for crash := range uint64(2) {
		old := d.Status().PID
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		restarted(t, d, crash+1)
		if s := d.Status(); s.PID == old || s.LastExit != "signal: killed" {
			t.Errorf("after the crash: %+v", s)
		}
		mustRun(t, connect(t, d), "survivor", task.Pid())
	}
	// The client of before the crashes still serves.
	endTask(t, c, "survivor")
}

func TestHungContainerdIsRestarted(t *testing.T) {
	rootTest(t)
	opts := testenv.DaemonOptions(t)
	opts.ProbeInterval = time.Second
	d := testenv.StartContainerd(t, opts)
	time.Sleep(3 * opts.ProbeInterval)
	if s := d.Status(); s.Restarts != 0 {
		t.Fatalf("restarted while well: %+v", s)
	}
	if err := syscall.Kill(d.Status().PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	restarted(t, d, 1)
}

func TestClientWaitsForRestart(t *testing.T) {
	rootTest(t)
	d := testenv.Containerd(t)
	c := connect(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Version(ctx); err != nil {
		t.Fatal(err)
	}
	old := d.Status().PID
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for d.Status().PID == old && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if _, err := c.Version(ctx); err != nil {
		t.Errorf("during the restart: %v", err)
	}
}

func TestTaskSurvivesStopAndIsTakenUpAgain(t *testing.T) {
	rootTest(t)
	opts := testenv.DaemonOptions(t)
	first, err := daemon.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	task := startTask(t, first.RuncOptions(), connect(t, first), "patient")
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := connect(t, testenv.StartContainerd(t, opts))
	mustRun(t, c, "patient", task.Pid())
	endTask(t, c, "patient")
}

func TestTwoSideBySide(t *testing.T) {
	rootTest(t)
	a, b := testenv.Containerd(t), testenv.Containerd(t)
	ca, cb := connect(t, a), connect(t, b)
	startTask(t, a.RuncOptions(), ca, "same-name")
	startTask(t, b.RuncOptions(), cb, "same-name")
	endTask(t, ca, "same-name")
	ctx := withNamespace(t.Context())
	if list, err := ca.Containers(ctx); err != nil || len(list) != 0 {
		t.Errorf("first has %d containers, %v", len(list), err)
	}
	if list, err := cb.Containers(ctx); err != nil || len(list) != 1 {
		t.Errorf("second has %d containers, %v", len(list), err)
	}
	endTask(t, cb, "same-name")
}

func TestSameDirectoriesAreRefused(t *testing.T) {
	rootTest(t)
	opts := testenv.DaemonOptions(t)
	testenv.StartContainerd(t, opts)
	for name, change := range map[string]func(*daemon.Options){
		"both":  func(*daemon.Options) {},
		"root":  func(o *daemon.Options) { o.State += "2" },
		"state": func(o *daemon.Options) { o.Root += "2" },
	} {
		o := opts
		change(&o)
		if _, err := daemon.Start(t.Context(), o); !errors.Is(err, daemon.ErrInUse) {
			t.Errorf("same %s: %v", name, err)
		}
	}
}

func TestStartFailureSaysWhy(t *testing.T) {
	rootTest(t)
	opts := testenv.DaemonOptions(t)
	if err := os.MkdirAll(opts.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	// containerd's database can't be a directory.
	db := filepath.Join(opts.Root, "io.containerd.metadata.v1.bolt", "meta.db")
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := daemon.Start(t.Context(), opts)
	if err == nil || !strings.Contains(err.Error(), "meta.db") || !strings.Contains(err.Error(), "exit status 1") {
		t.Fatalf("got %v", err)
	}
	// What made it fail gone, the same directories serve.
	if err := os.RemoveAll(filepath.Dir(db)); err != nil {
		t.Fatal(err)
	}
	testenv.StartContainerd(t, opts)
}

func TestStartObeysItsContext(t *testing.T) {
	rootTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := daemon.Start(ctx, testenv.DaemonOptions(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestStopKillsOneThatHangs(t *testing.T) {
	rootTest(t)
	opts := testenv.DaemonOptions(t)
	opts.StopTimeout = time.Hour
	d := testenv.StartContainerd(t, opts)
	if err := syscall.Kill(d.Status().PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := d.Stop(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// restarted waits for the nth restart to serve.
func restarted(t *testing.T, d *daemon.Daemon, n uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if s := d.Status(); s.Restarts >= n && s.Serving {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("not restarted: %+v", d.Status())
		}
	}
}
