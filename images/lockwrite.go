package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

const lockHeader = "# Written by `proctor images build`. Names a run may use, each pinned to one image.\n"

func newLock(dir string) *Lock { return &Lock{dir: dir, images: map[string]Image{}} }

// Marshal returns the lock as it is kept in its file. The same content gives the same bytes.
func (l *Lock) Marshal() ([]byte, error) {
	data, err := yaml.Marshal(lockYAML{Version: lockVersion, Images: l.images})
	if err != nil {
		return nil, fmt.Errorf("encode image lock: %w", err)
	}
	return append([]byte(lockHeader), data...), nil
}

// write replaces the lock file in one step: readers see the old one or the new one.
func (l *Lock) write() error {
	data, err := l.Marshal()
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(l.dir, LockFile), data, 0o644); err != nil {
		return fmt.Errorf("write image lock: %w", err)
	}
	return nil
}

// readOrNew reads the lock of a directory, or starts one.
func readOrNew(dir string) (*Lock, error) {
	l, err := readLock(filepath.Join(dir, LockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return newLock(dir), nil
	}
	return l, err
}

// guard holds the directory against other builds until the returned function is called. The lock file itself can't
// carry the flock, since each write replaces it.
func guard(ctx context.Context, dir string, progress Progress) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".images.flock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("guard image directory: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("guard image directory %s: %w", dir, err)
		}
		progress.report(Step{Phase: "wait for another build"})
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
