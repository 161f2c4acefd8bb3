package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// bundles is where containerd 2 keeps the bundles of its tasks, by namespace and id.
func (o Options) bundles() string { return filepath.Join(o.State, "io.containerd.runtime.v2.task") }

// endTasks ends the shims of the tasks that an earlier containerd of this directory left in a
// namespace, and removes what there is of them on disk. containerd would look after each one by
// itself before it serves, with a process for each that is dead: fifty took it 3.5 s. The
// processes of a task are its cgroup's, which is whose who made it.
func (o Options) endTasks() error {
	if _, err := (Shims{Namespace: o.EndTasks, Address: o.socket()}).End(); err != nil {
		return err
	}
	tasks, err := os.ReadDir(filepath.Join(o.bundles(), o.EndTasks))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("leftover tasks: %w", err)
	}
	var errs []error
	for _, task := range tasks {
		errs = append(errs, RemoveBundle(o.bundles(), o.RuncRoot(), o.EndTasks, task.Name()))
	}
	return errors.Join(errs...)
}

// Shims are those of a namespace, and of a containerd or a task alone where that is said.
type Shims struct {
	Namespace string
	Address   string // containerd's socket; empty: any
	ID        string // the task's; empty: any
}

// End ends them with SIGKILL, several at a time, and returns the numbers of those that there were
// when they are gone. A shim is told by its whole command line, which has all three, and ended by
// a descriptor of the process that was looked at.
func (s Shims) End() (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("shims: %w", err)
	}
	var ending errgroup.Group
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !s.has(pid) {
			continue
		}
		pids = append(pids, pid)
		ending.Go(func() error {
			if err := s.end(pid); err != nil {
				return fmt.Errorf("shim, pid %d: %w", pid, err)
			}
			return nil
		})
	}
	return pids, ending.Wait()
}

func (s Shims) end(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The number may have become another's before it was opened.
	if !s.has(pid) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return err
	}
	if !pidfdEnded(fd, killWait) {
		return fmt.Errorf("does not end even by SIGKILL: it is stuck in the kernel; see /proc/%d/stack, or restart the host", pid)
	}
	return nil
}

// has reports whether a process is one of them.
func (s Shims) has(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false // gone, or a kernel thread
	}
	args := strings.Split(string(data), "\x00")
	for flag, value := range map[string]string{"-namespace": s.Namespace, "-address": s.Address, "-id": s.ID} {
		at := slices.Index(args, flag)
		if value != "" && (at < 1 || at+1 >= len(args) || args[at+1] != value) {
			return false
		}
	}
	return filepath.Base(args[0]) == shimName
}

// RemoveBundle removes what containerd and runc have on disk of a task that neither knows any
// more: its root file system's mount, its bundle below bundles ([Daemon.BundleDir]) and its state
// below runcRoot. What is not there is no error.
func RemoveBundle(bundles, runcRoot, namespace, id string) error {
	bundle := filepath.Join(bundles, namespace, id)
	err := unix.Unmount(filepath.Join(bundle, "rootfs"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // not there, not mounted
		return fmt.Errorf("unmount the root file system of %s: %w", id, err)
	}
	return errors.Join(os.RemoveAll(bundle), os.RemoveAll(filepath.Join(runcRoot, namespace, id)))
}
