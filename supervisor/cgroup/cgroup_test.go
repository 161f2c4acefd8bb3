package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/testenv"
)

const v2only = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
25 22 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw
29 25 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`

const hybrid = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
29 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
30 29 0:27 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw
31 29 0:28 / /sys/fs/cgroup/systemd rw shared:6 - cgroup cgroup rw,xattr,name=systemd
32 29 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:7 - cgroup cgroup rw,cpu,cpuacct
33 29 0:30 / /sys/fs/cgroup/memory rw shared:8 - cgroup cgroup rw,memory
34 29 0:31 / /sys/fs/cgroup/pids rw shared:9 master:1 - cgroup cgroup rw,pids
`

func TestParseMounts(t *testing.T) {
	for _, test := range []struct {
		name, mounts string
		unified      string
		controllers  map[string]string // directory of group g
		roots        []string
	}{
		{"v2 alone", v2only, "/sys/fs/cgroup",
			map[string]string{"memory": "/sys/fs/cgroup/g v2", "pids": "/sys/fs/cgroup/g v2"}, []string{"/sys/fs/cgroup"}},
		{"hybrid", hybrid, "/sys/fs/cgroup/unified",
			map[string]string{"memory": "/sys/fs/cgroup/memory/g", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/g", "pids": "/sys/fs/cgroup/pids/g", "cpuset": "/sys/fs/cgroup/unified/g v2"},
			[]string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"}},
		{"v1 alone", strings.ReplaceAll(hybrid, "cgroup2", "nothing"), "",
			map[string]string{"memory": "/sys/fs/cgroup/memory/g"}, nil},
		{"odd mount point", `29 25 0:26 / /mnt/c\040g\011\012\134x rw - cgroup2 none rw` + "\n", "/mnt/c g\t\n\\x",
			map[string]string{"memory": "/mnt/c g\t\n\\x/g v2"}, []string{"/mnt/c g\t\n\\x"}},
		{"a part comes first", "28 25 0:26 /docker/abc /var/part rw - cgroup2 none rw\n" + v2only, "/sys/fs/cgroup", nil, []string{"/sys/fs/cgroup"}},
		{"a part of a controller comes last", hybrid + "40 29 0:30 /docker/abc /var/part rw - cgroup cgroup rw,memory\n", "/sys/fs/cgroup/unified",
			map[string]string{"memory": "/sys/fs/cgroup/memory/g"},
			[]string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"}},
		{"mounted again elsewhere", hybrid + "40 29 0:30 / /var/again rw - cgroup cgroup rw,memory\n41 29 0:27 / /var/again2 rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified",
			map[string]string{"memory": "/sys/fs/cgroup/memory/g"},
			[]string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"}},
		{"after a line of any length", "50 1 0:9 / /o rw - overlay overlay rw,lowerdir=" + strings.Repeat("/l:", 1<<16) + "\n" + v2only, "/sys/fs/cgroup", nil, []string{"/sys/fs/cgroup"}},
		{"no line break at the end", strings.TrimSpace(v2only), "/sys/fs/cgroup", nil, []string{"/sys/fs/cgroup"}},
		{"nothing", "", "", nil, nil},
		{"nonsense", "x\n - \n1 2 3 / /m rw - cgroup2\n1 2 3\n", "", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := parseMounts([]byte(test.mounts))
			if h.unified != test.unified {
				t.Errorf("v2 at %q, want %q", h.unified, test.unified)
			}
			for controller, want := range test.controllers {
				got, v2 := h.Controller(controller, "g")
				if v2 {
					got += " v2"
				}
				if got != want {
					t.Errorf("%s in %q, want %q", controller, got, want)
				}
			}
			if test.roots == nil {
				return
			}
			roots := h.roots()
			slices.Sort(roots)
			if diff := cmp.Diff(test.roots, roots); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte(v2only))
	f.Add([]byte(hybrid))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := parseMounts(data)
		roots := h.roots()
		slices.Sort(roots)
		if len(slices.Compact(slices.Clone(roots))) != len(roots) {
			t.Fatalf("one twice: %q", roots)
		}
		for controller, root := range h.legacy {
			if dir, v2 := h.Controller(controller, "g"); v2 || !slices.Contains(roots, root) {
				t.Fatalf("%q is in %q", controller, dir)
			}
		}
	})
}

// fakeHost has hierarchies that are plain directories, for what is only files.
func fakeHost(t *testing.T, v2 map[string]string, legacy map[string]map[string]string) Host {
	t.Helper()
	dir := t.TempDir()
	fill := func(root string, files map[string]string) string {
		root = filepath.Join(dir, root)
		if err := os.MkdirAll(filepath.Join(root, "g"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(root, "g", name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	h := Host{unified: fill("unified", v2), legacy: map[string]string{}}
	for controller, files := range legacy {
		h.legacy[controller] = fill(controller, files)
	}
	return h
}

func TestUsage(t *testing.T) {
	v2 := map[string]string{
		"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "memory.peak": "4096\n", "memory.events": "low 0\noom_kill 2\n", "pids.events": "max 3\n", "pids.peak": "7\n",
	}
	without := func(name string) map[string]string {
		m := map[string]string{}
		for k, v := range v2 {
			if k != name {
				m[k] = v
			}
		}
		return m
	}
	legacy := map[string]map[string]string{
		"cpuacct": {"cpuacct.usage": "2000000\n"}, "memory": {"memory.max_usage_in_bytes": "8192\n", "memory.oom_control": "under_oom 0\noom_kill 5\n"}, "pids": {"pids.events": "max 4\n", "pids.peak": "9\n"},
	}
	for _, test := range []struct {
		name  string
		host  Host
		want  Usage
		fails string
	}{
		{"v2", fakeHost(t, v2, nil), Usage{CPU: 1500 * time.Microsecond, MemoryPeak: 4096, PIDsPeak: 7, PIDsHit: 3, OOMKills: 2}, ""},
		{"v1", fakeHost(t, nil, legacy), Usage{CPU: 2 * time.Millisecond, MemoryPeak: 8192, PIDsPeak: 9, PIDsHit: 4, OOMKills: 5}, ""},
		{"kernel without pids.peak", fakeHost(t, without("pids.peak"), nil), Usage{CPU: 1500 * time.Microsecond, MemoryPeak: 4096, PIDsHit: 3, OOMKills: 2}, ""},
		{"kernel without memory.peak", fakeHost(t, without("memory.peak"), nil), Usage{CPU: 1500 * time.Microsecond, PIDsPeak: 7, PIDsHit: 3, OOMKills: 2}, "memory.peak"},
		{"no cpu.stat", fakeHost(t, without("cpu.stat"), nil), Usage{MemoryPeak: 4096, PIDsPeak: 7, PIDsHit: 3, OOMKills: 2}, "cpu.stat"},
		{"key missing", fakeHost(t, map[string]string{"cpu.stat": "x 1\n", "memory.peak": "1", "pids.events": "max 0\n"}, nil), Usage{MemoryPeak: 1}, "no key usage_usec"},
		{"no number", fakeHost(t, map[string]string{"cpu.stat": "usage_usec 1\n", "memory.peak": "max\n", "pids.events": "max 0\n"}, nil), Usage{CPU: time.Microsecond}, "max"},
	} {
		got, err := test.host.Usage("g")
		if got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
		if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestPopulated(t *testing.T) {
	for content, want := range map[string]bool{"populated 1\nfrozen 0\n": true, "frozen 0\npopulated 0\n": false} {
		h := fakeHost(t, map[string]string{"cgroup.events": content}, nil)
		if got, err := h.Populated("g"); err != nil || got != want {
			t.Errorf("%q: %v, %v", content, got, err)
		}
	}
	h := fakeHost(t, map[string]string{"cgroup.events": "frozen 0\n"}, nil)
	if _, err := h.Populated("g"); err == nil {
		t.Error("no answer is an answer")
	}
	if populated, err := h.Populated("none"); populated || err != nil {
		t.Errorf("one that is not there: %v, %v", populated, err)
	}
}

// detect is this host's, with a parent for this test.
func detect(t *testing.T) (Host, string) {
	t.Helper()
	testenv.Root(t)
	testenv.LeakCheck(t)
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	return h, testenv.Cgroup(t)
}

// sleepIn starts a process that ignores SIGTERM in a group of the v2 hierarchy, and a child of it.
func sleepIn(t *testing.T, h Host, group string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo $$ > "$1" && echo ready; sleep 300 & wait`, "sh", filepath.Join(h.Unified(group), "cgroup.procs"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatalf("the process did not get in: %v", err)
	}
	return cmd
}

func TestLifeRoot(t *testing.T) {
	h, parent := detect(t)
	if err := h.MakeParent(parent); err != nil {
		t.Fatal(err)
	}
	if err := h.MakeParent(parent); err != nil { // it may be there
		t.Fatal(err)
	}
	first, err := h.ID(parent)
	if err != nil || first == 0 {
		t.Fatalf("id %d, %v", first, err)
	}
	if names, err := h.Children(parent); err != nil || len(names) != 0 {
		t.Errorf("children %v, %v", names, err)
	}
	run, other := parent+"/run", parent+"/other"
	for _, g := range []string{run + "/deep/er", other} {
		if err := os.MkdirAll(h.Unified(g), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if dir, v2 := h.Controller("pids", run); !v2 {
		// A runtime makes the group in every hierarchy.
		if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(filepath.Dir(dir), "v1-only"), 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(filepath.Join(filepath.Dir(dir), "v1-only"))
		names, err := h.Children(parent)
		slices.Sort(names)
		if diff := cmp.Diff([]string{"other", "run", "v1-only"}, names); diff != "" || err != nil {
			t.Errorf("children: %s %v", diff, err)
		}
	}

	inDeep, inOther := sleepIn(t, h, run+"/deep/er"), sleepIn(t, h, other)
	for group, want := range map[string]bool{parent: true, run: true, run + "/deep": true, other: true, parent + "/none": false} {
		if got, err := h.Populated(group); err != nil || got != want {
			t.Errorf("%s populated: %v, %v", group, got, err)
		}
	}
	if err := h.Remove(run); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removing a group with a process in it: %v", err)
	}
	h.RemoveIfEmpty(parent)
	if _, err := h.ID(parent); err != nil {
		t.Errorf("a parent in use is gone: %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := h.Kill(ctx, run); err != nil {
		t.Fatal(err)
	}
	if populated, err := h.Populated(run); populated || err != nil {
		t.Errorf("populated after Kill: %v, %v", populated, err)
	}
	if err := inDeep.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process in it: %v", err)
	}
	if err := inOther.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the process beside it: %v", err)
	}
	for range 2 { // what is gone may be killed and removed
		if err := h.Kill(ctx, run); err != nil {
			t.Error(err)
		}
		if err := h.Remove(run); err != nil {
			t.Error(err)
		}
	}
	if names, err := h.Children(parent); err != nil || slices.Contains(names, "run") {
		t.Errorf("children after Remove: %v, %v", names, err)
	}
	if _, err := h.ID(run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("id of what is gone: %v", err)
	}

	if err := h.Kill(ctx, other); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(parent); err != nil {
		t.Fatal(err)
	}
	if err := h.MakeParent(parent); err != nil {
		t.Fatal(err)
	}
	if again, err := h.ID(parent); err != nil || again == first {
		t.Errorf("made again, it has the id %d again, %v", again, err)
	}
	h.RemoveIfEmpty(parent)
	if _, err := h.ID(parent); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty parent stays: %v", err)
	}
}

// A fork bomb is no match for Kill.
func TestKillForkingRoot(t *testing.T) {
	h, parent := detect(t)
	group := parent + "/bomb"
	if err := os.MkdirAll(h.Unified(group), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `echo $$ > "$1" && echo ready; while :; do (sleep 0.01; sleep 300) & sleep 0.001; done`, "sh", filepath.Join(h.Unified(group), "cgroup.procs"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := h.Kill(ctx, group); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(group); err != nil {
		t.Fatal(err)
	}
}

// Kill waits no longer than it may. (A group that never empties is a plain file that says so.)
func TestKillGivesUp(t *testing.T) {
	h := fakeHost(t, map[string]string{"cgroup.events": "populated 1\n", "cgroup.kill": ""}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := h.Kill(ctx, "g")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "g") {
		t.Errorf("got %v", err)
	}
	if data, _ := os.ReadFile(filepath.Join(h.Unified("g"), "cgroup.kill")); string(data) != "1" {
		t.Errorf("the kernel was told %q", data)
	}
}
