package netpolicy_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/netpolicy"
	"proctor/testenv"
)

func TestSockets(t *testing.T) {
	testenv.Root(t)
	n, err := netpolicy.NewNamespace(filepath.Join(testenv.Dir(t), "netns"), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	sockets, err := n.Sockets([]uint16{4000, 5000})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, s := range sockets {
		defer s.File.Close()
		got[fmt.Sprintf("%s%d:%d", s.Protocol, s.Family, s.Port)] = true
	}
	for _, want := range []string{"tcp4:0", "tcp6:0", "udp4:53", "udp6:53", "udp4:4000", "udp6:4000", "udp4:5000", "udp6:5000"} {
		if !got[want] {
			t.Errorf("no socket %s among %v", want, got)
		}
	}
	if len(got) != 8 {
		t.Errorf("sockets %v", got)
	}

	// Whoever is in the namespace can't put another socket in the place of one of these,
	// whatever it asks of its own.
	err = inside(t, n.Path(), func() error {
		for _, s := range sockets {
			at, err := unix.Getsockname(int(s.File.Fd()))
			if err != nil {
				return err
			}
			family, kind := unix.AF_INET, unix.SOCK_STREAM
			if s.Family == 6 {
				family = unix.AF_INET6
			}
			if s.Protocol == "udp" {
				kind = unix.SOCK_DGRAM
			}
			for _, option := range []int{0, unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
				fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				if option != 0 {
					if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
						return err
					}
				}
				if s.Family == 6 {
					if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1); err != nil {
						return err
					}
				}
				if err := unix.Bind(fd, at); !errors.Is(err, unix.EADDRINUSE) {
					t.Errorf("%s%d:%d with option %d: %v", s.Protocol, s.Family, s.Port, option, err)
				}
				unix.Close(fd)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Two ports that are one leave nothing behind.
func TestSocketsFail(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	n, err := netpolicy.NewNamespace(filepath.Join(testenv.Dir(t), "netns"), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if sockets, err := n.Sockets([]uint16{netpolicy.DNS}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("port 53 twice: %v, %v", sockets, err)
	}
}
