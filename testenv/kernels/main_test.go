package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proctor/testenv"
)

// lines is more than the pipes on the way hold.
const lines = 20_000

// TestMain is also what runs in the machine, when it is told there what to do.
func TestMain(m *testing.M) {
	switch os.Args[len(os.Args)-1] {
	case "talk":
		os.Stdout.WriteString(strings.Repeat("0123456789\x16\n", lines))
		os.Exit(7)
	case "panic":
		if err := os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0); err != nil {
			panic(err)
		}
	case "hang":
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// machine runs this binary in a machine and returns its output and status.
func machine(t *testing.T, what string, env ...string) (stdout, stderr string, status int) {
	t.Helper()
	tree := testenv.ModuleRoot(t)
	if os.Getenv("PROCTOR_KERNELS") == "" {
		t.Skip("boots a virtual machine: set PROCTOR_KERNELS=1 after `make test-kernels`, which does")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(tree, "scripts", "in-kernel"), "6.1", self, what)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

func TestOutputAndStatus(t *testing.T) {
	out, stderr, status := machine(t, "talk")
	first, rest, _ := strings.Cut(out, "\n")
	if !strings.HasPrefix(first, "Linux 6.1.") || rest != strings.Repeat("0123456789\x16\n", lines) {
		t.Errorf("it says %q and %d bytes", first, len(rest))
	}
	if status != 7 || stderr != "" {
		t.Errorf("status %d, %s", status, stderr)
	}
}

func TestPanic(t *testing.T) {
	if _, stderr, status := machine(t, "panic"); status != 1 || !strings.Contains(stderr, "Kernel panic") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

func TestDeadline(t *testing.T) {
	if _, stderr, status := machine(t, "hang", "PROCTOR_KERNEL_DEADLINE=10"); status != 1 || !strings.Contains(stderr, "ended after 10 s") {
		t.Errorf("status %d, %s", status, stderr)
	}
}
