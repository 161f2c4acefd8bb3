package api

import (
	"errors"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/testenv"
)

func TestListen(t *testing.T) {
	dir := testenv.Dir(t)
	path := filepath.Join(dir, "s")
	old := unix.Umask(0)
	defer unix.Umask(old)

	l, err := Listen(path)
	must(t, err)
	if mask := unix.Umask(0); mask != 0 {
		t.Errorf("it leaves a umask of %o", mask)
	}
	info, err := os.Lstat(path)
	must(t, err)
	mode := os.FileMode(0o600)
	if _, err := user.LookupGroup(Group); err == nil {
		mode = 0o660
	}
	if info.Mode() != os.ModeSocket|mode {
		t.Errorf("mode %v, want %v", info.Mode(), mode)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another supervisor") {
		t.Errorf("over one that is served: %v", err)
	}
	if err := Vacant(path); err == nil {
		t.Error("it is said to be vacant")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Errorf("the first was taken away: %v", err)
	} else {
		c.Close()
	}

	// Left by one that was killed.
	l.SetUnlinkOnClose(false)
	l.Close()
	must(t, Vacant(path))
	l, err = Listen(path)
	if err != nil {
		t.Fatalf("over one that is left: %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}

	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	must(t, os.Symlink(filepath.Join(dir, "nothing"), filepath.Join(dir, "link")))
	for _, other := range []string{path, dir, filepath.Join(dir, "link")} {
		if _, err := Listen(other); err == nil || !strings.Contains(err.Error(), "something else is there") {
			t.Errorf("over %s: %v", other, err)
		}
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the file is %q, %v", data, err)
	}
	if _, err := Listen(filepath.Join(dir, "none", "s")); err == nil {
		t.Error("in a directory that is not there")
	}
	long := filepath.Join(dir, strings.Repeat("s", 107-len(dir)))
	if _, err := Listen(long); err == nil || !strings.Contains(err.Error(), "at most 107 bytes, this one has 108") {
		t.Errorf("too long: %v", err)
	}
	if l, err = Listen(long[:107]); err != nil {
		t.Errorf("as long as may be: %v", err)
	} else {
		l.Close()
	}
}

// One that is busy is served, though it does not answer at once.
func TestListenLeavesBusy(t *testing.T) {
	path := filepath.Join(testenv.Dir(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(fd, 0))
	for {
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		defer unix.Close(c)
		if err := unix.Connect(c, &unix.SockaddrUnix{Name: path}); err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
			break
		}
	}
	if l, err := Listen(path); err == nil {
		l.Close()
		t.Error("a busy supervisor's socket was taken away")
	}
}
