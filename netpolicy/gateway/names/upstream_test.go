package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"
)

var (
	sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	noTTL    = cmpopts.IgnoreFields(Answer{}, "TTL")
)

func TestLookup(t *testing.T) {
	chain := []string{}
	for i := range 20 {
		chain = append(chain, fmt.Sprintf("c%d.example. 300 IN CNAME c%d.example.", i, i+1))
	}
	s := serveNames(t, zone(t, append(chain,
		"both.example. 300 IN A 192.0.2.1", "both.example. 300 IN A 192.0.2.2", "both.example. 300 IN A 192.0.2.1", "both.example. 300 IN AAAA 2001:db8::1",
		"four.example. 300 IN A 192.0.2.4",
		"alias.example. 60 IN CNAME Target.example.", "target.example. 300 IN A 192.0.2.5",
		"c20.example. 300 IN A 192.0.2.6",
		"loop.example. 300 IN CNAME pool.example.", "pool.example. 300 IN CNAME loop.example.",
		"dangling.example. 300 IN CNAME gone.example.",
		"old.example. 4294967295 IN A 192.0.2.7", "long.example. 1000000 IN A 192.0.2.8",
	)...))
	u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{s.addr}})
	for _, c := range []struct {
		name   string
		family Family
		want   Answer
	}{
		{"both.example", IPv4, Answer{Found, addrs("192.0.2.1", "192.0.2.2"), 300 * time.Second}},
		{"both.example", IPv6, Answer{Found, addrs("2001:db8::1"), 300 * time.Second}},
		{"four.example", IPv6, Answer{NoAddress, nil, 30 * time.Second}},
		{"alias.example", IPv4, Answer{Found, addrs("192.0.2.5"), 60 * time.Second}}, // the smaller of two
		{"c10.example", IPv4, Answer{Found, addrs("192.0.2.6"), 300 * time.Second}},
		{"c0.example", IPv4, Answer{NoAddress, nil, 0}}, // more aliases than are followed
		{"loop.example", IPv4, Answer{NoAddress, nil, 0}},
		{"dangling.example", IPv4, Answer{NoAddress, nil, 0}},
		{"none.example", IPv4, Answer{NoName, nil, 30 * time.Second}},
		{"old.example", IPv4, Answer{Found, addrs("192.0.2.7"), 0}},
		{"long.example", IPv4, Answer{Found, addrs("192.0.2.8"), time.Hour}},
	} {
		got, err := u.Lookup(t.Context(), c.name, c.family)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if d := cmp.Diff(c.want, got, sameAddr); d != "" {
			t.Errorf("%s, IPv%d (-want +got):\n%s", c.name, c.family, d)
		}
	}
	for _, name := range []string{"", ".", "UPPER.example", "dot.example.", "a..b", "sp ace.example", `es\.cape.example`, "bücher.example", strings.Repeat("a", 64) + ".example"} {
		if a, err := u.Lookup(t.Context(), name, IPv4); err == nil {
			t.Errorf("%q, which is no host name: %+v", name, a)
		}
	}
	if seen := s.asked(); slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, "UPPER") || strings.HasPrefix(s, ". ") }) {
		t.Errorf("asked for %q", seen)
	}
}

// The answer is kept for as long as it holds, and what is left of that is counted down.
func TestCache(t *testing.T) {
	s := serveNames(t, zone(t, "a.example. 100 IN A 192.0.2.1", "zero.example. 0 IN A 192.0.2.1"))
	u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{s.addr}, Entries: 3})
	now := time.Now()
	u.cache.now = func() time.Time { return now }
	lookup := func(name string, ttl time.Duration, asked int) {
		t.Helper()
		a, err := u.Lookup(t.Context(), name, IPv4)
		if err != nil || a.TTL != ttl {
			t.Errorf("%s: %+v, %v, want a TTL of %v", name, a, err, ttl)
		}
		if n := len(s.asked()); n != asked {
			t.Errorf("%s: the server was asked %d times, want %d", name, n, asked)
		}
	}
	lookup("a.example", 100*time.Second, 1)
	now = now.Add(40 * time.Second)
	lookup("a.example", 60*time.Second, 1)
	now = now.Add(60 * time.Second)
	lookup("a.example", 100*time.Second, 2)
	lookup("none.example", 30*time.Second, 3)
	now = now.Add(10 * time.Second)
	lookup("none.example", 20*time.Second, 3)
	lookup("zero.example", 0, 4)
	lookup("zero.example", 0, 5)
	for i := range 10 {
		lookup(fmt.Sprintf("n%d.example", i), 30*time.Second, 6+i)
	}
	if n := len(u.cache.entries); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
	if _, ok := u.cache.entries[key{"n9.example", IPv4}]; !ok {
		t.Error("the newest was thrown out")
	}
}

