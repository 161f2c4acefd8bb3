package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"proctor/audit"
)

// cleanEnv has nothing that could point a command at another supervisor.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PROCTOR_") {
			env = append(env, e)
		}
	}
	return env
}

// command is a client that calls this supervisor.
func (s *supervisor) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "proctor"), args...)
	cmd.Env = append(cleanEnv(), "PROCTOR_SOCKET="+s.socket)
	return cmd
}

// result is how a client ended.
type result struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// commandTimeout is for a client that hangs; none should take a fraction of it.
const commandTimeout = 4 * time.Minute

// proctor runs a client with stdin to its end.
func (s *supervisor) proctor(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	return finish(t, s.command(ctx, args...), stdin)
}

func finish(t testing.TB, cmd *exec.Cmd, stdin string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(began)}
}

// verdict runs code and returns what the caller of a run with --json is told.
func (s *supervisor) verdict(t testing.TB, language, code string, flags ...string) *audit.Verdict {
	t.Helper()
	args := append([]string{"run", "--json", "--lang", language}, flags...)
	at := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		at = i
	}
	args = append(args[:at:at], append([]string{"-"}, args[at:]...)...)
	r := s.proctor(t, code, args...)
	if r.stderr != "" {
		t.Errorf("stderr with --json: %q", r.stderr)
	}
	v := parseVerdict(t, r.stdout)
	if v.ExitCode != r.code {
		t.Errorf("the client's exit code is %d, the verdict says %d", r.code, v.ExitCode)
	}
	return v
}

func parseVerdict(t testing.TB, text string) *audit.Verdict {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Fatalf("a verdict is one line, this is %q", text)
	}
	v := &audit.Verdict{}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("verdict: %v\n%s", err, text)
	}
	return v
}

// events reads a run's record as the client gives it.
func (s *supervisor) events(t testing.TB, run string) []audit.Event {
	t.Helper()
	r := s.proctor(t, "", "audit", "show", "-o", "json", run)
	if r.code != 0 {
		t.Fatalf("audit show: exit code %d: %s", r.code, r.stderr)
	}
	var events []audit.Event
	err := audit.ReadEvents(strings.NewReader(r.stdout), func(e audit.Event) error {
		events = append(events, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// recordDir is where a run is written down.
func (s *supervisor) recordDir(run string) string { return filepath.Join(s.dir, "state", "runs", run) }

// records lists the runs that are written down.
func (s *supervisor) records(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "state", "runs"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// eventually asks until f is content, and fails the test with f's last complaint if that
// takes too long.
func eventually(t testing.TB, within time.Duration, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("after %s: %v", within, err)
}

// A supervisorRun is a shell program that goes on in the background until somebody ends it.
// It has written a line when background returns.
type supervisorRun struct {
	cmd    *exec.Cmd
	run    string
	stdout *bytes.Buffer
	waited chan struct{}
}

// background starts the code, which must open a file in /scratch, and returns when it did.
func (s *supervisor) background(t testing.TB, code string, flags ...string) *supervisorRun {
	t.Helper()
	known := s.records(t)
	r := &supervisorRun{stdout: &bytes.Buffer{}, waited: make(chan struct{})}
	r.cmd = s.command(context.WithoutCancel(t.Context()), append(append([]string{"run", "--json", "--lang", "sh"}, flags...), "-")...)
	r.cmd.Stdin, r.cmd.Stdout = strings.NewReader(code), r.stdout
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(r.waited); _ = r.cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.waited
	})
	eventually(t, 30*time.Second, func() error {
		for _, id := range s.records(t) {
			events, _ := os.ReadFile(filepath.Join(s.recordDir(id), "events.jsonl"))
			// The interpreter is there, and has come to the code.
			if !slices.Contains(known, id) && bytes.Contains(events, []byte(`"exec":`)) && bytes.Contains(events, []byte("/scratch/")) {
				r.run = id
				return nil
			}
		}
		return errors.New("the run does not come up")
	})
	return r
}

// wait returns the verdict.
func (r *supervisorRun) wait(t testing.TB) *audit.Verdict {
	t.Helper()
	select {
	case <-r.waited:
	case <-time.After(60 * time.Second):
		t.Fatal("the client does not end")
	}
	return parseVerdict(t, r.stdout.String())
}
