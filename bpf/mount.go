package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// isMounted reports whether dir is the place of a file system of that type. A missing
// directory is not.
func isMounted(dir string, magic int64) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Type) == magic, nil
}

// mountBPF makes dir and mounts a bpffs there, unless one is. It says whether it did.
func mountBPF(dir string) (bool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	mounted, err := isMounted(dir, unix.BPF_FS_MAGIC)
	if err != nil || mounted {
		return false, err
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return false, fmt.Errorf("mount bpffs on %s: %w", dir, err)
	}
	// A copy in another mount namespace would keep the pins alive after Remove.
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return false, errors.Join(fmt.Errorf("make %s private: %w", dir, err), unmount(dir))
	}
	return true, nil
}

func unmount(dir string) error {
	// Detached, not refused: a descriptor of a file there may be held for a moment by a
	// process that was forked meanwhile and has not come to its exec.
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// A tracefs is where tracepoints have their numbers. It is mounted only while these are
// read: a host need not have one, and ours is nobody else's business.
type tracefs struct{ dir string }

func openTracefs(dir string) (*tracefs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	mounted, err := isMounted(dir, unix.TRACEFS_MAGIC)
	if err != nil {
		return nil, err
	}
	if !mounted {
		if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return nil, fmt.Errorf("mount tracefs on %s: %w", dir, err)
		}
	}
	return &tracefs{dir}, nil
}

func (t *tracefs) unmount() error { return unmount(t.dir) }

// exits returns the system calls whose exit has a tracepoint.
func (t *tracefs) exits() (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(t.dir, "events", exitGroup))
	if err != nil {
		return nil, fmt.Errorf("tracepoints of system calls: %w", err)
	}
	calls := map[string]bool{}
	for _, e := range entries {
		if call, ok := strings.CutPrefix(e.Name(), exitPrefix); ok {
			calls[call] = true
		}
	}
	return calls, nil
}

// attach attaches prog to a tracepoint, named group/event.
func (t *tracefs) attach(name string, prog *ebpf.Program) (link.Link, error) {
	raw, err := os.ReadFile(filepath.Join(t.dir, "events", name, "id"))
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("id of %s: %w", name, err)
	}
	// The event itself stays disabled: it is the program's place, and collects nothing.
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_TRACEPOINT,
		Size:   unix.PERF_ATTR_SIZE_VER0,
		Config: id,
		Bits:   unix.PerfBitDisabled,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("perf event: %w", err)
	}
	defer unix.Close(fd) // the link keeps the event
	return link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: prog, Attach: ebpf.AttachPerfEvent})
}
