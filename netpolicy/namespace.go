package netpolicy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proctor/netpolicy/thread"
)

// Addresses in every run's namespace. Those of IPv4 are of 198.18.0.0/15, which is for
// benchmarks (RFC 2544), and of TEST-NET-1 (RFC 5737): no network routes them. Those of IPv6
// are of a local range (RFC 4193).
var (
	// Resolver is the name server that /etc/resolv.conf names. It is not a loopback address,
	// so that asking it is an attempt like any other.
	Resolver = netip.MustParseAddr("192.0.2.53")
	// Proxy is where the explicit proxy is, for what insists on one.
	Proxy = netip.MustParseAddrPort("198.18.0.3:3128")

	// Own4 and Own6 are the run's own, besides loopback ones: without, programs take a family
	// for missing, or connect to themselves.
	Own4 = netip.MustParseAddr("198.18.0.1")
	Own6 = netip.MustParseAddr("fd70:726f:6374:6f71::1")

	// What the gateway's sockets are bound to, where code can't bind another.
	gate4 = netip.MustParseAddr("198.18.0.2")
	gate6 = netip.MustParseAddr("fd70:726f:6374:6f71::2")
)

// Namespace is a network namespace with nothing but a loopback interface, to which every
// address there is leads. It is kept alive by a bind mount, so that it survives the
// supervisor and can be found by the next.
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
	if err := setUpLoopback(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := setSysctls(); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// setUpLoopback makes every address one of this namespace.
func setUpLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, own := range []netip.Addr{Own4, Own6} {
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(own, own.BitLen())), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return fmt.Errorf("address %v: %w", own, err)
		}
		everything := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if own.Is4() {
			everything = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		err := netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: ipNet(everything), Src: own.AsSlice(),
			Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST,
		})
		if err != nil {
			return fmt.Errorf("route %v: %w", everything, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// setSysctls keeps the kernel from answering for the addresses that are not ours.
func setSysctls() error {
	for name, value := range map[string]string{
		"ipv4/icmp_echo_ignore_all": "1",
		"ipv6/icmp/echo_ignore_all": "1",
		"ipv4/ping_group_range":     "1 0", // nobody
	} {
		// Of the namespace of the thread that opens it.
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return err
		}
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
