package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

func checkMounts(_ context.Context, opts Options) []Check {
	var checks []Check
	for _, m := range []struct {
		name, fstype, what, fix string
		options                 [][2]string
	}{
		{"tracefs", "tracefs", "can be mounted: tracepoints are named there", "run a kernel built with CONFIG_TRACING", nil},
		{"bpffs", "bpf", "can be mounted: programs are kept there across restarts", "run a kernel built with CONFIG_BPF_SYSCALL", nil},
		{"tmpfs limits", "tmpfs", "bytes and inodes of scratch can be limited", "run a kernel built with CONFIG_TMPFS", [][2]string{{"size", "1m"}, {"nr_inodes", "16"}}},
	} {
		fd, err := detachedMount(m.fstype, m.options)
		if err == nil {
			unix.Close(fd)
		}
		checks = append(checks, outcome(m.name, m.what, err, m.fix))
	}
	if opts.StateDir != "" {
		checks = append(checks, checkRootFS(opts.StateDir)...)
	}
	return checks
}

// detachedMount mounts a file system nowhere: it is reached through the descriptor and
// gone when that is closed.
func detachedMount(fstype string, options [][2]string) (int, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", fstype, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("%s: option %s=%s: %w", fstype, o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("%s: %w", fstype, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", fstype, err)
	}
	return fd, nil
}

// checkRootFS tries what a run's root is made of, on the file system of the state
// directory: an overlay whose lower layer is mounted with other owners.
func checkRootFS(stateDir string) []Check {
	const overlayName, idmapName = "overlayfs", "idmapped mounts"
	const fix = "put the state directory on ext4, xfs or btrfs (proctor serve --state-dir)"
	var plain, mapped error
	dir, err := os.MkdirTemp(existing(stateDir), ".proctor-doctor-")
	if err != nil {
		return []Check{outcome(overlayName, "", err, "make the state directory writable for root"), outcome(idmapName, "", err, "see overlayfs")}
	}
	defer os.RemoveAll(dir)
	layers := layers{filepath.Join(dir, "lower"), filepath.Join(dir, "upper"), filepath.Join(dir, "work")}
	for _, path := range []string{layers.lower, layers.upper, layers.work} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return []Check{{overlayName, Fail, err.Error(), fix}}
		}
	}
	where := "on the file system of " + stateDir
	err = inPrivateMounts(func() {
		plain = layers.overlay()
		mapped = idmap(layers.lower)
		if mapped == nil {
			mapped = layers.overlay()
		}
	})
	if err != nil {
		plain, mapped = err, err
	}
	return []Check{
		outcome(overlayName, where, plain, fix),
		outcome(idmapName, where+", and as an overlay's layer", mapped, fix),
	}
}

type layers struct{ lower, upper, work string }

func (l layers) overlay() error {
	fd, err := detachedMount("overlay", [][2]string{{"lowerdir", l.lower}, {"upperdir", l.upper}, {"workdir", l.work}})
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// idmap mounts a directory over itself with the owners of another user namespace.
func idmap(dir string) error {
	userns, err := newUserNamespace()
	if err != nil {
		return err
	}
	defer userns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("mount_setattr(IDMAP): %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// inPrivateMounts calls f on a thread with a mount namespace of its own. Thread and
// namespace end with f, and every mount of f's with them.
func inPrivateMounts(f func()) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		// The first thread must not be the one: it can't end before the process, and
		// /proc/self would show its namespace. While it is held here, the next
		// goroutine gets another.
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			result <- inPrivateMounts(f)
			return
		}
		// Not unlocked, so that the thread ends with the goroutine.
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			result <- fmt.Errorf("mount namespace: %w", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			result <- errors.Join(errors.New("make mounts private"), err)
			return
		}
		f()
		result <- nil
	}()
	return <-result
}
