package testenv

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// LeakCheck notes what there is now and, at the test's end, fails the test for
// everything that has come to stay:
//
//   - processes: every descendant of this process. It becomes the reaper of orphans,
//     so a shim, or what a killed supervisor leaves, counts as well;
//   - mounts, network namespaces, cgroups and pinned BPF objects, if they are this
//     process's (see the package's documentation);
//   - this process's own descriptors.
//
// Teardown may lag by some seconds. Tests that run in parallel in one process can't
// be told apart: a test with LeakCheck is not parallel.
func LeakCheck(t testing.TB) {
	t.Helper()
	leakCheck(t, patience)
}

func leakCheck(t testing.TB, wait time.Duration) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatalf("become the reaper of orphans: %v", err)
	}
	primePoller(t)
	zombies := map[int]bool{}
	before := takeInventory(t, zombies)
	t.Cleanup(func() {
		left := waitNone(wait, func() []string { return takeInventory(t, zombies).beyond(before) })
		for _, name := range left {
			t.Errorf("left behind: %s", name)
		}
	})
}

// An inventory counts things by what they are called; several may have one name.
type inventory map[string]int

func (inv inventory) beyond(before inventory) []string {
	var more []string
	for name, n := range inv {
		if extra := n - before[name]; extra == 1 {
			more = append(more, name)
		} else if extra > 1 {
			more = append(more, fmt.Sprintf("%s (%d times)", name, extra))
		}
	}
	slices.Sort(more)
	return more
}

func takeInventory(t testing.TB, zombies map[int]bool) inventory {
	inv := inventory{}
	for _, name := range descendants(zombies) {
		inv["process "+name]++
	}
	for _, name := range openFiles(t) {
		inv["descriptor "+name]++
	}
	for _, m := range readMounts(t) {
		if ours(m.point + " " + m.source + " " + m.options) {
			inv["mount "+m.String()]++
		}
		switch m.fstype {
		case "cgroup", "cgroup2":
			for _, dir := range subdirectories(m.point) {
				if ours(dir) {
					inv["cgroup "+dir]++
				}
			}
		case "bpf":
			for _, path := range entriesBelow(m.point) {
				inv["pinned "+path]++
			}
		}
	}
	for _, path := range entriesBelow("/run/netns") {
		inv["network namespace "+path]++
	}
	// Where containerd's shim puts runc's state if nobody says otherwise.
	states, _ := filepath.Glob("/run/containerd/runc/*/*")
	for _, path := range states {
		if ours(path) {
			inv["runc state "+path]++
		}
	}
	return inv
}

// entriesBelow lists what is ours below root, directories and files.
func entriesBelow(root string) []string {
	var paths []string
	_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && ours(path[len(root):]) {
			paths = append(paths, path)
		}
		return nil
	})
	return paths
}

// openFiles names this process's descriptors by what they refer to.
func openFiles(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		// The one that read the directory is gone by now, which is an error here.
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasSuffix(name, "/fd") {
			names = append(names, name)
		}
	}
	return names
}

// primePoller makes the Go runtime open the descriptors of its poller, which it keeps,
// before they are counted.
func primePoller(t testing.TB) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
}
