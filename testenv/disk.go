package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A Disk is a small file system of one test's own.
type Disk struct {
	Dir string

	t       testing.TB
	ballast []string
}

// NewDisk mounts a tmpfs of so many bytes and inodes at dir, which it makes, until the test's
// end. dir lies in one from [Dir].
func NewDisk(t testing.TB, dir string, bytes, inodes int64) *Disk {
	t.Helper()
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=0711,size=%d,nr_inodes=%d", bytes, inodes)); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	d := &Disk{Dir: dir, t: t}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return d
}

func (d *Disk) statfs() unix.Statfs_t {
	d.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(d.Dir, &st); err != nil {
		d.t.Fatal(err)
	}
	return st
}

// Free is how many bytes are free.
func (d *Disk) Free() int64 {
	d.t.Helper()
	st := d.statfs()
	return int64(st.Bavail) * st.Bsize
}

// FreeInodes is how many inodes are free.
func (d *Disk) FreeInodes() int64 {
	d.t.Helper()
	return int64(d.statfs().Ffree)
}

// Fill leaves so many bytes free.
func (d *Disk) Fill(left int64) {
	d.t.Helper()
	// In small files: something else may write meanwhile.
	for n := d.Free() - left; n > 0; n = d.Free() - left {
		path := d.next()
		f, err := os.Create(path)
		if err != nil {
			d.t.Fatal(err)
		}
		err = unix.Fallocate(int(f.Fd()), 0, 0, min(n, 1<<20))
		f.Close()
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			d.t.Fatal(err)
		}
	}
}

// FillInodes leaves so many inodes free.
func (d *Disk) FillInodes(left int64) {
	d.t.Helper()
	for n := d.FreeInodes() - left; n > 0; n-- {
		if err := os.WriteFile(d.next(), nil, 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
			d.t.Fatal(err)
		}
	}
}

func (d *Disk) next() string {
	path := filepath.Join(d.Dir, fmt.Sprintf(".ballast%d", len(d.ballast)))
	d.ballast = append(d.ballast, path)
	return path
}

// MakeRoom takes away what Fill and FillInodes put there.
func (d *Disk) MakeRoom() {
	d.t.Helper()
	for _, path := range d.ballast {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.t.Fatal(err)
		}
	}
	d.ballast = nil
}

// ReadOnly has the file system be mounted read-only, or not any more. Nothing may be open for
// writing there.
func (d *Disk) ReadOnly(on bool) {
	d.t.Helper()
	flags := uintptr(unix.MS_REMOUNT)
	if on {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", d.Dir, "", flags, ""); err != nil {
		d.t.Fatalf("remount %s: %v", d.Dir, err)
	}
}
