package bpf_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// Addresses and ports are chosen so that a swapped byte order can't go unseen.
const (
	away4   = "198.51.100.7"
	away6   = "2001:db8::5"
	mapped4 = "::ffff:198.51.100.7"
	port    = 0x1234
)

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

func sockaddr(address string, port int) unix.Sockaddr {
	a := netip.MustParseAddr(address)
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: port}
}

// attempt makes a socket of the address's family and does one thing with it.
func attempt(kind int, address string, do func(fd int) error) error {
	family := unix.AF_INET6
	if netip.MustParseAddr(address).Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	return do(fd)
}

func connectTo(kind int, address string, port int) error {
	return attempt(kind, address, func(fd int) error { return unix.Connect(fd, sockaddr(address, port)) })
}

func sendTo(kind, flags int, address string, port int) error {
	return attempt(kind, address, func(fd int) error {
		return unix.Sendto(fd, []byte("x"), flags, sockaddr(address, port))
	})
}

// tries are the attempts of actNetwork with what must come of them. Closed loopback
// ports answer that they are closed: the attempt was allowed.
var tries = []struct {
	name string
	do   func() error
	want error
	kind audit.Kind
	net  audit.Network
}{
	{"tcp4", func() error { return connectTo(unix.SOCK_STREAM, away4, port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr(away4)}},
	{"tcp6", func() error { return connectTo(unix.SOCK_STREAM, away6, port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr(away6)}},
	{"tcp mapped", func() error { return connectTo(unix.SOCK_STREAM, mapped4, port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr(away4), Mapped: true}},
	{"tcp fast open", func() error { return sendTo(unix.SOCK_STREAM, unix.MSG_FASTOPEN, "203.0.113.9", port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("203.0.113.9")}},
	{"udp4 connect", func() error { return connectTo(unix.SOCK_DGRAM, away4, port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "udp", Address: netip.MustParseAddr(away4)}},
	{"udp6 connect", func() error { return connectTo(unix.SOCK_DGRAM, away6, port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "udp", Address: netip.MustParseAddr(away6)}},
	{"udp mapped connect", func() error { return connectTo(unix.SOCK_DGRAM, mapped4, port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "udp", Address: netip.MustParseAddr(away4), Mapped: true}},
	{"udp4 send", func() error { return sendTo(unix.SOCK_DGRAM, 0, away4, port) }, unix.EPERM,
		audit.KindSend, audit.Network{Protocol: "udp", Address: netip.MustParseAddr(away4)}},
	{"udp6 send", func() error { return sendTo(unix.SOCK_DGRAM, 0, away6, port) }, unix.EPERM,
		audit.KindSend, audit.Network{Protocol: "udp", Address: netip.MustParseAddr(away6)}},
	{"udp mapped send", func() error { return sendTo(unix.SOCK_DGRAM, 0, mapped4, port) }, unix.EPERM,
		audit.KindSend, audit.Network{Protocol: "udp", Address: netip.MustParseAddr(away4), Mapped: true}},
	{"multicast", func() error { return sendTo(unix.SOCK_DGRAM, 0, "233.252.0.1", port) }, unix.EPERM,
		audit.KindSend, audit.Network{Protocol: "udp", Address: netip.MustParseAddr("233.252.0.1")}},
	{"this network", func() error { return connectTo(unix.SOCK_STREAM, "0.0.0.1", port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("0.0.0.1")}},
	{"almost loopback", func() error { return connectTo(unix.SOCK_STREAM, "128.0.0.127", port) }, unix.EPERM,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("128.0.0.127")}},
	{"connected, sent elsewhere", func() error {
		return attempt(unix.SOCK_DGRAM, "127.0.0.1", func(fd int) error {
			if err := unix.Connect(fd, sockaddr("127.0.0.1", port)); err != nil {
				return fmt.Errorf("connect: %s", err.Error()) // not to be taken for the answer to the send
			}
			return unix.Sendto(fd, []byte("x"), 0, sockaddr(away4, port))
		})
	}, unix.EPERM, audit.KindSend, audit.Network{Protocol: "udp", Address: netip.MustParseAddr(away4)}},

	{"loopback", func() error { return connectTo(unix.SOCK_STREAM, "127.0.0.1", port) }, unix.ECONNREFUSED,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("127.0.0.1"), Decision: audit.Allowed}},
	{"another loopback", func() error { return connectTo(unix.SOCK_STREAM, "127.9.8.7", port) }, unix.ECONNREFUSED,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("127.9.8.7"), Decision: audit.Allowed}},
	{"loopback6", func() error { return connectTo(unix.SOCK_STREAM, "::1", port) }, unix.ECONNREFUSED,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("::1"), Decision: audit.Allowed}},
	{"mapped loopback", func() error { return connectTo(unix.SOCK_STREAM, "::ffff:127.0.0.1", port) }, unix.ECONNREFUSED,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("127.0.0.1"), Decision: audit.Allowed, Mapped: true}},
	{"any", func() error { return connectTo(unix.SOCK_STREAM, "0.0.0.0", port) }, unix.ECONNREFUSED,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("0.0.0.0"), Decision: audit.Allowed}},
	{"any6", func() error { return connectTo(unix.SOCK_STREAM, "::", port) }, unix.ECONNREFUSED,
		audit.KindConnect, audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("::"), Decision: audit.Allowed}},
	{"udp loopback send", func() error { return sendTo(unix.SOCK_DGRAM, 0, "127.0.0.1", port) }, nil,
		audit.KindSend, audit.Network{Protocol: "udp", Address: netip.MustParseAddr("127.0.0.1"), Decision: audit.Allowed}},
	{"connected, sent with options", func() error { // which gives the hook no address
		for _, to := range []struct {
			address       string
			level, option int
		}{{"127.0.0.1", unix.IPPROTO_IP, unix.IP_TTL}, {"::1", unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT}} {
			err := attempt(unix.SOCK_DGRAM, to.address, func(fd int) error {
				if err := unix.Connect(fd, sockaddr(to.address, port)); err != nil {
					return err
				}
				ttl := make([]byte, unix.CmsgSpace(4))
				h := (*unix.Cmsghdr)(unsafe.Pointer(&ttl[0]))
				h.Level, h.Type = int32(to.level), int32(to.option)
				h.SetLen(unix.CmsgLen(4))
				ttl[unix.CmsgLen(0)] = 64
				return unix.Sendmsg(fd, []byte("x"), ttl, nil, 0)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}, nil, audit.KindConnect, audit.Network{Protocol: "udp", Address: netip.MustParseAddr("::1"), Decision: audit.Allowed}},
	{"udp loopback6 send", func() error { return sendTo(unix.SOCK_DGRAM, 0, "::1", port) }, nil,
		audit.KindSend, audit.Network{Protocol: "udp", Address: netip.MustParseAddr("::1"), Decision: audit.Allowed}},
}

func actNetwork([]string) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	for _, try := range tries {
		if err := try.do(); !errors.Is(err, try.want) {
			return fmt.Errorf("%s: %w, want %v", try.name, err, try.want)
		}
	}
	return echo()
}

// echo shows that a server inside the run can be used.
func echo() error {
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(server, sockaddr("127.0.0.1", 0)); err != nil {
		return err
	}
	if err := unix.Listen(server, 1); err != nil {
		return err
	}
	at, err := unix.Getsockname(server)
	if err != nil {
		return err
	}
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(client, at); err != nil {
		return err
	}
	conn, _, err := unix.Accept(server)
	if err != nil {
		return err
	}
	if _, err := unix.Write(client, []byte("hello")); err != nil {
		return err
	}
	got := make([]byte, 5)
	if _, err := unix.Read(conn, got); err != nil || string(got) != "hello" {
		return fmt.Errorf("echo: %q, %w", got, err)
	}
	return nil
}

func TestNetworkAttempts(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "network", 0)
	b.act(t, "network")

	type record struct {
		Kind audit.Kind
		Net  audit.Network
	}
	var want, got []record
	for _, try := range tries {
		n := try.net
		n.Port = port
		if n.Decision == "" {
			n.Decision, n.Rule = audit.Blocked, "no network granted"
		} else {
			n.Rule = "loopback"
		}
		if try.name == "connected, sent elsewhere" {
			want = append(want, record{audit.KindConnect, audit.Network{Protocol: "udp", Address: netip.MustParseAddr("127.0.0.1"),
				Port: port, Decision: audit.Allowed, Rule: "loopback"}})
		}
		if try.name == "connected, sent with options" {
			first := n
			first.Address = netip.MustParseAddr("127.0.0.1")
			want = append(want, record{try.kind, first})
		}
		want = append(want, record{try.kind, n})
	}
	for _, e := range b.record(t) {
		if e.Kind == audit.KindConnect || e.Kind == audit.KindSend {
			got = append(got, record{e.Kind, *e.Net})
			if e.Process.PID != 1 || e.Process.Comm == "" {
				t.Errorf("process is %+v", *e.Process)
			}
		}
	}
	if len(got) != len(want)+1 { // and the one of echo
		t.Errorf("%d records, want %d", len(got), len(want)+1)
	}
	if diff := cmp.Diff(want, got[:min(len(got), len(want))], cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c := h.counters(t)
	if c["egress_dropped"] != 0 || c["no_policy_connect"] != 0 {
		t.Errorf("counters are %v", c)
	}
}

// actFamilies makes every kind of internet socket.
func actFamilies([]string) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, s := range []struct {
			kind, protocol int
			want           error
		}{
			{unix.SOCK_STREAM, 0, nil},
			{unix.SOCK_STREAM, unix.IPPROTO_TCP, nil},
			{unix.SOCK_DGRAM, 0, nil},
			{unix.SOCK_DGRAM, unix.IPPROTO_UDP, nil},
			{unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, unix.EPERM},
			{unix.SOCK_DGRAM, unix.IPPROTO_ICMP, unix.EPERM},
			{unix.SOCK_RAW, unix.IPPROTO_ICMP, unix.EPERM},
			{unix.SOCK_RAW, unix.IPPROTO_RAW, unix.EPERM},
			{unix.SOCK_STREAM, unix.IPPROTO_MPTCP, unix.EPERM},
		} {
			if family == unix.AF_INET6 && s.protocol == unix.IPPROTO_ICMP {
				s.protocol = unix.IPPROTO_ICMPV6
			}
			fd, err := unix.Socket(family, s.kind, s.protocol)
			if err == nil {
				unix.Close(fd)
			}
			// Not every kernel has every protocol.
			if !errors.Is(err, s.want) && !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EACCES) {
				return fmt.Errorf("family %d, type %d, protocol %d: %w, want %v", family, s.kind, s.protocol, err, s.want)
			}
		}
	}
	return nil
}

