package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another live supervisor holds one of the directories.
var ErrInUse = errors.New("directory in use")

// lockDir takes the directory for this process. The lock ends with the process, and
// is not inherited by containerd, so a killed supervisor's successor can take it. The
// lock file stays: removing it would let two holders lock two different inodes.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "proctor.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		holder := make([]byte, 32)
		n, _ := f.ReadAt(holder, 0)
		return nil, fmt.Errorf("%w: %s is held by the proctor with pid %s: stop that one, or give this one other --state-dir, --run-dir and --socket",
			ErrInUse, dir, strings.TrimSpace(string(holder[:n])))
	}
	// Only for the message above; the lock counts, not the number.
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}
