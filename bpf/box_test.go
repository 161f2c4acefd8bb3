package bpf_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/netpolicy"
	"proctor/supervisor/container"
	"proctor/testenv"
)

// A host is a parent cgroup with a Sensor attached to it.
type host struct {
	*bpf.Sensor
	opts bpf.Options
}

func newHost(t testing.TB) *host {
	t.Helper()
	testenv.Root(t)
	if t, ok := t.(*testing.T); ok {
		t.Parallel() // attaching is mostly waiting
	}
	h := &host{opts: bpf.Options{Cgroup: parentCgroup(t), Dir: testenv.Dir(t), Permitted: container.Permitted(), Own: []netip.Addr{netpolicy.Own4, netpolicy.Own6}, AllExits: os.Getenv(allExitsVariable) != "", Logger: testenv.Logger(t)}}
	h.open(t)
	t.Cleanup(func() {
		if err := h.Remove(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) open(t testing.TB) {
	t.Helper()
	var err error
	if h.Sensor, err = bpf.Open(h.opts); err != nil {
		t.Fatal(err)
	}
}

// counters fails the test when they can't be read.
func (h *host) counters(t testing.TB) map[string]uint64 {
	t.Helper()
	all, err := h.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parentCgroup makes a v2 cgroup that is removed at the end of the test.
func parentCgroup(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(unified(t), testenv.Cgroup(t))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// unified is where the v2 hierarchy is mounted.
func unified(t testing.TB) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	t.Fatal("cgroup v2 is not mounted in a usual place")
	return ""
}

// A box is a child cgroup of the host's. It has a Watch unless made by unwatched.
type box struct {
	*bpf.Watch
	dir    *os.File
	id     uint64
	orphan bool // its Sensor was closed first
}

func (h *host) unwatched(t testing.TB, name string) *box {
	t.Helper()
	path := filepath.Join(h.opts.Cgroup, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dir.Close()
		removeCgroup(t, path)
	})
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return &box{dir: dir, id: st.Ino}
}

// removeCgroup waits for the last task to be gone.
func removeCgroup(t testing.TB, path string) {
	var err error
	for range 1000 {
		if err = os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("left behind: %v", err)
}

// box makes a child that is watched and armed.
func (h *host) box(t testing.TB, name string, ringBytes int) *box {
	t.Helper()
	b := h.unarmed(t, name, ringBytes)
	if err := b.Arm(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (h *host) unarmed(t testing.TB, name string, ringBytes int) *box {
	t.Helper()
	b := h.unwatched(t, name)
	var err error
	b.Watch, err = h.Watch(bpf.WatchOptions{Run: name, CgroupID: b.id, RingBytes: ringBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); (err != nil) != b.orphan {
			t.Error(err)
		}
	})
	return b
}

// command is a process that will start in the box, in a netns and a PID namespace of
// its own.
func (b *box) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true,
		CgroupFD:    int(b.dir.Fd()),
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

// actCommand is one of acts, to be run in the box.
func (b *box) actCommand(t testing.TB, act string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.command(self, args...)
	cmd.Env = append(os.Environ(), actVariable+"="+act)
	return cmd
}

// act runs one of acts to its good end and returns what it printed.
func (b *box) act(t testing.TB, act string, args ...string) string {
	t.Helper()
	return output(t, b.actCommand(t, act, args...))
}

func output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := testenv.Run(cmd); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out.Bytes(), stderr.Bytes())
	}
	return out.String()
}

// drained returns what is left of what the box did, and the counts.
func (b *box) drained(t testing.TB) ([]audit.Event, audit.Counts) {
	t.Helper()
	events, err := b.Drain()
	if err != nil {
		t.Fatal(err)
	}
	counts, err := b.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return events, counts
}

// record returns everything the box did and fails the test when it is incomplete.
func (b *box) record(t testing.TB) []audit.Event {
	t.Helper()
	events, counts := b.drained(t)
	if counts.Lost != 0 || counts.Events != uint64(len(events)) {
		t.Errorf("counts are %+v of %d events", counts, len(events))
	}
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i+1, e.Seq)
		}
	}
	return events
}

// matching returns the events that ok holds for.
func matching(events []audit.Event, ok func(audit.Event) bool) []audit.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e audit.Event) bool { return !ok(e) })
}

// describe prints events for a failed test.
func describe(events []audit.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n  %d %s %+v", e.Seq, e.Kind, *e.Process)
		switch {
		case e.Open != nil:
			fmt.Fprintf(&b, " %+v", *e.Open)
		case e.Exec != nil:
			fmt.Fprintf(&b, " %+v", *e.Exec)
		case e.Fork != nil:
			fmt.Fprintf(&b, " %+v", *e.Fork)
		case e.Exit != nil:
			fmt.Fprintf(&b, " %+v", *e.Exit)
		case e.Net != nil:
			fmt.Fprintf(&b, " %+v", *e.Net)
		}
	}
	return b.String()
}