func TestSocketFamilies(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "families", 0)
	b.act(t, "families")
	if n := h.counters(t)["socket_refused"]; n < 4 {
		t.Errorf("socket_refused is %d", n)
	}
}

// actConnect tries to connect to one address, once for every line on stdin, and prints
// what came of it.
func actConnect(args []string) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		err := connectTo(unix.SOCK_STREAM, args[0], port)
		fmt.Println(err)
	}
	return in.Err()
}

func TestChildWithoutRunIsRefusedEverything(t *testing.T) {
	h := newHost(t)
	b := h.unwatched(t, "stranger")
	for _, address := range []string{"127.0.0.1", "::1", away4, away6} {
		cmd := b.actCommand(t, "connect", address)
		cmd.Stdin = strings.NewReader("\n")
		if got := output(t, cmd); got != "socket: operation not permitted\n" {
			t.Errorf("%s: %q", address, got)
		}
	}
	if n := h.counters(t)["no_policy_socket"]; n != 4 {
		t.Errorf("no_policy_socket is %d, want 4", n)
	}
}

// A socket that was made while its cgroup was a run is worth nothing afterwards.
func TestSocketOutlivesItsRun(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "past", 0)
	cmd := b.actCommand(t, "backstop", "held")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := testenv.Start(cmd); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	for _, want := range []string{"sent", "operation not permitted"} {
		fmt.Fprintln(in)
		if !answers.Scan() || answers.Text() != want {
			t.Errorf("answer is %q, want %q", answers.Text(), want)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n := h.counters(t)["no_policy_egress"]; n != 1 {
		t.Errorf("no_policy_egress is %d, want 1", n)
	}
}

// actBackstop sends what the hooks at connect and sendmsg let pass. With "held": over a
// connected socket, whenever a line comes.
func actBackstop(args []string) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	if len(args) > 0 {
		return attempt(unix.SOCK_DGRAM, "127.0.0.1", func(fd int) error {
			// Both ends in one: nobody answers that the port is closed.
			if err := unix.Bind(fd, sockaddr("127.0.0.1", port)); err != nil {
				return err
			}
			if err := unix.Connect(fd, sockaddr("127.0.0.1", port)); err != nil {
				return err
			}
			for in := bufio.NewScanner(os.Stdin); in.Scan(); {
				if err := unix.Send(fd, []byte("x"), 0); err != nil {
					fmt.Println(err)
				} else {
					fmt.Println("sent")
				}
			}
			return nil
		})
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	own, err := netlink.ParseAddr("192.0.2.9/32")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(lo, own); err != nil {
		return err
	}
	// A datagram to 0.0.0.0 goes to the socket's own address, whatever that is.
	return attempt(unix.SOCK_DGRAM, "192.0.2.9", func(fd int) error {
		if err := unix.Bind(fd, sockaddr("192.0.2.9", 0)); err != nil {
			return err
		}
		if err := unix.Sendto(fd, []byte("x"), 0, sockaddr("0.0.0.0", port)); !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("send: %w", err)
		}
		return nil
	})
}

