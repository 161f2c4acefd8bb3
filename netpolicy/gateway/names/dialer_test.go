package names

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// listeners are servers on one port of several addresses of loopback, which count.
type listeners struct {
	port uint16
	mu   sync.Mutex
	hits map[string]int
}

func listen(t *testing.T, on ...string) *listeners {
	t.Helper()
	ls := &listeners{hits: map[string]int{}}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for i, a := range on {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(a), ls.port)))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			ls.port = l.Addr().(*net.TCPAddr).AddrPort().Port()
		}
		t.Cleanup(func() { l.Close() })
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				ls.mu.Lock()
				ls.hits[a]++
				ls.mu.Unlock()
				io.WriteString(c, a)
				c.Close()
			}
		})
	}
	return ls
}

func (l *listeners) seen() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for k, v := range l.hits {
		out[k] = v
	}
	return out
}

// In these tests 127.1.0.0/16 stands for the public internet.
func public(a netip.Addr) bool {
	if v4, ok := translated(a); ok {
		a = v4
	}
	return netip.MustParsePrefix("127.1.0.0/16").Contains(a) || netip.MustParsePrefix("192.0.2.0/24").Contains(a)
}

func newDialer(t *testing.T, p Policy, answer func(string, *dns.Msg) *dns.Msg, o DialerOptions) *Dialer {
	t.Helper()
	o.Policy, o.Public = p, public
	if o.Table == nil {
		o.Table = NewTable(1)
	}
	o.Upstream = newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{serveNames(t, answer).addr}, Try: 5 * time.Second, Total: 10 * time.Second})
	d, err := NewDialer(o)
	if err != nil {
		t.Fatal(err)
	}
	d.grace = 10 * time.Second // what is expected has the addresses of both families
	return d
}

