package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"proctor/audit"
)

// A gateway outlives no supervisor, even one that can't do anything by itself.
func testOrphan(t *testing.T, s *supervisor) {
	s.background(t, "echo >/scratch/x; while :; do :; done", "--profile", "client")
	pid := gatewayOf(t, s)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.kill()
	state := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ = strings.Cut(string(stat), "(proctor-gateway) ")
		if state == "" || state[0] == 'Z' {
			break
		}
	}
	if state != "" && state[0] != 'Z' {
		t.Errorf("the gateway is still there, in state %c", state[0])
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// A run whose gateway ends, or stands still, is ended and says so.
func testGatewayEnds(t *testing.T, s *supervisor) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			r := s.background(t, "echo >/scratch/x; while :; do :; done", "--profile", "client")
			pid := gatewayOf(t, s)
			began := time.Now()
			if err := syscall.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
			v := r.wait(t)
			if v.Status != audit.StatusError || !strings.Contains(v.Reason, "nothing answered for its network") {
				t.Errorf("%s: %s", v.Status, v.Reason)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// With the supervisor killed, its gateways end, and the next one serves again.
func testSupervisorEnds(t *testing.T, s *supervisor) {
	s.background(t, "echo >/scratch/x; while :; do :; done", "--profile", "client")
	pid := gatewayOf(t, s)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`Uid:\t(\d{10})\t\d{10}\t\d{10}\t`, `Gid:\t\d{10}\t`, `Groups:\t *\n`, `CapPrm:\t0+\n`, `CapEff:\t0+\n`, `NoNewPrivs:\t1`, `Seccomp:\t2`} {
		if !regexp.MustCompile(want).Match(status) {
			t.Errorf("the gateway's status has no %s:\n%s", want, status)
		}
	}
	if left, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err != nil || len(left) > 40 {
		t.Errorf("the gateway has %d descriptors, %v", len(left), err)
	}
	s.kill()
	eventually(t, 20*time.Second, func() error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !isZombie(pid) {
			return fmt.Errorf("the gateway is still there")
		}
		return nil
	})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	v := s.verdict(t, "python", attempts+`attempt("https", lambda: get("https://api.example/x"))`, "--profile", "client")
	checkLines(t, v, "https: hello from api.example")
}

// gatewayOf is the one gateway that the supervisor has.
func gatewayOf(t *testing.T, s *supervisor) int {
	t.Helper()
	var found []int
	eventually(t, 5*time.Second, func() error {
		found = nil
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
			if err != nil {
				continue
			}
			comm, rest, _ := strings.Cut(string(stat), ") ")
			fields := strings.Fields(rest)
			if strings.HasSuffix(comm, "(proctor-gateway") && len(fields) > 1 && fields[1] == strconv.Itoa(s.cmd.Process.Pid) {
				found = append(found, pid)
			}
		}
		if len(found) != 1 {
			return fmt.Errorf("gateways %v, want one", found)
		}
		return nil
	})
	return found[0]
}
