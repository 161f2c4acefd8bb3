package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hierarchies is where cgroups are mounted.
type hierarchies struct {
	v2          string            // mount point of v2, empty if there is none
	controllers map[string]string // controller to the mount point that has it
	hybrid      bool              // some controllers are v1
}

func checkCgroups(context.Context, Options) []Check {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []Check{{"cgroup v2", Fail, err.Error(), "mount /proc"}}
	}
	h := parseHierarchies(string(mountinfo))
	if h.v2 == "" {
		return []Check{{"cgroup v2", Fail, "not mounted, and runs can't be told apart without it",
			"boot with systemd.unified_cgroup_hierarchy=1, or beside v1: mkdir /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified"}}
	}
	if data, err := os.ReadFile(filepath.Join(h.v2, "cgroup.controllers")); err == nil {
		for _, c := range strings.Fields(string(data)) {
			h.controllers[c] = h.v2
		}
	}
	layout := "unified, at " + h.v2
	if h.hybrid {
		layout = "hybrid: v2 at " + h.v2 + " beside v1 controllers"
	}
	return []Check{ok("cgroup v2", layout), h.checkControllers(), h.checkKill()}
}

func parseHierarchies(mountinfo string) hierarchies {
	h := hierarchies{controllers: map[string]string{}}
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			if h.v2 == "" {
				h.v2 = left[4]
			}
		case "cgroup":
			for _, option := range strings.Split(right[2], ",") {
				// The rest, like rw and name=systemd, are never asked for.
				h.controllers[option] = left[4]
				h.hybrid = true
			}
		}
	}
	return h
}

func (h hierarchies) checkControllers() Check {
	const name = "cgroup controllers"
	var missing, found []string
	for _, c := range []string{"cpu", "memory", "pids"} {
		if at, has := h.controllers[c]; has {
			version := "v1"
			if at == h.v2 {
				version = "v2"
			}
			found = append(found, c+" ("+version+")")
		} else {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return Check{name, Fail, "missing: " + strings.Join(missing, ", ") + "; their limits can't be held",
			"enable them in the kernel (cgroup_enable=memory on some boards), or mount their v1 hierarchies"}
	}
	return ok(name, strings.Join(found, ", "))
}

// checkKill looks for cgroup.kill, which every cgroup but the root has, in a child that
// exists for just that.
func (h hierarchies) checkKill() Check {
	const name = "cgroup.kill"
	dir := filepath.Join(h.v2, fmt.Sprintf("proctor-doctor-%d", os.Getpid()))
	err := os.Mkdir(dir, 0o755)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			return Check{name, Warn, dir + " exists", "remove it: rmdir " + dir}
		}
		return outcome(name, "", fmt.Errorf("make a cgroup: %w", err), "give proctor a cgroup file system that it may write to (in a container: a private, writable cgroup namespace)")
	}
	defer os.Remove(dir)
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return Check{name, Fail, err.Error(), "run Linux 5.14 or later"}
	}
	return ok(name, "a run is ended as a whole")
}
