package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proctor/audit"
	"proctor/testenv"
)

// Outputs that could not be written are no success, in JSON as by the exit code; and they can be
// had later.
func TestOutputsLater(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.proctor(t, "echo theirs >/outputs/a; mkdir /outputs/d; echo b >/outputs/d/b", "run", "--json", "--lang", "sh", "--output-dir", dir, "-")
	v := parseVerdict(t, r.stdout)
	if r.code != 125 || v.Status != audit.StatusError || v.ExitCode != 125 || !strings.Contains(v.Reason, "exists already") || !strings.Contains(v.Remedy, "proctor outputs "+v.Run) {
		t.Errorf("exit code %d, %s, %d: %s; %s", r.code, v.Status, v.ExitCode, v.Reason, v.Remedy)
	}
	to := filepath.Join(dir, "later")
	r = s.proctor(t, "", "outputs", "--output-dir", to, v.Run)
	if r.code != 0 || r.stdout != "a\nd/b\n" {
		t.Errorf("exit code %d, %q, %s", r.code, r.stdout, r.stderr)
	}
	if data, err := os.ReadFile(filepath.Join(to, "a")); err != nil || string(data) != "theirs\n" {
		t.Errorf("%q, %v", data, err)
	}
	// Once more: what is there is not replaced.
	if r := s.proctor(t, "", "outputs", "--output-dir", to, v.Run); r.code != 125 || !strings.Contains(r.stderr, "exists already") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
}

// The record as it is shown is what the seal is of.
func TestSealIsOfWhatIsShown(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "sh", "echo x >/scratch/x")
	shown := s.proctor(t, "", "audit", "show", "-o", "json", v.Run).stdout
	if v.Audit.Seal != "sha256:"+hexSum([]byte(shown)) {
		t.Errorf("the seal is %s, what is shown has %s", v.Audit.Seal, hexSum([]byte(shown)))
	}
}

// What a caller asks for and does not get is in the log, with who asked.
func TestRefusalsAreLogged(t *testing.T) {
	s := root(t)
	r := s.proctor(t, "true", "run", "--json", "--lang", "sh", "--memory", "1T", "-")
	if parseVerdict(t, r.stdout).Status != audit.StatusRefused {
		t.Fatalf("not refused: %s", r.stdout)
	}
	data, err := os.ReadFile(s.logFile())
	if err != nil || !strings.Contains(string(data), `msg="request refused" request="POST /v1/runs" why="memory 1024 GiB: the ceiling is`) {
		t.Errorf("the log does not say so, %v", err)
	}
}
