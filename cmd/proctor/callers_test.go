package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"proctor/api"
	"proctor/audit"
	"proctor/testenv"
)

// A call is a client that is going on.
type call struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

func startCall(t *testing.T, cmd *exec.Cmd, code string) *call {
	t.Helper()
	c := &call{cmd: cmd, done: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(code), &c.stdout, &c.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(c.done); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-c.done })
	return c
}

func (c *call) verdict(t *testing.T) *audit.Verdict {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%q does not end", c.cmd.Args)
	}
	return parseVerdict(t, c.stdout.String())
}

// TestCallers has a user whom proctor.yaml gives a share and the role of an auditor.
func TestCallers(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	profiles := filepath.Join(dir, "profiles")
	config := filepath.Join(dir, "proctor.yaml")
	if err := os.Mkdir(profiles, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		filepath.Join(profiles, "small.yaml"):    "description: little\nimages: [shell]\nlimits: {default: {timeout: 2m}, ceiling: {timeout: 3m, memory: 64M}}\n",
		filepath.Join(profiles, "graceful.yaml"): "description: time to clean up\nlimits: {default: {timeout: 1s, grace: 2s}}\n",
		filepath.Join(profiles, "other.yaml"):    "description: for others\ncallers: {users: [12345]}\n",
		config:                                   fmt.Sprintf("profiles: %s\ncallers:\n  - {users: [%d], role: auditor, profiles: [small, other], default_profile: small, at_once: 1, queue: 2}\nruns: {at_once: 2, queue: 3}\n", profiles, nobody),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := newSupervisor(t, "--config", config)
	if err := os.Chmod(s.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	bin := publicProctor(t, s)
	command := func(args ...string) *exec.Cmd {
		return asNobody(t, s.command(context.WithoutCancel(t.Context()), args...), bin)
	}
	run := func(flags ...string) []string {
		return append(append([]string{"run", "--json", "--lang", "sh"}, flags...), "-")
	}
	users := func(code string, flags ...string) *audit.Verdict {
		return parseVerdict(t, finish(t, command(run(flags...)...), code).stdout)
	}

	// Its own profile, with what that says.
	v := users("cat /proc/self/limits >/dev/null; echo ok", "--agent", "a \u202e\n", "--conversation", "7")
	if v.Status != audit.StatusOK {
		t.Fatalf("%+v", v)
	}
	shown := finish(t, command("audit", "show", "-o", "json", v.Run), "").stdout
	for _, want := range []string{`"profile":"small"`, `"agent":"a \u202e\u000a"`, `"conversation":"7"`, `"timeout":120000000000`, `"memory":67108864`} {
		if !strings.Contains(shown, want) {
			start, _, _ := strings.Cut(shown, "\n")
			t.Errorf("the record does not say %s: %s", want, start)
		}
	}
	if text := finish(t, command("audit", "show", v.Run), "").stdout; !strings.Contains(text, `by uid 65534, for the agent 'a \u{202e}\n', in the conversation 7`) {
		t.Errorf("shown is %.300q", text)
	}
	for name, test := range map[string]struct {
		flags []string
		says  string
	}{
		"another profile":          {[]string{"--profile", "offline"}, `profile "offline" is not for this caller`},
		"a profile for others":     {[]string{"--profile", "other"}, `profile "other" is for certain users and groups, and not for user 65534`},
		"above the ceiling":        {[]string{"--timeout", "181s"}, "timeout 3m1s: the ceiling is 3m"},
		"an image that is not its": {[]string{"--image", "python-data"}, `image "python-data": profile small allows shell`},
		"a long label":             {[]string{"--agent", strings.Repeat("a", 201)}, "agent of 201 bytes: at most 200"},
	} {
		if v := users("true", test.flags...); v.Status != audit.StatusRefused || !strings.Contains(v.Reason, test.says) || v.Remedy == "" {
			t.Errorf("%s: %s: %s — %s", name, v.Status, v.Reason, v.Remedy)
		}
	}

	// At the deadline, where the profile gives a grace, a program is asked to end first: what it
	// does about that is its own, and when the grace is over it is ended.
	for name, test := range map[string]struct {
		code, says string
		least      time.Duration
	}{
		"cleans up": {`trap 'echo bye; exit 3' TERM; echo hi; while :; do sleep 0.1; done`, "hi\nbye\n", time.Second},
		"is deaf":   {`trap '' TERM; echo hi; (trap '' TERM; sleep 60) & while :; do sleep 0.1; done`, "hi\n", 3 * time.Second},
	} {
		began := time.Now()
		v := s.verdict(t, "sh", test.code, "--profile", "graceful")
		if v.Status != audit.StatusTimeout || v.ExitCode != 124 || string(v.Stdout.Bytes()) != test.says || time.Since(began) < test.least || time.Since(began) > test.least+20*time.Second {
			t.Errorf("%s: %s, %d, %q in %s", name, v.Status, v.ExitCode, v.Stdout.Bytes(), time.Since(began))
		}
	}

	// An auditor sees what is not its own, and ends nothing of it.
	roots := s.background(t, "echo >/scratch/x; while :; do sleep 1; done", "--profile", "small")
	if r := finish(t, command("audit", "show", roots.run), ""); r.code != 0 {
		t.Errorf("an auditor sees nothing: %s", r.stderr)
	}
	if r := finish(t, command("kill", roots.run), ""); r.code != 125 || !strings.Contains(r.stderr, "ending it is for operators") {
		t.Errorf("kill by an auditor: %d, %s", r.code, r.stderr)
	}

	// One of its runs goes on, two wait, and the fourth is refused.
	first := startCall(t, command(run()...), "echo >/scratch/x; while :; do sleep 1; done")
	waiting := func(n int) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			st := s.proctor(t, "", "status", "-o", "json").stdout
			var got api.Status
			if err := json.Unmarshal([]byte(st), &got); err != nil || len(got.Active) != 2 || len(got.Waiting) != n {
				return fmt.Errorf("status %s, want 2 that go on and %d that wait", st, n)
			}
			return nil
		})
	}
	waiting(0)
	second := startCall(t, command(run()...), "echo second")
	waiting(1)
	third := startCall(t, command("run", "--lang", "sh", "-"), "echo third")
	waiting(2)
	v = users("echo fourth")
	if v.Status != audit.StatusRefused || v.RetryAfter < 1 || !strings.Contains(v.Reason, "1 runs of the caller go on and 2 wait") || !strings.Contains(v.Remedy, "try again in about") {
		t.Errorf("%s: %s — %s; %d", v.Status, v.Reason, v.Remedy, v.RetryAfter)
	}
	// There is no room for root's either, and then there is: its run is before the two that came first.
	rootCall := startCall(t, s.command(context.WithoutCancel(t.Context()), run()...), "echo roots")
	waiting(3)
	if v := s.verdict(t, "sh", "true"); v.Status != audit.StatusRefused || !strings.Contains(v.Reason, "2 runs go on and 3 wait") {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	if r := s.proctor(t, "", "kill", roots.run); r.code != 0 {
		t.Error(r.stderr)
	}
	if v := rootCall.verdict(t); v.Status != audit.StatusOK {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	select {
	case <-second.done:
		t.Errorf("a second run of the user went on beside its first: %s", second.stdout.String())
	default:
	}
	// Who goes away leaves the line.
	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-first.done
	if v := second.verdict(t); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "second\n" {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	<-third.done
	if out := third.stderr.String(); third.stdout.String() != "third\n" || !regexp.MustCompile(`(?m)^proctor: run [-0-9a-f]{36} waits for room: at most 1 runs are before it$`).MatchString(out) {
		t.Errorf("stdout %q, stderr %q", third.stdout.String(), out)
	}
}
