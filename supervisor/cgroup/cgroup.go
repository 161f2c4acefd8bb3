// Package cgroup reads and ends control groups, on hosts with cgroup v2 alone and on
// those where v2 is mounted beside v1 controllers.
//
// A group is named by its path below the root of every hierarchy, such as
// "proctor/01…". Making groups for runs is the container runtime's business; this
// package makes only the parent.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Host is where this host's cgroup hierarchies are mounted.
type Host struct {
	unified string            // the v2 hierarchy
	legacy  map[string]string // v1 controller → mount point; empty on a v2-only host
}

// Detect reads the mount table.
func Detect() (Host, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Host{}, fmt.Errorf("cgroups: %w", err)
	}
	h := parseMounts(data)
	if h.unified == "" {
		return Host{}, errors.New("cgroups: no cgroup v2 hierarchy is mounted: mount one with `mount -t cgroup2 none /sys/fs/cgroup/unified` or boot with systemd.unified_cgroup_hierarchy=1")
	}
	return h, nil
}

func parseMounts(data []byte) Host {
	h := Host{legacy: map[string]string{}}
	for line := range strings.Lines(string(data)) {
		// proc(5): optional fields end at " - ", then type, source, super options.
		mount, super, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(mount), strings.Fields(super)
		if !ok || len(left) < 5 || len(right) < 3 || left[3] != "/" {
			continue // a part of a hierarchy does not hold every group
		}
		point := unescape.Replace(left[4])
		switch right[0] {
		case "cgroup2":
			if h.unified == "" {
				h.unified = point
			}
		case "cgroup":
			for option := range strings.SplitSeq(right[2], ",") {
				// Where one is mounted again elsewhere, the first is the host's usual place.
				if _, known := h.legacy[option]; !known {
					h.legacy[option] = point
				}
			}
		}
	}
	return h
}

// unescape undoes what the kernel does to the bytes that separate fields.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Unified is the directory of group in the v2 hierarchy.
func (h Host) Unified(group string) string { return filepath.Join(h.unified, group) }

// Controller is the directory in which controller keeps its files for group, and
// whether they are v2's.
func (h Host) Controller(controller, group string) (dir string, v2 bool) {
	if root, ok := h.legacy[controller]; ok {
		return filepath.Join(root, group), false
	}
	return h.Unified(group), true
}

// roots is every hierarchy a group may have a directory in.
func (h Host) roots() []string {
	seen := map[string]bool{h.unified: true}
	roots := []string{h.unified}
	for _, root := range h.legacy {
		// v1 options that are no controllers (rw, xattr, name=systemd) map to mount
		// points, too; each counts once.
		if !seen[root] {
			seen[root] = true
			roots = append(roots, root)
		}
	}
	return roots
}

// MakeParent makes group in the v2 hierarchy, where it can be told apart from one that
// was removed and made again by its inode number.
func (h Host) MakeParent(group string) error {
	if err := os.MkdirAll(h.Unified(group), 0o755); err != nil {
		return fmt.Errorf("cgroup %s: %w", group, err)
	}
	return nil
}

// ID is the number by which the kernel's programs know group.
func (h Host) ID(group string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(h.Unified(group), &st); err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", group, err)
	}
	return st.Ino, nil
}

// Children are the groups directly below group, in any hierarchy.
func (h Host) Children(group string) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	for _, root := range h.roots() {
		entries, err := os.ReadDir(filepath.Join(root, group))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cgroup %s: %w", group, err)
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				names = append(names, e.Name())
			}
		}
	}
	return names, nil
}

// pollInterval is how often the kernel is asked whether a killed group is empty. It
// offers no descriptor to wait on that would be quicker.
const pollInterval = 500 * time.Microsecond

// Kill ends every process below group and returns when none is left. A group that does
// not exist is empty.
func (h Host) Kill(ctx context.Context, group string) error {
	dir := h.Unified(group)
	err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !gone(err) {
		return fmt.Errorf("kill cgroup %s: %w", group, err)
	}
	for {
		populated, err := h.Populated(group)
		if err != nil || !populated {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill cgroup %s: %w", group, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// Signal sends a signal to every process of group but one.
func (h Host) Signal(group string, signal unix.Signal, but int) error {
	procs, err := os.ReadFile(filepath.Join(h.Unified(group), "cgroup.procs"))
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal cgroup %s: %w", group, err)
	}
	var errs []error
	for line := range strings.Lines(string(procs)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || pid == but || pid == 0 {
			continue
		}
		if err := h.signal(group, pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("signal process %d of cgroup %s: %w", pid, group, err))
		}
	}
	return errors.Join(errs...)
}

// signal sends to a process if it is the group's: its number may be another's by now.
func (h Host) signal(group string, pid int, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// What the number means is looked up with the process held: it is the same one before and after.
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return unix.ESRCH
	}
	if !slices.Contains(strings.Split(string(groups), "\n"), "0::/"+group) {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, signal, nil, 0)
}

// Populated says whether a process lives in group or below it.
func (h Host) Populated(group string) (bool, error) {
	n, err := readKey(filepath.Join(h.Unified(group), "cgroup.events"), "populated")
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cgroup %s: %w", group, err)
	}
	return n != 0, nil
}

// Remove removes group and everything below it, in every hierarchy. There must be no
// process in it.
func (h Host) Remove(group string) error {
	var errs []error
	for _, root := range h.roots() {
		errs = append(errs, removeTree(filepath.Join(root, group)))
	}
	return errors.Join(errs...)
}

// RemoveIfEmpty removes group where nothing is below it.
func (h Host) RemoveIfEmpty(group string) {
	for _, root := range h.roots() {
		// A group that is still in use stays: that is what rmdir is asked for.
		_ = os.Remove(filepath.Join(root, group))
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// The kernel lets go of a dead group's last references a little later.
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		err = os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

func readKey(file, key string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == key {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no key %s", file, key)
}

func readInt(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
