package testenv

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Unprivileged reports whether a test that is about having no rights is to go on here. Where root
// runs it, it has run by then in a process of its own, as nobody, and failed the test if it failed.
func Unprivileged(t *testing.T) (here bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	// The link leads to the binary also from below a directory that is closed to others.
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "PROCTOR_ROOT_TESTS=", "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	return false
}