func TestLookupsMerge(t *testing.T) {
	release := make(chan struct{})
	answer := zone(t, "a.example. 100 IN A 192.0.2.1")
	s := serveNames(t, func(network string, m *dns.Msg) *dns.Msg {
		<-release
		return answer(network, m)
	})
	u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{s.addr}, Try: 30 * time.Second, Total: 30 * time.Second})

	gone, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var found atomic.Int32
	left := make(chan struct{})
	wg.Go(func() {
		defer close(left)
		if _, err := u.Lookup(gone, "a.example", IPv4); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that left: %v", err)
		}
	})
	for len(s.asked()) == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		wg.Go(func() {
			if a, err := u.Lookup(t.Context(), "a.example", IPv4); err == nil && a.Status == Found {
				found.Add(1)
			}
		})
	}
	cancel() // takes nothing from the others
	<-left
	time.Sleep(20 * time.Millisecond)
	close(release)
	wg.Wait()
	if n := len(s.asked()); n != 1 || found.Load() != 20 {
		t.Errorf("%d answers of %d questions, want 20 of 1", found.Load(), n)
	}
}

func TestTruncated(t *testing.T) {
	for name, mangle := range map[string]func(*dns.Msg) *dns.Msg{
		"empty":   func(m *dns.Msg) *dns.Msg { m.Answer = nil; return m },
		"partial": func(m *dns.Msg) *dns.Msg { m.Answer = m.Answer[:1]; return m },
	} {
		t.Run(name, func(t *testing.T) {
			var records []string
			var want []netip.Addr
			for i := range 100 {
				a := fmt.Sprintf("192.0.2.%d", i+1)
				records = append(records, "many.example. 100 IN A "+a)
				if i < maxAddresses {
					want = append(want, netip.MustParseAddr(a))
				}
			}
			answer := zone(t, records...)
			s := serveNames(t, func(network string, m *dns.Msg) *dns.Msg {
				m = answer(network, m)
				if network == "udp" {
					m.Truncated = true
					return mangle(m)
				}
				return m
			})
			u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{s.addr}})
			a, err := u.Lookup(t.Context(), "many.example", IPv4)
			if d := cmp.Diff(Answer{Status: Found, Addresses: want}, a, sameAddr, noTTL); err != nil || d != "" {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
			if seen := s.asked(); len(seen) != 2 {
				t.Errorf("asked %q", seen)
			}
		})
	}
}

