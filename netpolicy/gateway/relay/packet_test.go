package relay

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

// packets serves datagrams for every loopback address on one port, which it returns.
func (w *world) packets() uint16 {
	pc, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		w.Fatal(err)
	}
	w.packet = pc.(*net.UDPConn)
	port := addrPort(pc.LocalAddr()).Port()
	w.grants.ranges[1].Ports = []uint16{port}
	w.wg.Go(func() {
		if err := w.relay.ServePacket(w.ctx, w.packet); err != nil {
			w.Error(err)
		}
	})
	return port
}

// A sender is what gateway.sockets has: it sends from any address by the one socket.
type sender struct {
	c    *net.UDPConn
	from []byte
}

func (s sender) Send(p []byte, to netip.AddrPort) error {
	_, _, err := s.c.WriteMsgUDPAddrPort(p, s.from, to)
	return err
}

func (w *world) inside(local netip.AddrPort) (Sender, error) {
	return sender{w.packet, unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: local.Addr().As4()})}, nil
}

// udpEcho answers every datagram with itself.
func (w *world) udpEcho() string {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, maxPacket)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(b[:n], from)
		}
	})
	w.Cleanup(func() { pc.Close(); wg.Wait() })
	return pc.LocalAddr().String()
}

func (w *world) udp(dest netip.AddrPort) net.Conn {
	// Connected: what does not come from dest does not arrive.
	c, err := net.Dial("udp4", dest.String())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

func (w *world) ask(c net.Conn, text string) {
	w.Helper()
	fmt.Fprint(c, text)
	b := make([]byte, maxPacket)
	if n, err := c.Read(b); err != nil || string(b[:n]) != text {
		w.Errorf("%q comes back, %v; sent was %q", b[:n], err, text)
	}
}

func TestPackets(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t, func(w *world) {
		w.opts.Reply = w.inside
		w.opts.PacketIdle = 2 * time.Second
	})
	port := w.packets()
	dest := netip.AddrPortFrom(netip.MustParseAddr("127.7.7.7"), port)
	w.dialer.set(dest.String(), w.udpEcho())
	a, b := w.udp(dest), w.udp(dest)
	for i := range 3 {
		w.ask(a, fmt.Sprint("a", i))
		w.ask(b, fmt.Sprint("b", i))
	}
	w.ask(a, string(make([]byte, 60000)))
	got := map[uint16]audit.Flow{}
	for range 2 {
		f := w.allowed() // at the end of its idle time
		got[f.Client] = f
		if f.Protocol != "udp" || f.Address != dest.Addr() || f.Port != port || f.Upstream != dest || f.Error != "" || f.Rule != "127.0.0.0/8" {
			t.Errorf("flow %+v", f)
		}
	}
	fa, fb := got[addrPort(a.LocalAddr()).Port()], got[addrPort(b.LocalAddr()).Port()]
	if fa.BytesUp != 60006 || fa.BytesDown != 60006 || fb.BytesUp != 6 || fb.BytesDown != 6 {
		t.Errorf("flows %+v, %+v", fa, fb)
	}
	// It begins anew, and ends with the run.
	w.ask(a, "again")
	w.stop()
	if f := w.allowed(); f.Error != "the run ended" || f.BytesUp != 5 {
		t.Errorf("flow %+v", f)
	}
	w.quiet()
	if n := len(w.relay.slots); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

func TestPacketsRefused(t *testing.T) {
	for _, c := range []struct {
		name, addr, rule string
		change           func(*world)
	}{
		{"to a name", "127.7.7.1", rulePacketName, func(w *world) { w.names[netip.MustParseAddr("127.7.7.1")] = "one.test" }},
		{"never resolved", "127.7.7.2", ruleNeverResolved, func(w *world) { w.opts.Synthetic = []netip.Prefix{netip.MustParsePrefix("127.7.0.0/16")} }},
		{"granted for tcp alone", "127.7.7.3", "127.7.7.3 is not granted", func(w *world) { w.grants.ranges[1].Protocol = "tcp" }},
		{"no sockets inside", "127.7.7.4", ruleNoReply, func(w *world) { w.opts.Reply = nil }},
		{"limit", "127.7.7.5", "connections limit of 1", func(w *world) { w.opts.Limits.Connections = 1 }},
		{"bytes", "127.7.7.6", "bytes_up limit of 3", func(w *world) { w.opts.Limits.BytesUp = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(w *world) { w.opts.Reply = w.inside }, c.change)
			dest := netip.AddrPortFrom(netip.MustParseAddr(c.addr), w.packets())
			if c.name == "limit" {
				other := netip.AddrPortFrom(netip.MustParseAddr("127.7.7.9"), dest.Port())
				w.dialer.set(other.String(), w.udpEcho())
				w.ask(w.udp(other), "x")
			}
			echo := w.udpEcho()
			w.dialer.set(dest.String(), echo)
			conn := w.udp(dest)
			// Told once, and not answered.
			for range 3 {
				fmt.Fprint(conn, "quic")
			}
			f := w.blocked(c.rule)
			if f.Address != dest.Addr() || f.Port != dest.Port() || f.Client != addrPort(conn.LocalAddr()).Port() || f.BytesUp+f.BytesDown != 0 {
				t.Errorf("flow %+v", f)
			}
			conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes come back", n)
			}
			w.stop()
			for len(w.flows.ch) > 0 {
				if f := <-w.flows.ch; f.Decision == audit.Blocked && c.name != "bytes" {
					t.Errorf("it is told again: %+v", f)
				}
			}
		})
	}
}

