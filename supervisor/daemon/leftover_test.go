package daemon

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// stranger starts a process that ignores SIGTERM and has the given argument.
func stranger(t *testing.T, arg string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.05; done`, arg)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestEndLeftover(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*identity)
		ended bool
	}{
		{"the very process", func(*identity) {}, true},
		{"same number, other start time", func(id *identity) { id.StartTicks++ }, false},
		{"same number, other executable", func(id *identity) { id.Exe = "/opt/containerd" }, false},
		{"other configuration", func(id *identity) { id.Config += "x" }, false},
		{"init", func(id *identity) { id.PID = 1 }, false},
		{"a whole process group", func(id *identity) { id.PID = -id.PID }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := Options{State: t.TempDir(), StopTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
			cmd := stranger(t, o.configFile())
			id, err := identify(cmd.Process.Pid, o.configFile())
			if err != nil {
				t.Fatal(err)
			}
			tc.spoil(&id)
			if err := id.write(o.pidFile()); err != nil {
				t.Fatal(err)
			}
			if err := o.endLeftover(); err != nil {
				t.Fatal(err)
			}
			state, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "stat"))
			if err != nil {
				t.Fatal(err)
			}
			if ended := strings.Contains(string(state), ") Z "); ended != tc.ended {
				t.Errorf("ended: %v, want %v", ended, tc.ended)
			}
			if _, err := os.Stat(o.pidFile()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("pid file: %v", err)
			}
		})
	}
}

func TestEndLeftoverWithoutOrWithBrokenPIDFile(t *testing.T) {
	o := Options{State: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	if err := o.endLeftover(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "{}", "123\n", `{"pid":"x"}`, "\x00"} {
		if err := os.WriteFile(o.pidFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.endLeftover(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLockDir(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDir(dir)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Fatalf("second lock: %v", err)
	}
	first.Close()
	again, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestMajorVersion(t *testing.T) {
	for v, want := range map[string]int{"2.3.7+unknown": 2, "v2.0.1": 2, "1.6.20~ds1": 1, "v1.7": 1, "": -1, "2": -1, "x.y": -1} {
		got, ok := majorVersion(v)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", v, got, want)
		}
	}
}