func TestEgressDropsWhatPassedTheHooks(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "backstop", 0)
	b.act(t, "backstop")
	found := matching(b.record(t), func(e audit.Event) bool {
		return e.Net != nil && e.Net.Decision == audit.Blocked
	})
	if len(found) != 1 {
		t.Fatalf("%d blocked, want 1%s", len(found), describe(found))
	}
	want := audit.Network{Protocol: "udp", Address: netip.MustParseAddr("192.0.2.9"), Port: port,
		Decision: audit.Blocked, Rule: "packet dropped on its way out"}
	if *found[0].Net != want {
		t.Errorf("record is %+v, want %+v", *found[0].Net, want)
	}
	if p := found[0].Process; p.PID != 1 || p.Comm == "" {
		t.Errorf("process is %+v", *p)
	}
	if n := h.counters(t)["egress_dropped"]; n != 1 {
		t.Errorf("egress_dropped is %d, want 1", n)
	}
}

func TestOnlyRefusalsBeforeArm(t *testing.T) {
	h := newHost(t)
	b := h.unarmed(t, "unarmed", 0)
	b.act(t, "network")
	events := b.record(t)
	if len(events) == 0 {
		t.Error("no refusal is recorded")
	}
	if other := matching(events, func(e audit.Event) bool {
		return e.Net == nil || e.Net.Decision != audit.Blocked
	}); len(other) > 0 {
		t.Errorf("recorded before Arm:%s", describe(other))
	}
}
