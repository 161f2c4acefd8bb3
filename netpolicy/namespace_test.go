package netpolicy_test

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"proctor/netpolicy"
	"proctor/netpolicy/thread"
	"proctor/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Asking the resolver must be an attempt to reach something: not loopback, and nobody's.
func TestResolverIsNobody(t *testing.T) {
	if testNet := netip.MustParsePrefix("192.0.2.0/24"); !testNet.Contains(netpolicy.Resolver) {
		t.Errorf("%s is not in %s", netpolicy.Resolver, testNet)
	}
}

// inside runs f on a thread that has entered the namespace and ends afterwards.
func inside(t *testing.T, path string, f func() error) error {
	t.Helper()
	ns, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	return thread.Run(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// isNamespace says whether a namespace is mounted at path.
func isNamespace(t *testing.T, path string) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Type == unix.NSFS_MAGIC
}

func TestNamespace(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := filepath.Join(testenv.Dir(t), "made", "on", "the", "way")
	n, err := netpolicy.NewNamespace(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.Path() != filepath.Join(dir, "a") {
		t.Errorf("it stands at %s", n.Path())
	}
	if !isNamespace(t, n.Path()) || inode(t, n.Path()) == inode(t, "/proc/self/ns/net") {
		t.Fatal("it is none, or the host's")
	}

	err = inside(t, n.Path(), func() error {
		interfaces, err := net.Interfaces()
		if err != nil {
			return err
		}
		if len(interfaces) != 1 || interfaces[0].Name != "lo" || interfaces[0].Flags&net.FlagUp == 0 {
			t.Errorf("interfaces %+v, want lo, and that up", interfaces)
		}
		addresses, err := net.InterfaceAddrs()
		if err != nil {
			return err
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || !p.Addr().IsLoopback() && p.Addr() != netpolicy.Own4 && p.Addr() != netpolicy.Own6 {
				t.Errorf("address %s", a)
			}
		}
		if len(addresses) != 4 {
			t.Errorf("addresses %v, want those of loopback and its own", addresses)
		}
		// A server inside can be reached, and nobody is anywhere else.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		if err := unix.Listen(fd, 1); err != nil {
			return err
		}
		server, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		if err := connect(server); err != nil {
			t.Errorf("a server inside: %v", err)
		}
		for _, to := range []unix.Sockaddr{
			&unix.SockaddrInet4{Addr: [4]byte{198, 51, 100, 7}, Port: 443},
			&unix.SockaddrInet4{Addr: netpolicy.Resolver.As4(), Port: 53},
			&unix.SockaddrInet6{Addr: netip.MustParseAddr("2001:db8::5").As16(), Port: 443},
		} {
			if err := connect(to); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect to %+v: %v", to, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := netpolicy.NewNamespace(dir, "a"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second of that name: %v", err)
	}
	if !isNamespace(t, n.Path()) {
		t.Error("the first is gone for it")
	}
	other, err := netpolicy.NewNamespace(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	if inode(t, other.Path()) == inode(t, n.Path()) {
		t.Error("two are one")
	}
	for _, n := range []*netpolicy.Namespace{other, n, n} { // closing again is no error
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%d are left, %v", len(entries), err)
	}
}

func connect(to unix.Sockaddr) error {
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, to)
}

// No thread that made one goes on in it: later goroutines would run offline.
func TestNamespaceStaysApart(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir, host := testenv.Dir(t), inode(t, "/proc/self/ns/net")
	for range 20 {
		n, err := netpolicy.NewNamespace(dir, "n")
		if err != nil {
			t.Fatal(err)
		}
		threads, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(threads) == 0 {
			t.Fatal(err)
		}
		mine := inode(t, n.Path())
		if mine == host {
			t.Fatal("it is the host's")
		}
		done := make(chan uint64)
		for range 8 {
			go func() {
				var st unix.Stat_t
				unix.Stat("/proc/thread-self/ns/net", &st)
				done <- st.Ino
			}()
		}
		for range 8 {
			if ino := <-done; ino != host {
				t.Fatal("a goroutine runs in the namespace")
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRemoveNamespace(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(path string) error{
		"missing": func(string) error { return nil },
		// Killed between making the file and mounting on it.
		"half made": func(path string) error { return os.WriteFile(path, nil, 0o400) },
		"a link": func(path string) error {
			n, err := netpolicy.NewNamespace(dir, "linked")
			if err != nil {
				return err
			}
			return os.Symlink(n.Path(), path) // a link is removed, not what it points to
		},
	} {
		path := filepath.Join(dir, "it")
		if err := prepare(path); err != nil {
			t.Fatal(err)
		}
		if err := netpolicy.RemoveNamespace(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it is left: %v", name, err)
		}
	}
	if !isNamespace(t, filepath.Join(dir, "linked")) {
		t.Error("what a link pointed to is gone")
	}
	if err := netpolicy.RemoveNamespace(filepath.Join(dir, "linked")); err != nil {
		t.Error(err)
	}
	// Something else in that place is not removed with what is in it.
	other := filepath.Join(dir, "other")
	if err := os.MkdirAll(filepath.Join(other, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := netpolicy.RemoveNamespace(other); err == nil {
		t.Error("a directory that is not empty was removed")
	}
	if _, err := os.Stat(filepath.Join(other, "in")); err != nil {
		t.Error(err)
	}
}

// Without the right to make one there is an error and nothing else.
func TestNamespaceNeedsRights(t *testing.T) {
	if !testenv.Unprivileged(t) {
		return
	}
	dir := t.TempDir()
	if _, err := netpolicy.NewNamespace(dir, "a"); !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Error("something is left")
	}
}
