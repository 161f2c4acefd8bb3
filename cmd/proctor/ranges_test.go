package main_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/netpolicy"
	"proctor/netpolicy/thread"
	"proctor/testenv"
)

const rangeProfile = `
description: ranges
egress:
  allow:
    - {cidr: 203.0.113.0/24, ports: [5432]}
    - {cidr: 203.0.113.0/28, ports: [5353], protocol: udp}
    - {cidr: "2001:db8:1::/48", ports: [5432]}
    - {cidr: "2001:db8:1::/48", ports: [5353], protocol: udp}
`

// outsideOf makes a namespace in which a supervisor is started: every address there is one of
// its own, and what listens there is the outside for its runs.
func outsideOf(t *testing.T) (path string, within func(f func() error)) {
	t.Helper()
	n, err := netpolicy.NewNamespace(filepath.Join(testenv.Dir(t), "netns"), "outside")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n.Path(), func(f func() error) {
		t.Helper()
		ns, err := os.Open(n.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		err = thread.Run(func() error {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// echo answers on an address, by stream and by datagram, with what it is sent.
func echo(t *testing.T, stream, datagram string) error {
	l, err := net.Listen("tcp", stream)
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", datagram)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	t.Cleanup(func() { l.Close(); p.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = p.WriteTo(buf[:n], from)
		}
	}()
	return nil
}

// What is granted by address is relayed as it is, streams and datagrams, of both families.
func TestGrantedRanges(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	profiles, config := filepath.Join(dir, "profiles"), filepath.Join(dir, "proctor.yaml")
	for file, text := range map[string]string{
		filepath.Join(profiles, "ranges.yaml"): rangeProfile,
		config:                                 fmt.Sprintf("profiles: %s\nnetwork: {resolvers: [\"192.0.2.1\"]}\n", profiles),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sdir := testenv.Dir(t)
	s := describe(t, sdir, pickImages(t, sdir, "python-data", "shell"))
	s.flags = []string{"--config", config}
	var within func(func() error)
	s.netns, within = outsideOf(t)
	within(func() error {
		// A route does not make an IPv6 address one that can be bound to.
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("2001:db8:1::5/128")
		if err != nil {
			return err
		}
		address.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, address); err != nil {
			return err
		}
		return errors.Join(echo(t, "203.0.113.5:5432", "203.0.113.5:5353"), echo(t, "[2001:db8:1::5]:5432", "[2001:db8:1::5]:5353"))
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		s.unmountAll(t)
	})
	s.showLog(t)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}

	v := s.verdict(t, "python", attempts+`
def stream(host, port):
    with socket.create_connection((host, port), 5) as s:
        peer = s.getpeername()
        s.sendall(b"over a stream")
        s.shutdown(socket.SHUT_WR)
        return s.makefile("rb").read().decode(), peer[:2] == (host, port)
def datagram(host, port, connected=False):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        if connected:
            s.connect((host, port))
            s.send(b"connected")
            return s.recv(100).decode()
        s.sendto(b"by datagram", (host, port))
        data, peer = s.recvfrom(100)
        return data.decode(), peer[:2] == (host, port)
for host in "203.0.113.5", "2001:db8:1::5":
    attempt("stream", lambda: stream(host, 5432))
    attempt("datagram", lambda: datagram(host, 5353))
    attempt("connected", lambda: datagram(host, 5353, True))
attempt("nobody", lambda: stream("203.0.113.6", 5432))
attempt("another port", lambda: stream("203.0.113.5", 5433))
attempt("not that protocol", lambda: stream("203.0.113.5", 5353))
attempt("outside the range", lambda: datagram("203.0.113.16", 5353))
attempt("another range", lambda: stream("2001:db8:2::5", 5432))
`, "--profile", "ranges", "--timeout", "60s")
	const refused = "PermissionError [Errno 1] Operation not permitted"
	over := []string{"stream: ('over a stream', True)", "datagram: ('by datagram', True)", "connected: connected"}
	checkLines(t, v, append(append(over, over...), "nobody: ConnectionResetError [Errno 104] Connection reset by peer",
		"another port: "+refused, "not that protocol: "+refused, "outside the range: "+refused, "another range: "+refused)...)
	flows := map[string]int64{}
	for _, e := range s.events(t, v.Run) {
		if e.Finding != nil {
			t.Errorf("finding %+v", *e.Finding)
		}
		if f := e.Flow; f != nil && f.Decision == audit.Allowed {
			flows[f.Protocol+" "+f.Rule] += f.BytesUp
			if e.Process == nil || e.Process.Comm != "python3" {
				t.Errorf("a flow of %+v", e.Process)
			}
		}
	}
	for rule, bytes := range map[string]int64{
		"tcp 203.0.113.0/24:5432/tcp": int64(len("over a stream")), "tcp 2001:db8:1::/48:5432/tcp": int64(len("over a stream")),
		"udp 203.0.113.0/28:5353/udp": int64(len("by datagram" + "connected")), "udp 2001:db8:1::/48:5353/udp": int64(len("by datagram" + "connected")),
	} {
		if flows[rule] != bytes {
			t.Errorf("%s: %d bytes, want %d; all: %v", rule, flows[rule], bytes, flows)
		}
	}
	if took := time.Duration(v.Usage.WallMS) * time.Millisecond; took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}