// Datagrams that are not the answer are passed over, whatever they look like, and the one that
// is counts.
func TestForgedAnswers(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer conn.Close()
	var ports, ids sync.Map
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, client, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if err := q.Unpack(buf[:n]); err != nil {
				t.Error(err)
				continue
			}
			ports.Store(client.Port(), true)
			ids.Store(q.Id, true)
			reply := func(from *net.UDPConn, a string, change func(*dns.Msg)) {
				m := new(dns.Msg)
				m.SetReply(q)
				rr, _ := dns.NewRR(q.Question[0].Name + " 100 IN A " + a)
				m.Answer = []dns.RR{rr}
				if change != nil {
					change(m)
				}
				out, err := m.Pack()
				if err != nil {
					t.Error(err)
				}
				from.WriteToUDPAddrPort(out, client)
			}
			reply(stranger, "192.0.2.66", nil)
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Id++ })
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Response = false })
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify })
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Question[0].Name = "other.example." })
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT })
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS })
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Question = nil })
			reply(conn, "192.0.2.66", func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) })
			conn.WriteToUDPAddrPort([]byte("no message at all"), client)
			conn.WriteToUDPAddrPort(nil, client)
			reply(conn, "192.0.2.1", func(m *dns.Msg) {
				// What it says beside the question does not count.
				m.Question[0].Name = strings.ToUpper(m.Question[0].Name)
				for _, s := range []string{"other.example. 100 IN A 192.0.2.66", "other.example. 100 IN CNAME " + q.Question[0].Name} {
					rr, _ := dns.NewRR(s)
					m.Answer = append([]dns.RR{rr}, m.Answer...)
				}
				chaos := dns.Copy(m.Answer[len(m.Answer)-1])
				chaos.Header().Class = dns.ClassCHAOS
				chaos.(*dns.A).A = net.IPv4(192, 0, 2, 66)
				m.Answer = append(m.Answer, chaos)
				extra, _ := dns.NewRR(q.Question[0].Name + " 100 IN A 192.0.2.66")
				m.Ns, m.Extra = []dns.RR{extra}, []dns.RR{extra}
			})
		}
	})
	u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{conn.LocalAddr().(*net.UDPAddr).AddrPort()}})
	for i := range 20 {
		a, err := u.Lookup(t.Context(), fmt.Sprintf("n%d.example", i), IPv4)
		if err != nil || len(a.Addresses) != 1 || a.Addresses[0] != netip.MustParseAddr("192.0.2.1") {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	count := func(m *sync.Map) (n int) {
		m.Range(func(any, any) bool { n++; return true })
		return n
	}
	if p, i := count(&ports), count(&ids); p < 15 || i < 15 {
		t.Errorf("20 questions used %d ports and %d ids", p, i)
	}
}

func TestServersInTurn(t *testing.T) {
	t.Parallel() // it waits most of the time
	good := serveNames(t, zone(t, "a.example. 100 IN A 192.0.2.1"))
	rcode := func(rcode int) *nameServer {
		return serveNames(t, func(_ string, m *dns.Msg) *dns.Msg { m.Rcode = rcode; return m })
	}
	dumb := serveNames(t, func(string, *dns.Msg) *dns.Msg { return nil })
	closed, l := pair(t)
	l.Close()
	closed.Close()
	// Another test may be given the port, but on another address.
	port := netip.AddrPortFrom(netip.MustParseAddr("127.2.0.1"), closed.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	answer := zone(t, "a.example. 100 IN A 192.0.2.1")
	elderly := serveNames(t, func(network string, m *dns.Msg) *dns.Msg {
		if m.IsEdns0() != nil {
			m.Extra, m.Rcode = nil, dns.RcodeFormatError
			return m
		}
		return answer(network, m)
	})

	var wg sync.WaitGroup // all at the same time, since they wait
	defer wg.Wait()
	for name, c := range map[string]struct {
		servers []netip.AddrPort
		err     error
		least   time.Duration // of what has to be waited for; all else is at once
	}{
		"the first is closed":  {[]netip.AddrPort{port, good.addr}, nil, 0},
		"the first is silent":  {[]netip.AddrPort{dumb.addr, good.addr}, nil, time.Second},
		"the first fails":      {[]netip.AddrPort{rcode(dns.RcodeServerFailure).addr, good.addr}, nil, 0},
		"the first refuses":    {[]netip.AddrPort{rcode(dns.RcodeRefused).addr, good.addr}, nil, 0},
		"none":                 {nil, ErrNoResolver, 0},
		"all are closed":       {[]netip.AddrPort{port, port}, ErrNoResolver, 0},
		"all fail":             {[]netip.AddrPort{rcode(dns.RcodeServerFailure).addr, port}, ErrResolver, 0},
		"all are silent":       {[]netip.AddrPort{dumb.addr}, ErrNoResolver, 2500 * time.Millisecond},
		"one that has no EDNS": {[]netip.AddrPort{elderly.addr}, nil, 0},
	} {
		run := func(t *testing.T) {
			o := UpstreamOptions{Servers: c.servers, Try: 20 * time.Second, Total: 40 * time.Second}
			if c.least > 0 {
				o.Try, o.Total = time.Second, 2500*time.Millisecond
			}
			u := newUpstream(t, o)
			began := time.Now()
			a, err := u.Lookup(t.Context(), "a.example", IPv4)
			if took := time.Since(began); took < c.least || took > 15*time.Second {
				t.Errorf("took %v", took)
			}
			if !errors.Is(err, c.err) || c.err == nil && a.Status != Found {
				t.Errorf("%+v, %v, want %v", a, err, c.err)
			}
		}
		wg.Go(func() { t.Run(name, run) })
	}
}

// What fails is not tried again at once, but soon.
func TestFailureIsKept(t *testing.T) {
	s := serveNames(t, func(_ string, m *dns.Msg) *dns.Msg { m.Rcode = dns.RcodeServerFailure; return m })
	u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{s.addr}})
	now := time.Now()
	u.cache.now = func() time.Time { return now }
	for i, want := range []int{1, 1, 2} {
		if _, err := u.Lookup(t.Context(), "a.example", IPv4); !errors.Is(err, ErrResolver) {
			t.Error(err)
		}
		if n := len(s.asked()); n != want {
			t.Errorf("lookup %d: asked %d times, want %d", i, n, want)
		}
		now = now.Add(failureTTL / 2)
	}
}

