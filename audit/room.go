package audit

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// IsFull reports whether an error says that a file system takes no more: that it has no room, of
// bytes or of inodes, that a quota is used up, or that it is mounted read-only.
func IsFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// A room is what a file has of the disk before it is written, counted from the file's beginning.
// What is written into it can't fail for want of room, whoever else fills the disk.
type room struct {
	got  int64
	step int64 // at least so much is asked for at a time
	none bool  // the file system can't do it
}

// ensure makes the room be at least want bytes. On error it is what it was.
func (r *room) ensure(f *os.File, want int64) error {
	if r.none || want <= r.got {
		return nil
	}
	err := r.allocate(f, max(want-r.got, r.step))
	if IsFull(err) && want-r.got < r.step {
		err = r.allocate(f, want-r.got)
	}
	return err
}

// allocate leaves alone what there is: where it fails, some file systems give back what it was
// asked for, also that which they had given before.
func (r *room) allocate(f *os.File, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, r.got, n)
		switch {
		case err == nil:
			r.got += n
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			r.none = true
			return nil
		default:
			return os.NewSyscallError("fallocate "+f.Name(), err)
		}
		return nil
	}
}
