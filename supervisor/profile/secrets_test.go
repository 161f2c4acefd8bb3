package profile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"proctor/netpolicy/egress"
)

const canary = "canary-5f3a9c"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fromFile(file string) *egress.Credential {
	return &egress.Credential{Name: "api", Source: egress.Source{File: file}}
}

func sh(script string) *egress.Credential {
	return &egress.Credential{Name: "api", Source: egress.Source{Command: []string{"/bin/sh", "-c", script}}}
}

// refused is the error of a secret that must not be taken; it never shows one.
func refused(t *testing.T, r Secrets, c *egress.Credential, says string) {
	t.Helper()
	s, err := r.Read(t.Context(), c)
	if err == nil || !s.Empty() {
		t.Errorf("%+v: taken", c.Source)
		return
	}
	if text := err.Error(); !strings.HasPrefix(text, "credential api: ") || !strings.Contains(text, says) ||
		strings.Contains(text, canary) || strings.Contains(text, "\n") || len(text) > 500 {
		t.Errorf("%+v: %q, want %q", c.Source, text, says)
	}
}

func TestSecretFile(t *testing.T) {
	dir := t.TempDir()
	longest := strings.Repeat("x", 16<<10)
	for content, want := range map[string]string{
		canary: canary, canary + "\n": canary, " a b\"ü " + canary: " a b\"ü " + canary, "12345678": "12345678",
		longest: longest, longest + "\n": longest,
	} {
		s, err := Secrets{}.Read(t.Context(), fromFile(write(t, dir, "s", content)))
		if err != nil || string(s.Reveal()) != want {
			t.Errorf("%.40q: %.40q, %v", content, s.Reveal(), err)
		}
		if fmt.Sprint(s) != "[redacted]" {
			t.Errorf("shown as %v", s)
		}
	}
	for content, says := range map[string]string{
		"":                     "is empty",
		"\n":                   "is empty",
		canary + "\n\n":        "has more than one line",
		canary + "\r\n":        "a carriage return",
		canary + "\n" + canary: "has more than one line",
		canary + "\x00":        "has a NUL",
		canary + "\t":          "control character",
		canary + "\x7f":        "control character",
		"short":                "has less than 8 bytes",
		longest + "x":          "has more than 16384 bytes",
		longest + "x\n":        "has more than 16384 bytes",
		longest + longest:      "has more than 16384 bytes",
	} {
		refused(t, Secrets{}, fromFile(write(t, dir, "s", content)), says)
	}
}

func TestSecretFileRefuses(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "s", canary)
	for _, mode := range []os.FileMode{0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o777} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		refused(t, Secrets{}, fromFile(file), fmt.Sprintf("file %s: has mode %04o, so that others than its owner may use it: chmod 600 %[1]s", file, mode))
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := (Secrets{}).Read(t.Context(), fromFile(file)); err != nil {
			t.Errorf("%04o: %v", mode, err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("s", link); err != nil {
		t.Fatal(err)
	}
	if _, err := (Secrets{}).Read(t.Context(), fromFile(link)); err != nil {
		t.Errorf("a link: %v", err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, Secrets{}, fromFile(fifo), "is no regular file")
	refused(t, Secrets{}, fromFile(dir), "is no regular file")
	refused(t, Secrets{}, fromFile(filepath.Join(dir, "none")), "no such file")
	refused(t, Secrets{}, &egress.Credential{Name: "api"}, "no source")
}

func TestSecretVariable(t *testing.T) {
	t.Setenv("PROFILE_TEST", canary) // this process's own environment is not looked at
	c := &egress.Credential{Name: "api", Source: egress.Source{Env: "PROFILE_TEST"}}
	refused(t, Secrets{}, c, "variable PROFILE_TEST: is not set in the supervisor's environment")
	refused(t, Secrets{Env: []string{"PROFILE_TEST_2=" + canary}}, c, "is not set")
	refused(t, Secrets{Env: []string{"PROFILE_TEST="}}, c, "is empty")
	refused(t, Secrets{Env: []string{"PROFILE_TEST=" + canary + "\nX"}}, c, "more than one line")
	s, err := Secrets{Env: []string{"A=b", "PROFILE_TEST=first-one", "PROFILE_TEST=" + canary}}.Read(t.Context(), c)
	if err != nil || string(s.Reveal()) != canary {
		t.Errorf("%q, %v", s.Reveal(), err)
	}
}

func TestSecretCommand(t *testing.T) {
	t.Setenv("PROFILE_TEST", canary)
	r := Secrets{Env: []string{"TOKEN=" + canary}}
	for script, want := range map[string]string{
		"echo $TOKEN":                                canary,
		"printf %s $TOKEN":                           canary,
		"echo ${PROFILE_TEST:-nothing-of-it}":        "nothing-of-it",
		"read x || echo no-input":                    "no-input",
		"pwd >/dev/null; echo cwd-is-$(pwd)":         "cwd-is-/",
		"echo " + canary + " >&2; echo other-secret": "other-secret",
	} {
		s, err := r.Read(t.Context(), sh(script))
		if err != nil || string(s.Reveal()) != want {
			t.Errorf("%s: %q, %v", script, s.Reveal(), err)
		}
	}
	for script, says := range map[string]string{
		"echo $TOKEN; echo $TOKEN >&2; exit 3": "command /bin/sh: ended with exit status 3: see why by running it",
		"echo $TOKEN; kill -9 $$":              "ended with signal: killed",
		"true":                                 "is empty",
		"echo $TOKEN; echo $TOKEN":             "more than one line",
		"printf '%s\\0' $TOKEN":                "has a NUL",
		"head -c 100000 /dev/zero":             "wrote more than 16384 bytes",
		"sleep 20 & echo $TOKEN":               "left a process that holds its stdout open",
	} {
		refused(t, r, sh(script), says)
	}
	refused(t, r, &egress.Credential{Name: "api", Source: egress.Source{Command: []string{"/nonexistent/" + "x", canary}}}, "command /nonexistent/x: could not be run: no such file")
}

// A command that hangs is killed with all that it started, in time.
func TestSecretCommandTimeout(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	script := fmt.Sprintf("sleep 60 & echo $! $$ > %s; echo %s; sleep 60", pids, canary)
	start := time.Now()
	refused(t, Secrets{Timeout: 3 * time.Second}, sh(script), "took longer than 3s and was killed")
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(5 * time.Second)
		for alive(pid) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		if alive(pid) {
			t.Errorf("%d still runs", pid)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := (Secrets{}).Read(ctx, sh("sleep 60")); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("after the caller left: %v", err)
	}
}

// alive is whether a process runs; one that nobody has waited for yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