func TestCloseEndsLookups(t *testing.T) {
	dumb := serveNames(t, func(string, *dns.Msg) *dns.Msg { return nil })
	u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{dumb.addr}, Try: 30 * time.Second, Total: 30 * time.Second, Flights: 1})
	ended := make(chan error)
	go func() { _, err := u.Lookup(context.Background(), "a.example", IPv4); ended <- err }()
	for len(dumb.asked()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := u.Lookup(t.Context(), "b.example", IPv4); !errors.Is(err, ErrResolver) {
		t.Errorf("more lookups than there may be: %v", err)
	}
	within(t, 15*time.Second, "close", u.Close)
	if err := <-ended; err == nil {
		t.Error("a lookup that was ended found something")
	}
	if _, err := u.Lookup(t.Context(), "c.example", IPv4); !errors.Is(err, ErrNoResolver) {
		t.Errorf("after close: %v", err)
	}
	if n := len(dumb.asked()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestEither(t *testing.T) {
	slow := zone(t, "a.example. 100 IN A 192.0.2.1", "a.example. 50 IN AAAA 2001:db8::1", "six.example. 100 IN AAAA 2001:db8::6",
		"half.example. 100 IN A 192.0.2.2")
	held := make(chan struct{}) // the AAAA of a.example, until it is waited for
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	s := serveNames(t, func(network string, m *dns.Msg) *dns.Msg {
		if m.Question[0].Qtype == dns.TypeAAAA {
			if m.Question[0].Name == "a.example." {
				<-held
			}
			time.Sleep(100 * time.Millisecond)
		}
		if m.Question[0].Qtype == dns.TypeAAAA && m.Question[0].Name == "half.example." || m.Question[0].Name == "fail.example." {
			m.Rcode = dns.RcodeServerFailure
			return m
		}
		return slow(network, m)
	})
	u := newUpstream(t, UpstreamOptions{Servers: []netip.AddrPort{s.addr}, Try: time.Minute, Total: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, c := range []struct {
		name  string
		grace time.Duration
		want  Answer
		err   error
	}{
		{"a.example", 0, Answer{Found, addrs("192.0.2.1"), 100}, nil},
		{"a.example", 10 * time.Second, Answer{Found, addrs("192.0.2.1", "2001:db8::1"), 50}, nil},
		{"six.example", 0, Answer{Found, addrs("2001:db8::6"), 100}, nil},
		{"half.example", 10 * time.Second, Answer{Found, addrs("192.0.2.2"), 100}, nil},
		{"none.example", 0, Answer{NoName, nil, 30}, nil},
		{"fail.example", 0, Answer{}, ErrResolver},
	} {
		if c.grace > 0 {
			time.AfterFunc(100*time.Millisecond, release)
		}
		got, err := u.either(ctx, c.name, c.grace)
		got.TTL = (got.TTL + 500*time.Millisecond).Truncate(time.Second) / time.Second
		if got.TTL < c.want.TTL && got.TTL+10 >= c.want.TTL {
			got.TTL = c.want.TTL // some of it may be over
		}
		if d := cmp.Diff(c.want, got, sameAddr); d != "" || !errors.Is(err, c.err) {
			t.Errorf("%s, grace %v: %v (-want +got):\n%s", c.name, c.grace, err, d)
		}
	}
}
