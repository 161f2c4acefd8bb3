package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"proctor/api"
	"proctor/testenv"
)

// columns are what is counted, in order.
var columns = []string{
	"processes", "netns", "mounts", "cgroups", "snapshots", "records",
	"programs", "links", "maps", "mapped", "entries", "fds", "goroutines", "threads", "rss-KiB",
}

// take counts what a supervisor and its runs have. What others have on the host is not counted:
// whatever else is on it may come and go meanwhile.
func take(t *testing.T, p *testenv.Proctor) map[string]int64 {
	t.Helper()
	processes := ours(t, p)
	kernel := objectsOf(t, processes, filepath.Join(p.RunDir, "kernel"))
	c := map[string]int64{
		"processes": int64(len(processes)),
		"mounts":    mounts(t, p.StateDir, p.RunDir),
		"cgroups":   directories(p.Cgroup(t)),
		"snapshots": entries(filepath.Join(p.StateDir, "containerd", "io.containerd.snapshotter.v1.overlayfs", "snapshots")),
		"netns":     entries(filepath.Join(p.RunDir, "netns")),
		"records":   entries(filepath.Join(p.StateDir, "runs")),
		"programs":  int64(len(kernel.programs)),
		"links":     int64(len(kernel.links)),
		"maps":      int64(len(kernel.maps)),
		"mapped":    mapped(t, p.PID()),
		"entries":   mapEntries(filepath.Join(p.RunDir, "kernel")),
	}
	self := strconv.Itoa(p.PID())
	c["fds"] = entries(filepath.Join("/proc", self, "fd"))
	status, err := os.ReadFile(filepath.Join("/proc", self, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		switch f[0] {
		case "Threads:":
			c["threads"], _ = strconv.ParseInt(f[1], 10, 64)
		case "VmRSS:":
			c["rss-KiB"], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	out, err := p.Command("status", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var st api.Status
	if err := json.Unmarshal(out, &st); err != nil {
		t.Fatal(err)
	}
	c["goroutines"] = int64(st.Counters["goroutines"])
	return c
}

// mounts are those below the directories.
func mounts(t *testing.T, dirs ...string) (n int64) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		point := strings.Fields(line)[4]
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(point, dir+"/") }) {
			n++
		}
	}
	return n
}

// entries is how many a directory has; none where it is not there.
func entries(dir string) int64 {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1
	}
	return int64(len(list))
}

// directories are the groups below a cgroup, in all hierarchies.
func directories(group string) (n int64) {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, _ := filepath.Glob(filepath.Join(top, group))
		for _, dir := range found {
			_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					n++
				}
				return nil // one may go meanwhile
			})
		}
	}
	return n
}

// ours are the processes of the supervisor's programs, and those of its runs.
func ours(t *testing.T, p *testenv.Proctor) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	bin, group, child := testenv.BinDir(t), "/"+p.Cgroup(t)+"/", fmt.Sprintf("PPid:\t%d\n", p.PID())
	for _, dir := range all {
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		if strings.Contains(string(groups), group) || filepath.Dir(exe) == bin && strings.Contains(string(line), p.RunDir) || strings.Contains(string(status), child) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// objects are those of the kernel's BPF, by their ids.
type objects struct{ programs, links, maps map[uint64]bool }

// objectsOf are the objects that processes hold or that are pinned, and the maps and links of
// those programs. One that nobody holds is freed when the kernel gets to it, which may be seconds.
func objectsOf(t *testing.T, processes []int, pins string) objects {
	t.Helper()
	o := objects{map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}}
	for _, pid := range processes {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		for _, file := range files {
			info, _ := os.ReadFile(file)
			for line := range strings.Lines(string(info)) {
				name, value, _ := strings.Cut(line, ":")
				id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
				if err != nil {
					continue
				}
				switch name {
				case "prog_id":
					o.programs[id] = true
				case "link_id":
					o.links[id] = true
				case "map_id":
					o.maps[id] = true
				}
			}
		}
	}
	read := &ebpf.LoadPinOptions{ReadOnly: true}
	_ = filepath.WalkDir(pins, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if m, err := ebpf.LoadPinnedMap(path, read); err == nil {
			defer m.Close()
			if info, err := m.Info(); err == nil {
				id, _ := info.ID()
				o.maps[uint64(id)] = true
			}
		} else if p, err := ebpf.LoadPinnedProgram(path, read); err == nil {
			defer p.Close()
			if info, err := p.Info(); err == nil {
				id, _ := info.ID()
				o.programs[uint64(id)] = true
			}
		} else if l, err := link.LoadPinnedLink(path, read); err == nil {
			defer l.Close()
			if info, err := l.Info(); err == nil {
				o.links[uint64(info.ID)], o.programs[uint64(info.Program)] = true, true
			}
		}
		return nil
	})
	var all link.Iterator
	for all.Next() {
		if info, err := all.Link.Info(); err == nil && o.programs[uint64(info.Program)] {
			o.links[uint64(info.ID)] = true
		}
	}
	all.Close()
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	for id := range o.programs {
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err != nil {
			continue // just gone
		}
		if info, err := p.Info(); err == nil {
			used, _ := info.MapIDs()
			for _, id := range used {
				o.maps[uint64(id)] = true
			}
		}
		p.Close()
	}
	return o
}

// mapped is how many BPF maps a process has mapped for writing, which holds them without a
// descriptor: the rings that it reads. What it has mapped for reading goes with Go's garbage.
func mapped(t *testing.T, pid int) (n int64) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " rw-s ") && strings.Contains(line, "bpf-map") {
			n++
		}
	}
	return n
}

// mapEntries is what the pinned maps hold whose entries come and go with runs.
func mapEntries(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return nil // a program or a link
		}
		defer m.Close()
		if m.Type() != ebpf.Hash && m.Type() != ebpf.LPMTrie && m.Type() != ebpf.HashOfMaps {
			return nil
		}
		var key []byte
		for {
			next, err := m.NextKeyBytes(key)
			if err != nil || next == nil {
				return nil
			}
			key = next
			n++
		}
	})
	return n
}
