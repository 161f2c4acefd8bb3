package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func find(t *testing.T, checks []Check, name string) Check {
	t.Helper()
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q", name)
	return Check{}
}

// As any user, every check comes to a conclusion, and what isn't well has a remedy.
func TestRunAsWhoever(t *testing.T) {
	dir := t.TempDir()
	checks := Run(t.Context(), Options{
		StateDir: filepath.Join(dir, "state"), RunDir: "/tmp", Socket: filepath.Join("/tmp", "no-such-proctor.sock"), BinDir: dir,
	})
	seen := map[string]bool{}
	for _, c := range checks {
		t.Logf("%-7s %s: %s [%s]", c.Status, c.Name, c.Detail, c.Fix)
		if seen[c.Name] {
			t.Errorf("%s twice", c.Name)
		}
		seen[c.Name] = true
		if c.Detail == "" || c.Status != OK && c.Fix == "" || c.Status == OK && c.Fix != "" {
			t.Errorf("incomplete: %+v", c)
		}
		if strings.Contains(c.Detail, "\n") {
			t.Errorf("more than one line: %+v", c)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	for _, name := range []string{"containerd", "runc", "containerd-shim-runc-v2", "proctor-init", "proctor-gateway"} {
		if c := find(t, checks, name); c.Status != Fail || c.Fix != "run `make build`" {
			t.Errorf("missing binary: %+v", c)
		}
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if checks := Run(ctx, Options{}); len(checks) != 1 || checks[0].Status != Fail {
		t.Errorf("got %+v", checks)
	}
}

func TestCount(t *testing.T) {
	checks := []Check{{Status: OK}, {Status: Untried}, {Status: Warn}, {Status: Untried}}
	for status, want := range map[Status]int{OK: 1, Warn: 1, Untried: 2, Fail: 0} {
		if got := Count(checks, status); got != want {
			t.Errorf("%s: %d, want %d", status, got, want)
		}
	}
}

func TestJudgeRelease(t *testing.T) {
	for release, want := range map[string]Status{
		"6.18.44-fc-v782": OK, "6.1.0-28-amd64": OK, "7.0": OK,
		"6.0.19": Fail, "5.15.0-1": Fail, "4.19": Fail, "": Warn, "six": Warn,
	} {
		if c := judgeRelease("kernel", release); c.Status != want {
			t.Errorf("%q: %+v, want %s", release, c, want)
		}
	}
}

func TestParseHierarchies(t *testing.T) {
	const line = "31 23 0:27 / %s rw,relatime - %s none rw,%s\n"
	unified := parseHierarchies(fmt.Sprintf(line, "/sys/fs/cgroup", "cgroup2", "nsdelegate"))
	if unified.v2 != "/sys/fs/cgroup" || unified.hybrid {
		t.Errorf("unified: %+v", unified)
	}
	hybrid := parseHierarchies(
		fmt.Sprintf(line, "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct") +
			fmt.Sprintf(line, "/sys/fs/cgroup/pids", "cgroup", "pids") +
			fmt.Sprintf(line, "/sys/fs/cgroup/unified", "cgroup2", "seclabel") + "garbage\n")
	if hybrid.v2 != "/sys/fs/cgroup/unified" || !hybrid.hybrid || hybrid.controllers["cpu"] != "/sys/fs/cgroup/cpu,cpuacct" {
		t.Errorf("hybrid: %+v", hybrid)
	}
	if c := hybrid.checkControllers(); c.Status != Fail || !strings.Contains(c.Detail, "memory") {
		t.Errorf("without memory: %+v", c)
	}
	hybrid.controllers["memory"] = hybrid.v2
	if c := hybrid.checkControllers(); c.Detail != "cpu (v1), memory (v2), pids (v1)" {
		t.Errorf("complete: %+v", c)
	}
}

func TestJudgeSpace(t *testing.T) {
	for _, tc := range []struct {
		free, inodes, freeInodes uint64
		want                     Status
	}{
		{10 << 30, 1e6, 1e6, OK}, {10 << 30, 0, 0, OK}, {2 << 30, 1e6, 1e6, Warn},
		{1 << 20, 1e6, 1e6, Fail}, {10 << 30, 1e6, 10, Fail},
	} {
		if c := judgeSpace("disk", "/x", tc.free, tc.inodes, tc.freeInodes); c.Status != tc.want {
			t.Errorf("%+v: %+v", tc, c)
		}
	}
}

func TestFindVersion(t *testing.T) {
	for out, want := range map[string]string{
		"containerd github.com/containerd/containerd/v2 2.3.7+unknown \n": "2.3.7+unknown",
		"runc version 1.5.3\nspec: 1.3.0\n":                               "1.5.3",
		"containerd-shim-runc-v2:\n  Version:  v2.3.7\n":                  "2.3.7",
		"mmdebstrap 1.3.5": "1.3.5",
		"usage: 3 things":  "",
	} {
		if got := findVersion(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func TestOutcomeForWantOfRights(t *testing.T) {
	err := fmt.Errorf("load: %w", unix.EPERM)
	c := outcome("x", "", err, "fix it")
	if os.Geteuid() == 0 {
		if c.Status != Fail || c.Fix != "fix it" {
			t.Errorf("root: %+v", c)
		}
	} else if c.Status != Untried || !strings.Contains(c.Fix, "sudo proctor doctor") {
		t.Errorf("user: %+v", c)
	}
	if needsRoot(fs.ErrNotExist) || needsRoot(errors.New("x")) || needsRoot(nil) {
		t.Error("root would not help with these")
	}
}

func TestSocketPathsThatAreTooLong(t *testing.T) {
	long := "/run/" + strings.Repeat("x", 103)
	if c := checkRunDir(long); c.Status != Fail || !strings.Contains(c.Fix, "--run-dir") {
		t.Errorf("%+v", c)
	}
	if c := checkSupervisor(t.Context(), Options{Socket: long})[0]; c.Status != Fail || !strings.Contains(c.Fix, "--socket") {
		t.Errorf("%+v", c)
	}
}

func TestCheckSupervisor(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "doc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	check := func() Check { return checkSupervisor(t.Context(), Options{Socket: path})[0] }
	if c := check(); c.Status != Warn || !strings.Contains(c.Fix, "proctor serve") {
		t.Errorf("none: %+v", c)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if c := check(); c.Status != OK {
		t.Errorf("listening: %+v", c)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if c := check(); c.Status != Warn || !strings.Contains(c.Detail, "left its socket") {
		t.Errorf("stale: %+v", c)
	}
}
