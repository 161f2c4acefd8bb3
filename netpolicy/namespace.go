package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proctor/netpolicy/thread"
)

// Resolver is the name server that a run's /etc/resolv.conf names. It is not a
// loopback address, so that asking it is an attempt like any other; it is one of
// TEST-NET-1 (RFC 5737), which no network routes.
var Resolver = netip.MustParseAddr("192.0.2.53")

// Namespace is a network namespace with nothing but a loopback interface. It is kept
// alive by a bind mount, so that it survives the supervisor and can be found by the next.
type Namespace struct {
	path string
}

// NewNamespace makes the namespace dir/name. It belongs to the host's user namespace, so
// that code in the box cannot configure it even with capabilities of its own.
func NewNamespace(dir, name string) (*Namespace, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o400)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	f.Close()

	if err := thread.Run(func() error { return makeNamespace(path) }); err != nil {
		return nil, errors.Join(fmt.Errorf("network namespace %s: %w", name, err), RemoveNamespace(path))
	}
	return &Namespace{path: path}, nil
}

func makeNamespace(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// Path is a file that stands for the namespace.
func (n *Namespace) Path() string { return n.path }

// Close removes the namespace; it goes when its last process does.
func (n *Namespace) Close() error { return RemoveNamespace(n.path) }

// RemoveNamespace removes the namespace kept at path, also half-made. It is no error if
// there is none.
func RemoveNamespace(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	// EINVAL: not a mount point. EPERM: if it is one after all, it can't be removed either.
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("network namespace: unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("network namespace: %w", err)
	}
	return nil
}