// nobody is whom nothing reaches.
type nobody struct{}

func (nobody) Send([]byte, netip.AddrPort) error { return nil }

// Code in the run can bind any address; where nobody of the run is, nothing is sent.
func TestPacketsFromOthers(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Own = []netip.Addr{netip.MustParseAddr("198.18.0.1")} })
	w.grants.ranges[1].CIDR = netip.MustParsePrefix("192.0.2.0/24")
	w.relay.Reply = func(netip.AddrPort) (Sender, error) { return nobody{}, nil }
	p := &packets{
		r: w.relay, ctx: w.ctx, turned: turnedAway{r: w.relay},
		streams: make(map[streamKey]*stream), refused: make(map[streamKey]time.Time),
	}
	dest := netip.MustParseAddrPort("192.0.2.1:9")
	w.dialer.set(dest.String(), w.udpEcho())
	for from, ok := range map[string]bool{
		"198.18.0.1": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true,
		"198.18.0.2": false, "192.0.2.53": false, "192.0.2.1": false, "0.0.0.0": false, "fd70:726f:6374:6f71::2": false,
	} {
		key := streamKey{client: netip.AddrPortFrom(netip.MustParseAddr(from), 1), dest: dest}
		p.handle(key, nil)
		if opened := p.streams[key] != nil; opened != ok {
			t.Errorf("from %s: relayed %v", from, opened)
		}
		if !ok {
			w.blocked(ruleSource)
		}
	}
	w.stop()
	p.wg.Wait()
	for range 4 {
		w.allowed()
	}
}

// Streams that are refused are told one by one only while there are not many.
func TestPacketFlood(t *testing.T) {
	w := newWorld(t)
	p := &packets{r: w.relay, ctx: w.ctx, refused: make(map[streamKey]time.Time), turned: turnedAway{r: w.relay}}
	const n = maxRefusedStreams + turnedSingly + 500
	for i := range n {
		p.handle(streamKey{
			client: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(i+1)),
			dest:   netip.MustParseAddrPort("192.0.2.1:443"),
		}, nil)
	}
	p.turned.flush()
	if got := len(w.flows.ch); got != maxRefusedStreams+turnedSingly+1 {
		t.Errorf("%d of %d are told", got, n)
	}
}

func TestPacketsIPv6(t *testing.T) {
	pc, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Fatal(err) // the host of a run has IPv6 on loopback
	}
	w := newWorld(t, func(w *world) {
		w.opts.Reply = func(netip.AddrPort) (Sender, error) { return sender{c: pc.(*net.UDPConn)}, nil }
	})
	dest := addrPort(pc.LocalAddr())
	w.grants.ranges[1] = &egress.Grant{CIDR: netip.MustParsePrefix("::1/128"), Ports: []uint16{dest.Port()}, Protocol: "udp"}
	w.dialer.set(dest.String(), w.udpEcho())
	w.wg.Go(func() {
		if err := w.relay.ServePacket(w.ctx, pc.(*net.UDPConn)); err != nil {
			t.Error(err)
		}
	})
	c, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.WriteTo([]byte("six"), net.UDPAddrFromAddrPort(dest))
	b := make([]byte, 10)
	if n, _, err := c.ReadFrom(b); err != nil || string(b[:n]) != "six" {
		t.Errorf("%q, %v", b[:n], err)
	}
	w.stop()
	if f := w.allowed(); f.Address != dest.Addr() || f.Port != dest.Port() || f.BytesUp != 3 {
		t.Errorf("flow %+v", f)
	}
}
