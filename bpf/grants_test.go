package bpf_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/netpolicy"
	"proctor/testenv"
)

// enterNetwork takes the calling thread into a network namespace.
func enterNetwork(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}

// actReach enters a network namespace and tries each of the others: "tcp ADDRESS", "udp
// ADDRESS" by one datagram, "connected ADDRESS" by a connected one, "unsent ADDRESS" that is
// connected alone; "pour ADDRESS" sends much over TCP. It prints what came back, or the error.
func actReach(args []string) error {
	if err := enterNetwork(args[0]); err != nil {
		return err
	}
	for _, try := range args[1:] {
		how, address, _ := strings.Cut(try, " ")
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		answer, err := reach(how, to)
		if err != nil {
			answer = err.Error()
		}
		fmt.Println(answer)
	}
	return nil
}

func reach(how string, to netip.AddrPort) (string, error) {
	kind := unix.SOCK_DGRAM
	if how == "tcp" || how == "pour" {
		kind = unix.SOCK_STREAM
	}
	var answer string
	err := attempt(kind, to.Addr().String(), func(fd int) (err error) {
		answer, err = ask(fd, how, sockaddr(to.Addr().String(), int(to.Port())))
		return err
	})
	return answer, err
}

func ask(fd int, how string, sa unix.Sockaddr) (string, error) {
	timeout := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return "", err
	}
	var err error
	if how == "udp" {
		err = unix.Sendto(fd, []byte("hello"), 0, sa)
	} else if err = unix.Connect(fd, sa); err == nil && how == "connected" {
		_, err = unix.Write(fd, []byte("hello"))
	}
	if err != nil || how == "unsent" {
		return "connected", err
	}
	if how == "pour" {
		if err := pour(fd); err != nil {
			return "", err
		}
	}
	buf := make([]byte, 100)
	n, err := unix.Read(fd, buf)
	return string(buf[:n]), err
}

// pour sends in pieces that make the kernel's longest segments, beyond the 64 KiB of a packet.
func pour(fd int) error {
	poured, piece := 64<<20, make([]byte, 1<<20)
	for began := time.Now(); ; {
		n, err := unix.Write(fd, piece)
		if err != nil {
			return err
		}
		if poured -= n; poured <= 0 {
			return unix.Shutdown(fd, unix.SHUT_WR)
		}
		if time.Since(began) > 10*time.Second {
			return fmt.Errorf("%d bytes were not sent", poured)
		}
	}
}

// A meeting is the ends of a connection, or of a datagram.
type meeting struct {
	protocol string
	from, to netip.AddrPort
}

// served answers on all sockets of a namespace with the address that was meant. It returns
// who asked, of which senders are known.
func served(t *testing.T, sockets []netpolicy.Socket) (asked chan meeting) {
	t.Helper()
	asked = make(chan meeting, 100)
	for _, s := range sockets {
		if s.Protocol == "tcp" {
			l, err := net.FileListener(s.File)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if m := c.LocalAddr().(*net.TCPAddr); m.Port == 8080 {
						n, _ := io.Copy(io.Discard, c)
						fmt.Fprint(c, "had ", n)
					} else {
						fmt.Fprint(c, "reached ", m)
					}
					asked <- meeting{"tcp", c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()}
					c.Close()
				}
			}()
			continue
		}
		p, err := net.FilePacketConn(s.File)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		go func() {
			buf, oob := make([]byte, 100), make([]byte, 100)
			for {
				u := p.(*net.UDPConn)
				_, n, _, from, err := u.ReadMsgUDPAddrPort(buf, oob)
				if err != nil {
					return
				}
				asked <- meeting{"udp", from, netip.AddrPortFrom(sentTo(oob[:n]), s.Port)}
				u.WriteMsgUDPAddrPort([]byte("reached"), replyFrom(oob[:n]), from)
			}
		}()
	}
	return asked
}

// replyFrom is the control message that sends from where another was sent to.
func replyFrom(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	if messages[0].Header.Level == unix.IPPROTO_IP { // index, local address, address
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(messages[0].Data[8:])})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(messages[0].Data)})
}

// sentTo is where a datagram was sent to.
func sentTo(oob []byte) netip.Addr {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return netip.Addr{}
	}
	if messages[0].Header.Level == unix.IPPROTO_IP {
		return netip.AddrFrom4([4]byte(messages[0].Data[8:]))
	}
	return netip.AddrFrom16([16]byte(messages[0].Data))
}

// actInherit makes a socket for datagrams and leaves it to a child to use.
func actInherit(args []string) error {
	if err := enterNetwork(args[0]); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	heir := exec.Command(self, args[1:]...)
	heir.Env = append(os.Environ(), actVariable+"=heir")
	heir.ExtraFiles, heir.Stderr = []*os.File{os.NewFile(uintptr(fd), "socket")}, os.Stderr
	return heir.Run()
}

