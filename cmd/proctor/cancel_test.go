package main_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"proctor/audit"
)

func TestClientGone(t *testing.T) {
	s := root(t)
	for _, test := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 130}, {syscall.SIGKILL, -1}} {
		t.Run(test.signal.String(), func(t *testing.T) {
			run := s.background(t, busy)
			_ = run.cmd.Process.Signal(test.signal)
			<-run.waited
			if code := run.cmd.ProcessState.ExitCode(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			eventually(t, 20*time.Second, func() error { return s.populated(run.run) })
			eventually(t, 10*time.Second, func() error {
				if !exists(filepath.Join(s.recordDir(run.run), "verdict.json")) {
					return errors.New("no verdict")
				}
				return nil
			})
			if v := s.keptVerdict(t, run.run); v.Status != audit.StatusKilled || v.ExitCode != 137 || !strings.Contains(v.Reason, "caller went away") {
				t.Errorf("%s, code %d: %s", v.Status, v.ExitCode, v.Reason)
			}
		})
	}
	t.Run("while it reads stdin", func(t *testing.T) {
		cmd := s.command(t.Context(), "run", "--lang", "sh", "-")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // it handles signals by then
		_ = cmd.Process.Signal(syscall.SIGINT)
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			t.Fatal("Ctrl-C does not end a client that reads stdin")
		}
		if code := cmd.ProcessState.ExitCode(); code != 130 {
			t.Errorf("exit code %d", code)
		}
	})
}

// Whenever a caller goes, its run has one end, and nothing of it stays.
func TestCancelAtRandom(t *testing.T) {
	s := root(t)
	before := s.records(t)
	descriptors := func() int {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	fds := descriptors()
	const tries, atOnce = 200, 8
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for range tries / atOnce {
				cmd := s.command(t.Context(), "run", "--json", "--lang", "sh", "-")
				cmd.Stdin = strings.NewReader("sleep 0.1; echo done; sleep 30")
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
				signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}
				_ = cmd.Process.Signal(signals[rand.IntN(len(signals))])
				if rand.IntN(2) == 0 {
					_ = cmd.Process.Signal(syscall.SIGINT)
				}
				// A caller that was told to ignore signals, as in the background of a shell,
				// does until it has come to handle them.
				insist := time.AfterFunc(2*time.Second, func() { _ = cmd.Process.Kill() })
				_ = cmd.Wait()
				insist.Stop()
			}
		})
	}
	wg.Wait()
	eventually(t, 60*time.Second, s.empty)
	// One may have come so far as to have a record, and nothing else yet.
	eventually(t, 60*time.Second, func() error {
		if active := s.status(t).Active; len(active) > 0 {
			return fmt.Errorf("active: %q", active)
		}
		for _, id := range s.records(t) {
			if !exists(filepath.Join(s.recordDir(id), "verdict.json")) {
				return fmt.Errorf("run %s has no verdict", id)
			}
		}
		return s.empty()
	})
	var states []string
	for _, id := range s.records(t) {
		if slices.Contains(before, id) {
			continue
		}
		v := s.keptVerdict(t, id)
		states = append(states, string(v.Status))
		if v.Status != audit.StatusKilled || v.ExitCode != 137 {
			t.Errorf("run %s: %s, code %d: %s", id, v.Status, v.ExitCode, v.Reason)
		}
		ends := 0
		for _, e := range s.events(t, id) {
			if e.Kind == audit.KindEnd {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("run %s ends %d times", id, ends)
		}
	}
	if len(states) == 0 {
		t.Error("no run was admitted at all")
	}
	eventually(t, 10*time.Second, func() error {
		if now := descriptors(); now > fds+4 {
			return fmt.Errorf("the supervisor has %d descriptors, it had %d", now, fds)
		}
		return nil
	})
	if v := s.verdict(t, "sh", "echo fine"); v.Status != audit.StatusOK {
		t.Errorf("the next run: %s: %s", v.Status, v.Reason)
	}
}
