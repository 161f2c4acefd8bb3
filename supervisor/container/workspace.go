package container

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
)

// workspace is the one tmpfs of a box. Everything the box can write is a directory on
// it, so that one limit on bytes and inodes holds for all of them together, and so is
// what the supervisor puts in: the box sees each as a mount of "tmpfs", with no path of
// the host in its mount table. It is mounted on the host, belongs to the host's user
// namespace, and is read by the supervisor from there.
type workspace struct {
	dir string
}

// fixedInodes is what the supervisor itself needs of the inode limit.
const fixedInodes = 64

// newWorkspace mounts a tmpfs at dir, which it makes.
func newWorkspace(dir string, limits box.Limits, idBase uint32, cpus int, resolver netip.Addr) (_ *workspace, err error) {
	w := &workspace{dir: dir}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("workspace: %w", err), w.close())
		}
	}()
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", limits.ScratchBytes, limits.ScratchInodes+fixedInodes)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, fmt.Errorf("mount tmpfs: %w", err)
	}
	// Mounts made beside it later, and its copies in boxes, stay out of each other.
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make private: %w", err)
	}

	user := int(idBase + codeUID)
	group := int(idBase + codeGID)
	for _, d := range []struct {
		name  string
		mode  os.FileMode
		owned bool // by the code's user; else by root, who is nobody in the box
	}{
		{"ctl", 0o755, false},
		{"code", 0o755, false},
		{"trust", 0o755, false},
		{"inputs", 0o755, false},
		{"etc", 0o755, false},
		{"sys", 0o755, false},
		{"outputs", 0o755, true},
		{"scratch", 0o755, true},
		{"tmp", 0o777 | os.ModeSticky, true},
		{"shm", 0o777 | os.ModeSticky, true},
	} {
		p := w.path(d.name)
		if err := os.Mkdir(p, d.mode.Perm()); err != nil {
			return nil, err
		}
		if err := os.Chmod(p, d.mode); err != nil { // past the umask
			return nil, err
		}
		if d.owned {
			if err := os.Chown(p, user, group); err != nil {
				return nil, err
			}
		}
	}
	for name, content := range map[string]string{
		"etc/hostname":    "box\n",
		"etc/hosts":       "127.0.0.1 localhost box\n::1 localhost box\n",
		"etc/resolv.conf": fmt.Sprintf("nameserver %s\noptions timeout:1 attempts:1\n", resolver),
		"etc/machine-id":  strings.Repeat("0", 32) + "\n",
		// There is no sysfs; libraries that count processors there find the number that
		// fits the box's limit.
		"sys/devices/system/cpu/online":   cpuList(cpus),
		"sys/devices/system/cpu/possible": cpuList(cpus),
		"sys/devices/system/cpu/present":  cpuList(cpus),
	} {
		if err := w.put(name, []byte(content)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func cpuList(n int) string {
	if n == 1 {
		return "0\n"
	}
	return fmt.Sprintf("0-%d\n", n-1)
}

func (w *workspace) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// put writes a file that everybody in the box can read.
func (w *workspace) put(name string, content []byte) error {
	f, err := w.create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// create makes a file that everybody in the box can read, and its directories.
func (w *workspace) create(name string) (*os.File, error) {
	p := w.path(name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return nil, err
	}
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if err := os.Chmod(w.path(dir), 0o755); err != nil { // past the umask
			return nil, err
		}
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o444); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// close unmounts and removes the workspace; it may be called again.
func (w *workspace) close() error { return removeWorkspace(w.dir) }

func removeWorkspace(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("workspace: unmount %s: %w", dir, err)
	}
	// Not RemoveAll: if anything is there, it is not ours to delete.
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("workspace: %w", err)
	}
	return nil
}