func TestDial(t *testing.T) {
	ls := listen(t, "127.1.0.1", "127.1.0.2", "127.0.0.1", "127.0.0.9")
	p := grants{
		hosts:  []string{"public.example", "both.example", "private.example", "mapped.example", "nat64.example", "zero.example", "ranged.example", "own.example", "second.example", "none.example", "empty.example", "six.example", "port.example"},
		ranges: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32"), netip.MustParsePrefix("0.0.0.0/8")},
		ports:  []uint16{ls.port, 1},
	}
	d := newDialer(t, p, zone(t,
		"public.example. 100 IN A 127.1.0.1",
		"both.example. 100 IN A 127.0.0.1", "both.example. 100 IN A 127.1.0.2", "both.example. 100 IN AAAA ::1",
		"private.example. 100 IN A 127.0.0.1", "private.example. 100 IN A 10.0.0.1", "private.example. 100 IN A 169.254.169.254", "private.example. 100 IN AAAA ::1",
		"nat64.example. 100 IN AAAA 64:ff9b::127.0.0.1", "nat64.example. 100 IN AAAA 64:ff9b::127.1.0.7",
		"zero.example. 100 IN A 0.0.0.0", "zero.example. 100 IN AAAA ::",
		"ranged.example. 100 IN A 127.0.0.9",
		"own.example. 100 IN A 127.1.0.7",
		"second.example. 100 IN A 127.1.0.3", "second.example. 100 IN A 127.1.0.1", // nobody listens on the first
		"empty.example. 100 IN TXT x",
	), DialerOptions{Own: func(a netip.Addr) bool { return a == netip.MustParseAddr("127.1.0.7") }})

	for _, c := range []struct {
		name   string
		port   uint16
		to     string // connected to
		reason error
		addrs  []netip.Addr // of the error
	}{
		{"public.example", ls.port, "127.1.0.1", nil, nil},
		{"both.example", ls.port, "127.1.0.2", nil, nil},
		{"ranged.example", ls.port, "127.0.0.9", nil, nil},
		{"second.example", ls.port, "127.1.0.1", nil, nil},
		{"private.example", ls.port, "", ErrForbidden, addrs("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1")},
		{"nat64.example", ls.port, "", ErrForbidden, addrs("64:ff9b::127.0.0.1", "64:ff9b::127.1.0.7")},
		{"zero.example", ls.port, "", ErrForbidden, addrs("0.0.0.0", "::")},
		{"own.example", ls.port, "", ErrForbidden, addrs("127.1.0.7")},
		{"none.example", ls.port, "", ErrNoName, nil},
		{"empty.example", ls.port, "", ErrNoName, nil},
		{"public.example", 1, "", ErrRefused, addrs("127.1.0.1")},
		{"public.example", 22, "", ErrNotGranted, nil},
		{"evil.example", ls.port, "", ErrNotGranted, nil},
		{"Public.example", ls.port, "", ErrNotGranted, nil},
		{"public.example.", ls.port, "", ErrNotGranted, nil},
		{"127.1.0.1", ls.port, "", ErrNotGranted, nil},
		{"[::1]", ls.port, "", ErrNotGranted, nil},
		{"", ls.port, "", ErrNotGranted, nil},
	} {
		before := ls.seen()
		conn, to, err := d.Dial(t.Context(), c.name, c.port)
		if c.reason != nil {
			var e *DialError
			if !errors.As(err, &e) || !errors.Is(err, c.reason) || e.Name != c.name || e.Port != c.port || conn != nil {
				t.Errorf("%s:%d: %v, want %v", c.name, c.port, err, c.reason)
				continue
			}
			if d := cmp.Diff(c.addrs, e.Addresses, sameAddr); d != "" {
				t.Errorf("%s:%d: addresses (-want +got):\n%s", c.name, c.port, d)
			}
			if d := cmp.Diff(before, ls.seen()); d != "" {
				t.Errorf("%s:%d: something was connected to:\n%s", c.name, c.port, d)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s:%d: %v", c.name, c.port, err)
			continue
		}
		said, _ := io.ReadAll(conn)
		if want := netip.AddrPortFrom(netip.MustParseAddr(c.to), c.port); to != want || string(said) != c.to || conn.RemoteAddr().String() != want.String() {
			t.Errorf("%s:%d: %s said %q", c.name, c.port, to, said)
		}
		conn.Close()
	}
	if n := ls.seen()["127.0.0.1"]; n != 0 {
		t.Errorf("loopback was connected to %d times", n)
	}
}

// A name that points elsewhere from one lookup to the next gets nowhere else.
func TestRebinding(t *testing.T) {
	ls := listen(t, "127.1.0.1", "127.0.0.1")
	var mu sync.Mutex
	n := 0
	d := newDialer(t, grants{hosts: []string{"flip.example"}}, func(_ string, m *dns.Msg) *dns.Msg {
		if m.Question[0].Qtype != dns.TypeA {
			return m
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		rr, _ := dns.NewRR("flip.example. 0 IN A " + []string{"127.0.0.1", "127.1.0.1"}[n%2])
		m.Answer = []dns.RR{rr}
		return m
	}, DialerOptions{})
	for i := range 20 {
		conn, to, err := d.Dial(t.Context(), "flip.example", ls.port)
		if err != nil {
			if !errors.Is(err, ErrForbidden) || i%2 == 0 {
				t.Errorf("dial %d: %v", i, err)
			}
			continue
		}
		if to.Addr() != netip.MustParseAddr("127.1.0.1") || i%2 == 1 {
			t.Errorf("dial %d went to %s", i, to)
		}
		conn.Close()
	}
	if n := ls.seen()["127.0.0.1"]; n != 0 {
		t.Errorf("loopback was connected to %d times", n)
	}
}

// Names that are dialled without having been asked for count as asked for.
func TestDialCountsNames(t *testing.T) {
	ls := listen(t, "127.1.0.1")
	answer := zone(t, "a.files.example. 100 IN A 127.1.0.1", "b.files.example. 100 IN A 127.1.0.1")
	d := newDialer(t, grants{hosts: []string{"*.files.example"}}, answer, DialerOptions{})
	for _, c := range []struct {
		name string
		ok   bool
	}{{"a.files.example", true}, {"b.files.example", false}, {"a.files.example", true}} {
		conn, _, err := d.Dial(t.Context(), c.name, ls.port)
		if c.ok != (err == nil) || !c.ok && (!errors.Is(err, ErrNotGranted) || !strings.Contains(err.Error(), "limits.names allows 1")) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// full is a server of loopback that lets a connection wait for good: nobody accepts, and there
// is no room to wait in.
func full(t *testing.T, on string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(on, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { unix.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	for range 10 {
		c, err := net.DialTimeout("tcp", addr.String(), time.Second)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue does not fill")
	return addr
}

func TestSlowAddresses(t *testing.T) {
	t.Parallel() // it waits most of the time
	slow := full(t, "127.1.0.1")
	fast, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.1.0.2"), slow.Port()).String())
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	dumb := zone(t, "mixed.example. 100 IN A 127.1.0.1", "mixed.example. 100 IN A 127.1.0.2", "slow.example. 100 IN A 127.1.0.1")
	d := newDialer(t, grants{hosts: []string{"*.example"}}, func(network string, m *dns.Msg) *dns.Msg {
		if m.Question[0].Name == "dumb.example." {
			return nil
		}
		return dumb(network, m)
	}, DialerOptions{Stagger: 100 * time.Millisecond, Timeout: 4 * time.Second, Table: NewTable(10)})
	d.opts.Upstream.opts.Total = 2 * time.Second // less than a dial may take

	within(t, 3*time.Second, "dial of a fast address behind a slow one", func() {
		conn, to, err := d.Dial(t.Context(), "mixed.example", slow.Port())
		if err != nil || to.Addr() != netip.MustParseAddr("127.1.0.2") {
			t.Fatalf("%s, %v", to, err)
		}
		conn.Close()
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		within(t, 9*time.Second, "dial of a slow address", func() { // the default is 10 s
			if _, _, err := d.Dial(t.Context(), "slow.example", slow.Port()); !errors.Is(err, ErrTimeout) {
				t.Errorf("%v", err)
			}
		})
	})
	wg.Go(func() {
		within(t, 15*time.Second, "dial of a name that nobody answers for", func() {
			if _, _, err := d.Dial(t.Context(), "dumb.example", slow.Port()); !errors.Is(err, ErrUnresolved) {
				t.Errorf("%v", err)
			}
		})
	})
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, 3*time.Second, "dial of a caller who has no time", func() { // less than the dialer's own
		if _, _, err := d.Dial(ctx, "slow.example", slow.Port()); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
	})
}

func TestDialAddr(t *testing.T) {
	ls := listen(t, "127.1.0.1", "127.0.0.1")
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	p := grants{ranges: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("::/127")}}
	d := newDialer(t, p, zone(t), DialerOptions{Own: func(netip.Addr) bool { return true }})
	udpPort := udp.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	for _, c := range []struct {
		network, addr string
		port          uint16
		reason        error
	}{
		{"tcp", "127.0.0.1", ls.port, nil}, // its author wrote it down
		{"tcp", "::ffff:127.0.0.1", ls.port, nil},
		{"udp", "127.0.0.1", udpPort, nil},
		{"tcp", "127.0.0.1", 1, ErrRefused},
		{"tcp", "127.1.0.1", ls.port, ErrNotGranted}, // public, but of no range
		{"tcp", "0.0.0.0", ls.port, ErrForbidden},
		{"udp", "::", udpPort, ErrForbidden},
		{"tcp", "::ffff:0.0.0.0", ls.port, ErrForbidden},
		{"tcp", "::1%lo", ls.port, ErrForbidden},
		{"tcp", "127.0.0.1", 0, ErrForbidden},
		{"unix", "127.0.0.1", ls.port, ErrNotGranted},
	} {
		conn, err := d.DialAddr(t.Context(), c.network, netip.AddrPortFrom(netip.MustParseAddr(c.addr), c.port))
		if !errors.Is(err, c.reason) || (c.reason == nil) != (err == nil) {
			t.Errorf("%s %s:%d: %v, want %v", c.network, c.addr, c.port, err, c.reason)
		}
		if err == nil {
			if want := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.port); conn.RemoteAddr().String() != want.String() || conn.RemoteAddr().Network() != c.network {
				t.Errorf("connected to %s", conn.RemoteAddr())
			}
			conn.Close()
		}
	}
	if _, err := d.DialAddr(t.Context(), "tcp", netip.AddrPort{}); !errors.Is(err, ErrForbidden) {
		t.Errorf("no address: %v", err)
	}
}

func TestAlternate(t *testing.T) {
	got := alternate(addrs("2001:db8::1", "2001:db8::2", "192.0.2.1", "2001:db8::1", "192.0.2.1", "2001:db8::3"))
	if want := addrs("192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8::3"); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestForbidden(t *testing.T) {
	e := &DialError{Name: "a.example", Port: 443, Reason: ErrForbidden, Addresses: addrs("10.0.0.1", "10.0.0.2")}
	if rule, at := e.Forbidden(); !strings.HasPrefix(rule, "a.example is granted, but ") || at != netip.MustParseAddrPort("10.0.0.1:443") {
		t.Errorf("%q, %s", rule, at)
	}
	for _, e := range []*DialError{
		{Name: "a.example", Port: 443, Reason: ErrRefused, Addresses: addrs("10.0.0.1")},
		{Port: 443, Reason: ErrForbidden, Addresses: addrs("10.0.0.1")},
		{Name: "a.example", Port: 443, Reason: ErrForbidden},
	} {
		if rule, _ := e.Forbidden(); rule != "" {
			t.Errorf("%v: %q", e, rule)
		}
	}
}

func TestDialErrorIsBounded(t *testing.T) {
	e := &DialError{Name: "a.example", Port: 443, Reason: ErrForbidden, Addresses: addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6")}
	want := `dial "a.example" port 443: only addresses that a name may not lead to: 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4 and 2 more; a cidr grant of address and port would open them`
	if e.Error() != want {
		t.Errorf("%s", e)
	}
}
