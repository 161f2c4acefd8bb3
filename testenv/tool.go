package testenv

import (
	"os"
	"os/exec"
	"testing"
)

// Tool is the path of a program that a test is about, such as curl. Where it is missing the test
// fails among the root tests, for which `make test` installs what they need (scripts/deps), and
// is skipped among the others.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("PROCTOR_ROOT_TESTS") == "1":
		t.Fatalf("%v: `make test` installs it", err)
	default:
		t.Skipf("%v", err)
	}
	return path
}
