package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
)

// staged is a large input under a name of the supervisor's. A mount shows, in the mount table of
// whoever has it, the path that its file has in its file system: from the caller's own name the
// code would learn where and for whom it works.
type staged struct {
	file *os.File // by which it can be mounted; open for writing where it is still to be copied
	how  string   // box.Mounted: another name of the caller's file
	why  string   // it is none
	path string
}

// stage gives the file that f is open on a name in the box's part of the staging directory. What
// can't be had there by a clone or a link is left to be copied: how is box.Copied then.
func (r *Runtime) stage(id string, f *os.File) (_ *staged, err error) {
	dir := filepath.Join(r.Staging, id)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &staged{path: filepath.Join(dir, strconv.Itoa(len(entries)))}
	if err := s.create(); err != nil {
		return nil, err
	}
	// A clone first: what happens to the original later does not reach the code.
	if unix.IoctlFileClone(int(s.file.Fd()), int(f.Fd())) == nil {
		s.how = box.Cloned
		return s, nil
	}
	if err := s.remove(); err != nil {
		return nil, err
	}
	if err := s.link(f); err != nil {
		s.why = err.Error()
		return s, errors.Join(s.remove(), s.create())
	}
	return s, nil
}

// create makes an empty file.
func (s *staged) create() (err error) {
	s.how = box.Copied
	if s.file, err = os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444); err != nil {
		return err
	}
	return s.file.Chmod(0o444) // past the umask
}

func (s *staged) remove() error {
	s.close()
	if err := os.Remove(s.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// allot takes the room on the disk that a copy of n bytes needs, all of it at once: a file may be
// nothing but a hole, and what others need of the disk is not to be gone before that is known.
func (r *Runtime) allot(s *staged, n int64) error {
	r.allotting.Lock()
	defer r.allotting.Unlock()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(s.file.Fd()), &fs); err != nil {
		return err
	}
	if free := int64(fs.Bavail) * fs.Bsize; n > free-r.StagingReserve {
		return fmt.Errorf("there is no room for a copy of its %d bytes: %s has %d free, of which %d are left for others' records and results; a file on the same file system as that is not copied: %w",
			n, r.Staging, free, r.StagingReserve, unix.ENOSPC)
	}
	// Where the file system can't, it is seen when it is written.
	if err := unix.Fallocate(int(s.file.Fd()), 0, 0, n); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("there is no room for a copy of its %d bytes: %w", n, err)
	}
	return nil
}

// recreate makes an empty file of a link.
func (s *staged) recreate() error { return errors.Join(s.remove(), s.create()) }

func (s *staged) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// link makes the path another name of the file that f is open on.
func (s *staged) link(f *os.File) error {
	var dir, st, got unix.Stat_t
	if err := unix.Stat(filepath.Dir(s.path), &dir); err != nil {
		return err
	}
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Dev != dir.Dev {
		return errors.New("it is on another file system than the supervisor's state directory, and a mount would show its path")
	}
	err := unix.Linkat(int(f.Fd()), "", unix.AT_FDCWD, s.path, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EXDEV) {
		err = s.linkByHandle(f)
	}
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	fd, err := unix.Open(s.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.file, s.how = os.NewFile(uintptr(fd), s.path), box.Mounted
	if err := unix.Fstat(fd, &got); err != nil {
		return err
	}
	if got.Dev != st.Dev || got.Ino != st.Ino {
		return errors.New("its link is another file")
	}
	return nil
}

// linkByHandle is for a file that was opened in another mount of the file system, as a caller in
// a container does: links are made within one.
func (s *staged) linkByHandle(f *os.File) error {
	handle, _, err := unix.NameToHandleAt(int(f.Fd()), "", unix.AT_EMPTY_PATH)
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := unix.OpenByHandleAt(int(dir.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Linkat(fd, "", unix.AT_FDCWD, s.path, unix.AT_EMPTY_PATH)
}

// unstage removes what a box's inputs were named by.
func (r *Runtime) unstage(id string) error { return os.RemoveAll(filepath.Join(r.Staging, id)) }
