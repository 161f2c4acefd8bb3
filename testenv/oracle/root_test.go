package oracle

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// files are what is on a box's file system.
type files interface {
	// resolve follows the links in a path, as the kernel does.
	resolve(path string) (string, error)
	// shebang is what a script names as its interpreter, with its argument if it has one;
	// nil where the file is no script.
	shebang(path string) ([]string, error)
}

// A root is a box's file system with all its mounts. It can be looked at until the test
// ends, also when no process of the box is left.
type root struct {
	dir *os.File
	ns  *os.File // the mounts would go with the last who holds their namespace
}

func openRoot(t *testing.T, pid int) *root {
	t.Helper()
	dir, err := os.OpenFile(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	t.Cleanup(func() { dir.Close() })
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	return &root{dir, ns}
}

func (r *root) open(path string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(r.dir.Fd()), path, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (r *root) resolve(path string) (string, error) {
	f, err := r.open(path, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

func (r *root) shebang(path string) ([]string, error) {
	f, err := r.open(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const kept = 256 // of a file's first bytes, by the kernel
	head := make([]byte, kept)
	n, err := f.Read(head)
	if err != nil {
		return nil, err
	}
	return interpreter(head[:n]), nil
}

func interpreter(head []byte) []string {
	line, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	line = bytes.Trim(line, " \t")
	end := bytes.IndexAny(line, " \t")
	if end < 0 {
		return []string{string(line)}
	}
	return []string{string(line[:end]), string(bytes.TrimLeft(line[end:], " \t"))}
}
