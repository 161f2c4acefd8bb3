package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/thread"
	"proctor/supervisor/box"
)

// AttachInput implements box.Box. Where the file system allows it the file itself is
// mounted, without a copy: with its owner shown as the code's user, so that it is readable
// inside whosever it is, and read-only, so that it is not writable. Else it is copied onto
// the workspace.
func (b *containerBox) AttachInput(ctx context.Context, name string, f *os.File) (box.Attachment, error) {
	target := b.work.path("inputs", name)
	mode := os.FileMode(0o444)
	point, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return box.Attachment{}, fmt.Errorf("input %q: %w", name, err)
	}
	defer point.Close()
	if err := point.Chmod(mode); err != nil {
		return box.Attachment{}, fmt.Errorf("input %q: %w", name, err)
	}

	mountErr := b.mountInput(name, f)
	if mountErr == nil {
		return box.Attachment{How: "mount"}, nil
	}
	if err := copyInput(ctx, point, f); err != nil {
		return box.Attachment{}, fmt.Errorf("input %q: %w", name, err)
	}
	return box.Attachment{How: "copy", Reason: mountErr.Error()}, nil
}

// mountInput mounts the file that f is open on at /inputs/name of the box.
func (b *containerBox) mountInput(name string, f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IRUSR == 0 {
		return fmt.Errorf("its mode %03o lets its owner not read it", st.Mode&0o777)
	}
	userns, err := ownerNamespace(&st, int(b.idBase+codeUID), int(b.idBase+codeGID))
	if err != nil {
		return fmt.Errorf("user namespace: %w", err)
	}
	defer userns.Close()
	mntns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", b.pid))
	if err != nil {
		return err
	}
	defer mntns.Close()

	tree, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_IDMAP,
		Userns_fd: uint64(userns.Fd()),
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}

	// The thread enters the box's mount namespace, and ends there.
	return thread.Run(func() error {
		// A mount namespace can be entered only by a task that shares its working directory
		// and root with no other.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Setns(int(mntns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("setns: %w", err)
		}
		// Inside, /inputs is what the runtime mounted there from the workspace; the code is
		// not running yet, so nothing can be in the way.
		if err := unix.MoveMount(tree, "", unix.AT_FDCWD, "/inputs/"+name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("move_mount: %w", err)
		}
		return nil
	})
}

// ownerNamespace is a user namespace that exists for its mapping alone: the file's owner
// and group become the given ids of the host.
func ownerNamespace(st *unix.Stat_t, uid, gid int) (*os.File, error) {
	// A user namespace is had only from a process in it. This one is traced, which stops it
	// before its first instruction; the tracer is this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess("/proc/self/exe", []string{"id-mapping"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(st.Uid), HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(st.Gid), HostID: gid, Size: 1}},
		Ptrace:      true,
		Pdeathsig:   syscall.SIGKILL,
	}})
	if err != nil {
		return nil, err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, werr := p.Wait()
	if err = errors.Join(err, werr); err != nil && ns != nil {
		ns.Close()
		ns = nil
	}
	return ns, err
}

// copyInput copies from the start, whatever f's position, which may be shared with the
// caller.
func copyInput(ctx context.Context, to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	src := io.NewSectionReader(from, 0, info.Size())
	const chunk = 8 << 20
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(to, src, chunk)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("a copy of its %d bytes does not fit in the scratch limit: %w", info.Size(), err)
		}
		if err != nil {
			return err
		}
	}
}
