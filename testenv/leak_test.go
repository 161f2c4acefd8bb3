package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A recorder stands in for a test that may fail.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// finish runs the cleanups as the testing package does and returns the complaints.
func (r *recorder) finish() string {
	for len(r.cleanups) > 0 {
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		last()
	}
	return strings.Join(r.errors, "\n")
}

func TestLeakCheckIsQuietWhenNothingIsLeft(t *testing.T) {
	r := &recorder{TB: t}
	leakCheck(r, 2*time.Second)
	Dir(r)
	Cgroup(r)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	// An orphan that ends within the time, and has to be collected.
	if err := exec.Command("sh", "-c", "sleep 0.2 &").Run(); err != nil {
		t.Fatal(err)
	}
	if said := r.finish(); said != "" {
		t.Error(said)
	}
}

func TestLeakCheckNamesDescriptor(t *testing.T) {
	r := &recorder{TB: t}
	leakCheck(r, 0)
	name := filepath.Join(t.TempDir(), "left-open")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if said := r.finish(); !strings.Contains(said, "descriptor "+name) {
		t.Errorf("got %q", said)
	}
}

func TestLeakCheckNamesOrphan(t *testing.T) {
	r := &recorder{TB: t}
	leakCheck(r, 0)
	out, err := exec.Command("sh", "-c", "sleep 61.5 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	said := r.finish()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	if !strings.Contains(said, fmt.Sprintf("process %d", pid)) || !strings.Contains(said, "sleep 61.5") {
		t.Errorf("got %q", said)
	}
}

func TestLeakCheckNamesMountAndCgroup(t *testing.T) {
	Root(t)
	r := &recorder{TB: t}
	leakCheck(r, 0)
	dir := Dir(t)
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(cgroupMounts(t, "cgroup2")[0], Cgroup(t), "run")
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	said := r.finish()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Error(err)
	}
	if err := os.Remove(group); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"mount " + dir + " (tmpfs", "cgroup " + group, "cgroup " + filepath.Dir(group)} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
}

// A mount of something precious, left below the directory, must not be followed.
func TestDirIsRemovedWithoutFollowingMounts(t *testing.T) {
	Root(t)
	precious := filepath.Join(t.TempDir(), "keep")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	dir := newDir(r, 0)
	point := filepath.Join(dir, "bind")
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(filepath.Dir(precious), point, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if said := r.finish(); !strings.Contains(said, "mount "+point) {
		t.Errorf("got %q", said)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}

func TestParseMount(t *testing.T) {
	line := `36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 shared:2 - ext3 /dev/ro\134ot rw,errors=continue` + "\n"
	m, ok := parseMount(line)
	if want := (mount{"/mnt 2", "ext3", `/dev/ro\ot`, "rw,errors=continue"}); !ok || m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
	for _, bad := range []string{"", "1 2 3", "1 2 3 4 5 6 - ext4", "1 2 3 4 - ext4 a b"} {
		if _, ok := parseMount(bad); ok {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestOurs(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	Own("proctor-12345678")
	for _, tc := range []struct {
		name        string
		alone, host bool // without and with PROCTOR_LEAKCHECK=host
	}{
		{"/tmp/pt" + me + "-0123ab/run", true, true},
		{"/tmp/pt1-0123ab/run", false, false},
		{"/sys/fs/cgroup/pids/proctor-test-" + me + "-0123ab/x", true, true},
		{"/sys/fs/cgroup/pids/proctor-test-" + me + "0-0123ab/x", false, false},
		{"/sys/fs/cgroup/pids/proctor-12345678/x", true, true},
		{"/sys/fs/cgroup/pids/proctor/run", false, true},
		{"/sys/fs/bpf", false, false},
	} {
		t.Setenv("PROCTOR_LEAKCHECK", "")
		if got := ours(tc.name); got != tc.alone {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.alone)
		}
		t.Setenv("PROCTOR_LEAKCHECK", "host")
		if got := ours(tc.name); got != tc.host {
			t.Errorf("%s with the host to itself: %v, want %v", tc.name, got, tc.host)
		}
	}
}
