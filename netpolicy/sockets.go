package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/thread"
)

// A Socket is one that was made in a run's network namespace. Whoever got it closes File.
type Socket struct {
	Protocol string // tcp, which listens, or udp
	Family   int    // 4 or 6
	// Port that it is for: 0 of TCP, which takes all of them. Datagrams are answered from the
	// port that they were sent to, so each has a socket of its own.
	Port uint16
	File *os.File
}

// backlog is how many connections may wait to be accepted.
const backlog = 1024

// DNS is the port of the resolver, whose sockets are always made.
const DNS = 53

// Sockets makes the gateway's sockets in the namespace: one of each family that takes every
// connection, and one for each port of datagrams: [DNS] and those given. The code in the
// namespace can neither reach their own addresses nor bind others to them.
func (n *Namespace) Sockets(udp []uint16) (_ []Socket, err error) {
	var all []Socket
	defer func() {
		if err != nil {
			for _, s := range all {
				s.File.Close()
			}
		}
	}()
	err = n.within(func() error {
		for family, gate := range map[int]netip.Addr{4: gate4, 6: gate6} {
			f, err := stream(gate)
			if err != nil {
				return fmt.Errorf("listen on %v: %w", gate, err)
			}
			all = append(all, Socket{"tcp", family, 0, f})
			for _, port := range append([]uint16{DNS}, udp...) {
				f, err := packet(netip.AddrPortFrom(gate, port))
				if err != nil {
					return fmt.Errorf("bind port %d: %w", port, err)
				}
				all = append(all, Socket{"udp", family, port, f})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("network namespace: sockets: %w", err)
	}
	return all, nil
}

// within runs f on a thread that is in the namespace.
func (n *Namespace) within(f func() error) error {
	ns, err := os.Open(n.path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return thread.Run(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("setns: %w", err)
		}
		return f()
	})
}

func stream(at netip.Addr) (*os.File, error) {
	fd, err := open(at, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(bind(fd, netip.AddrPortFrom(at, 0)), unix.Listen(fd, backlog)); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "gateway tcp"), nil
}

func packet(at netip.AddrPort) (*os.File, error) {
	fd, err := open(at.Addr(), unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	// Whoever receives is told which address a datagram was for.
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if at.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	if err := errors.Join(unix.SetsockoptInt(fd, level, option, 1), bind(fd, at)); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "gateway udp"), nil
}

func open(at netip.Addr, kind int) (fd int, err error) {
	family := unix.AF_INET
	if at.Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if at.Is6() {
		// A route does not make an IPv6 address one that can be bound to, or answered from.
		err := errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1))
		if err != nil {
			return -1, errors.Join(err, unix.Close(fd))
		}
	}
	return fd, nil
}

func bind(fd int, at netip.AddrPort) error {
	if at.Addr().Is4() {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	return unix.Bind(fd, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
}