// actHeir connects the socket that it was left and sends, which must not be.
func actHeir(args []string) error {
	to := netip.MustParseAddrPort(args[0])
	if err := unix.Connect(3, sockaddr(to.Addr().String(), int(to.Port()))); err != nil {
		return err
	}
	if _, err := unix.Write(3, []byte("x")); err != unix.EPERM {
		return fmt.Errorf("send: %v", err)
	}
	return nil
}

// What is dropped of a connected socket is put on who connected it.
func TestInheritedSocket(t *testing.T) {
	h := newHost(t)
	ns, err := netpolicy.NewNamespace(filepath.Join(testenv.Dir(t), "netns"), "inherited")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	b := h.unwatched(t, "inherited")
	b.Watch, err = h.Watch(bpf.WatchOptions{Run: "inherited", CgroupID: b.id, Grants: []bpf.Grant{
		{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Named: true, Ports: []bpf.Port{{Number: 443, Protocol: "tcp", Rule: bpf.RuleGranted}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if err := b.Arm(); err != nil {
		t.Fatal(err)
	}
	cmd := b.actCommand(t, "inherit", ns.Path(), "203.0.113.9:443")
	output(t, cmd)
	events := b.record(t)
	dropped := only(t, events, audit.KindSend, whichever)
	heir := only(t, events, audit.KindExec, func(e audit.Event) bool { return int(e.Process.HostID) != cmd.Process.Pid })
	if dropped.Process.HostID != heir.Process.HostID {
		t.Errorf("it is said to be of %+v, not of %+v", *dropped.Process, *heir.Process)
	}
}

func TestGrants(t *testing.T) {
	h := newHost(t)
	ns, err := netpolicy.NewNamespace(filepath.Join(testenv.Dir(t), "netns"), "granted")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	sockets, err := ns.Sockets([]uint16{5353})
	if err != nil {
		t.Fatal(err)
	}
	var to []bpf.Destination
	for _, s := range sockets {
		raw, err := s.File.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		to = append(to, bpf.Destination{Protocol: s.Protocol, Family: s.Family, Port: s.Port, Socket: raw})
		defer s.File.Close()
	}
	netns, err := os.Open(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer netns.Close()
	began := time.Now()
	steering, err := h.Steer(netns, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("steering took", time.Since(began))
	asked := served(t, sockets)

	b := h.unwatched(t, "granted")
	port := func(n uint16, protocol string) bpf.Port {
		return bpf.Port{Number: n, Protocol: protocol, Rule: bpf.RuleGranted}
	}
	dns := []bpf.Port{{Number: 53, Protocol: "udp", Rule: bpf.RuleResolver}, {Number: 53, Protocol: "tcp", Rule: bpf.RuleResolver}}
	b.Watch, err = h.Watch(bpf.WatchOptions{Run: "granted", CgroupID: b.id, Grants: []bpf.Grant{
		{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Ports: dns},
		{Prefix: netip.MustParsePrefix("::/0"), Ports: dns},
		{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Ports: []bpf.Port{port(443, "tcp"), port(5353, "udp")}},
		{Prefix: netip.MustParsePrefix("198.51.100.64/26"), Ports: []bpf.Port{port(80, "tcp")}},
		{Prefix: netip.MustParsePrefix("2001:db8:1::/48"), Ports: []bpf.Port{port(443, "tcp"), port(8080, "tcp")}},
		{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Named: true, Ports: []bpf.Port{port(443, "tcp")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if err := b.Arm(); err != nil {
		t.Fatal(err)
	}

	const refused = "operation not permitted"
	tries := []struct{ try, want, rule string }{
		{"tcp 198.51.100.7:443", "reached 198.51.100.7:443", "granted"},
		{"tcp [::ffff:198.51.100.7]:443", "reached 198.51.100.7:443", "granted"},
		{"tcp 198.51.100.70:443", "reached 198.51.100.70:443", "granted"}, // of the wider range
		{"tcp 198.51.100.70:80", "reached 198.51.100.70:80", "granted"},
		{"tcp 198.51.100.7:80", refused, "no network granted"},
		{"tcp 198.51.101.7:443", refused, "no network granted"},
		{"tcp [2001:db8:1::7]:443", "reached [2001:db8:1::7]:443", "granted"},
		{"pour [2001:db8:1::7]:8080", "had 67108864", "granted"},
		{"tcp [2001:db8:2::7]:443", refused, "no network granted"},
		{"udp 198.51.100.7:5353", "reached", "granted"},
		{"connected 198.51.100.7:5353", "reached", "granted"},
		{"udp 198.51.100.7:443", refused, "no network granted"},
		{"udp 192.0.2.1:53", "reached", "Proctor's resolver"},
		{"connected [2001:db8:2::1]:53", "reached", "Proctor's resolver"},
		{"tcp 192.0.2.1:53", "reached 192.0.2.1:53", "Proctor's resolver"},
		{"unsent 203.0.113.9:443", "connected", ""},
		{"connected 203.0.113.9:443", refused, "no network granted"}, // QUIC
		{"udp 203.0.113.9:443", refused, "no network granted"},
		{"tcp 203.0.113.9:443", "reached 203.0.113.9:443", "granted"},
		{"unsent 192.0.2.9:443", refused, "no network granted"},
		{"tcp 198.18.0.1:9", "connection refused", "loopback"}, // its own: nobody there
		{"tcp 198.18.0.2:9", refused, "no network granted"},    // the gateway's own
	}
	args := []string{ns.Path()}
	var want, rules []string
	for _, try := range tries {
		args = append(args, try.try)
		want = append(want, try.want)
		if try.rule != "" {
			rules = append(rules, try.rule)
		}
	}
	cmd := b.actCommand(t, "reach", args...)
	got := strings.Split(strings.TrimSpace(output(t, cmd)), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	var recorded []string
	for _, e := range b.record(t) {
		if e.Kind == audit.KindConnect || e.Kind == audit.KindSend {
			recorded = append(recorded, e.Net.Rule)
			if int(e.Process.HostID) != cmd.Process.Pid {
				t.Errorf("%v is said to be of %+v", e.Net, e.Process)
			}
		}
	}
	if diff := cmp.Diff(rules, recorded); diff != "" {
		t.Errorf("record, -want +got:\n%s", diff)
	}
	for range 12 {
		m := <-asked
		who, err := b.Sender(m.protocol, m.from, m.to)
		if err != nil || who == nil || int(who.HostID) != cmd.Process.Pid {
			t.Errorf("%+v: %+v, %v; want process %d", m, who, err, cmd.Process.Pid)
		}
		// Another end is another socket.
		if who, err := b.Sender(m.protocol, m.from, netip.AddrPortFrom(m.to.Addr(), m.to.Port()+1)); err != nil || who != nil {
			t.Errorf("%+v, to the next port: %+v, %v", m, who, err)
		}
	}

	// Without the steering nothing leads anywhere, and without its Watch it is refused everything.
	if err := steering.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.act(t, "reach", ns.Path(), "tcp 198.51.100.7:443"); got != "connection refused\n" {
		t.Errorf("without steering: %q", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.act(t, "reach", ns.Path(), "tcp 198.51.100.7:443"); got != "socket: "+refused+"\n" {
		t.Errorf("without a Watch: %q", got)
	}
}

// actSpray sends a datagram from each of n ports.
func actSpray(args []string) error {
	if err := enterNetwork(args[0]); err != nil {
		return err
	}
	to := netip.MustParseAddrPort(args[1])
	var first, n int
	if _, err := fmt.Sscan(args[2]+" "+args[3], &first, &n); err != nil {
		return err
	}
	for port := first; port < first+n; port++ {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		err = errors.Join(
			unix.Bind(fd, &unix.SockaddrInet4{Port: port}),
			unix.Sendto(fd, []byte("x"), 0, sockaddr(to.Addr().String(), int(to.Port()))),
			unix.Close(fd))
		if err != nil {
			return fmt.Errorf("from port %d: %w", port, err)
		}
	}
	return nil
}

// A run that sends from more ends than are kept takes nothing of what is known of another.
func TestSendersAreOfOneRun(t *testing.T) {
	h := newHost(t)
	to := netip.MustParseAddrPort("192.0.2.1:53")
	spray := func(name string, first, n int) (*box, netip.AddrPort) {
		ns, err := netpolicy.NewNamespace(filepath.Join(testenv.Dir(t), "netns"), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
		b := h.unwatched(t, name)
		b.Watch, err = h.Watch(bpf.WatchOptions{Run: name, CgroupID: b.id, Grants: []bpf.Grant{
			{Prefix: netip.PrefixFrom(to.Addr(), 32), Ports: []bpf.Port{{Number: 53, Protocol: "udp", Rule: bpf.RuleResolver}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		if err := b.Arm(); err != nil {
			t.Fatal(err)
		}
		b.act(t, "spray", ns.Path(), to.String(), fmt.Sprint(first), fmt.Sprint(n))
		return b, netip.AddrPortFrom(netpolicy.Own4, uint16(first+n-1))
	}
	quiet, asked := spray("quiet", 4000, 1)
	loud, last := spray("loud", 10_000, 6000)
	for b, from := range map[*box]netip.AddrPort{quiet: asked, loud: last} {
		if who, err := b.Sender("udp", from, to); err != nil || who == nil || who.Comm == "" {
			t.Errorf("from %s: %+v, %v", from, who, err)
		}
	}
	if who, err := quiet.Sender("udp", last, to); err != nil || who != nil {
		t.Errorf("another run's: %+v, %v", who, err)
	}
}
