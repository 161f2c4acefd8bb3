package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/thread"
	"proctor/supervisor/box"
)

// smallInput is up to what size, in bytes, an input is copied onto the workspace: that is faster
// than a mount, and what the code sees, and locks, is a file of its own.
const smallInput = 1 << 20

// AttachInput implements box.Box. A small file is copied onto the workspace. A larger one gets
// a name of its own in the staging directory (see stage) and is mounted from there: read-only,
// with its owner shown as the code's user, so that it is readable inside whosever it is.
func (b *containerBox) AttachInput(ctx context.Context, name string, f *os.File) (_ box.Attachment, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("input %q: %w", name, err)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return box.Attachment{}, err
	}
	point, err := b.work.create(filepath.Join("inputs", name))
	if err != nil {
		return box.Attachment{}, err
	}
	defer point.Close()
	if st.Size <= smallInput && b.copied+st.Size <= b.spec.Limits.ScratchBytes/4 {
		b.copied += st.Size
		return box.Attachment{How: box.Copied, Reason: "it is small"}, copyInput(ctx, point, f)
	}

	s, err := b.runtime.stage(b.spec.ID, f)
	if err != nil {
		return box.Attachment{}, err
	}
	defer s.close()
	if s.how == box.Mounted {
		err := b.mountInput(name, s.file, &st)
		if err == nil {
			return box.Attachment{How: box.Mounted}, nil
		}
		if err := s.recreate(); err != nil {
			return box.Attachment{}, err
		}
		s.why = err.Error()
	}
	if s.how == box.Copied {
		if err := b.runtime.allot(s, st.Size); err != nil {
			return box.Attachment{}, err
		}
		if err := copyInput(ctx, s.file, f); err != nil {
			return box.Attachment{}, err
		}
	}
	if err := b.mountInput(name, s.file, nil); err != nil {
		return box.Attachment{}, err
	}
	return box.Attachment{How: s.how, Reason: s.why}, nil
}

// mountInput mounts the file that f is open on at /inputs/name of the box. Where st is given,
// it tells the owner that is to be shown as the code's user.
func (b *containerBox) mountInput(name string, f *os.File, st *unix.Stat_t) error {
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
	}
	if st != nil {
		if st.Mode&unix.S_IRUSR == 0 {
			return fmt.Errorf("its mode %03o lets its owner not read it", st.Mode&0o777)
		}
		userns, err := ownerNamespace(st, int(b.idBase+codeUID), int(b.idBase+codeGID))
		if err != nil {
			return fmt.Errorf("user namespace: %w", err)
		}
		defer userns.Close()
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
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

// copyInput copies all that from has, from the start, whatever f's position, which may be shared with the
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
			return fmt.Errorf("there is no room for a copy of its %d bytes: %w", info.Size(), err)
		}
		if err != nil {
			return err
		}
	}
}
