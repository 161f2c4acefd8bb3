package names

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"proctor/audit"
	"proctor/testenv"
)

// served is a resolver on real sockets of loopback.
type served struct {
	*Resolver
	addr  netip.AddrPort
	rec   *tape
	table *Table
}

func serve(t testing.TB, p Policy, upstream UpstreamOptions, o Options) *served {
	t.Helper()
	pc, l := pair(t)
	s := &served{addr: pc.LocalAddr().(*net.UDPAddr).AddrPort(), rec: &tape{}, table: NewTable(3)}
	o.Policy, o.Table, o.Upstream = p, s.table, newUpstream(t, upstream)
	if o.Recorder == nil {
		o.Recorder = s.rec
	}
	r, err := NewResolver(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Resolver = r
	start(t, func(ctx context.Context) error { return r.ServePacket(ctx, pc) })
	start(t, func(ctx context.Context) error { return r.ServeStream(ctx, l) })
	return s
}

// start runs f until the test ends, when it must return at once and without an error.
func start(t testing.TB, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("does not end")
		}
	})
}

// ask puts a question and returns the answer.
func (s *served) ask(t testing.TB, network, name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	for _, f := range change {
		f(m)
	}
	c := dns.Client{Net: network, Timeout: 30 * time.Second}
	answer, _, err := c.Exchange(m, s.addr.String())
	if err != nil {
		t.Fatalf("%s %s by %s: %v", name, dns.Type(qtype), network, err)
	}
	return answer
}

var policy = grants{hosts: []string{"api.example", "six.example", "none.example", "short.example", "*.files.example"}}

// outside stands for what the host's resolvers know.
func outside(t testing.TB) *nameServer {
	return serveNames(t, zone(t, "api.example. 100 IN A 192.0.2.1", "six.example. 1000 IN AAAA 2001:db8::1", "short.example. 0 IN A 192.0.2.2",
		"a.files.example. 100 IN A 192.0.2.3", "empty.files.example. 100 IN TXT x", "evil.example. 100 IN A 192.0.2.66"))
}

func TestResolver(t *testing.T) {
	up := outside(t)
	for _, network := range []string{"udp", "tcp"} {
		s := serve(t, policy, UpstreamOptions{Servers: []netip.AddrPort{up.addr}}, Options{})
		api6 := "fd70:726f:6374:6f72::c612:101"
		for _, c := range []struct {
			name    string
			qtype   uint16
			code    string
			answer  string // rdata
			ttl     uint32 // of the answer, or of there being none
			allowed bool
			rule    string
		}{
			{"api.example.", dns.TypeA, "NOERROR", "198.18.1.1", 100, true, "host api.example"},
			{"API.Example.", dns.TypeAAAA, "NOERROR", api6, 100, true, "host api.example"}, // it has none outside
			{"six.example.", dns.TypeA, "NOERROR", "198.18.1.2", 300, true, "host six.example"},
			{"short.example.", dns.TypeA, "NOERROR", "198.18.1.3", 1, true, "host short.example"},
			{"none.example.", dns.TypeA, "NXDOMAIN", "", 30, true, "host none.example"},
			{"a.files.example.", dns.TypeA, "NOERROR", "198.18.1.5", 100, true, "host *.files.example"},
			{"empty.files.example.", dns.TypeA, "NOERROR", "", 30, true, "host *.files.example"},
			{"files.example.", dns.TypeA, "NXDOMAIN", "", 60, false, "files.example is not granted"},
			{"b.files.example.", dns.TypeA, "NXDOMAIN", "", 30, true, "host *.files.example"},
			{"c.files.example.", dns.TypeA, "NXDOMAIN", "", 60, false, "host *.files.example, and no more names: limits.names allows 3 under wildcards"},
			{"c.files.example.", dns.TypeHTTPS, "NOERROR", "", 60, true, "host *.files.example"},
			{"a.files.example.", dns.TypeAAAA, "NOERROR", "fd70:726f:6374:6f72::c612:105", 100, true, "host *.files.example"},
			{"evil.example.", dns.TypeA, "NXDOMAIN", "", 60, false, "evil.example is not granted"},
			{"evil.example.", dns.TypeTXT, "NXDOMAIN", "", 60, false, "evil.example is not granted"},
			{"data.evil.example.", 65280, "NXDOMAIN", "", 60, false, "data.evil.example is not granted"},
			{"api.example.", dns.TypeHTTPS, "NOERROR", "", 60, true, "host api.example"},
			{"api.example.", dns.TypeSVCB, "NOERROR", "", 60, true, "host api.example"},
			{"api.example.", dns.TypeMX, "NOERROR", "", 60, true, "host api.example"},
			{"api.example.", dns.TypeANY, "NOERROR", `"RFC8482" ""`, 3600, true, "host api.example"},
			{"localhost.", dns.TypeA, "NOERROR", "127.0.0.1", 3600, true, "localhost is the run itself"},
			{"a.LOCALHOST.", dns.TypeAAAA, "NOERROR", "::1", 3600, true, "localhost is the run itself"},
			{"localhost.", dns.TypeMX, "NOERROR", "", 3600, true, "localhost is the run itself"},
			{"1.1.18.198.in-addr.arpa.", dns.TypePTR, "NOERROR", "api.example.", 3600, true, "198.18.1.1 stands for api.example"},
			{"1.0.0.127.in-addr.arpa.", dns.TypePTR, "NOERROR", "localhost.", 3600, true, "127.0.0.1 stands for localhost"},
			{"9.9.18.198.in-addr.arpa.", dns.TypePTR, "NXDOMAIN", "", 60, false, "no name of this run stands for 198.18.9.9"},
			{"1.2.0.192.in-addr.arpa.", dns.TypePTR, "NXDOMAIN", "", 60, false, "no name of this run stands for 192.0.2.1"},
		} {
			m := s.ask(t, network, c.name, c.qtype)
			answer, ttl := "", uint32(0)
			if len(m.Answer) > 0 {
				answer = strings.TrimPrefix(m.Answer[0].String(), m.Answer[0].Header().String())
				ttl = m.Answer[0].Header().Ttl
			} else if len(m.Ns) > 0 {
				ttl = m.Ns[0].(*dns.SOA).Minttl
			}
			if codeName(m.Rcode) != c.code || answer != c.answer || ttl > c.ttl || ttl+10 < c.ttl { // some of it may be over
				t.Errorf("%s %s: answer\n%v", c.name, dns.Type(c.qtype), m)
			}
			records := s.rec.all()
			last := records[len(records)-1]
			want := audit.Query{
				Name: audit.Text(strings.TrimSuffix(c.name, ".")), Type: dns.Type(c.qtype).String(), Protocol: network, Server: s.addr, From: netip.MustParseAddr("127.0.0.1"), Client: last.Client,
				Decision: audit.Blocked, Rule: c.rule, Code: c.code,
			}
			if c.allowed {
				want.Decision = audit.Allowed
			}
			if a, err := netip.ParseAddr(c.answer); err == nil {
				want.Answers = []netip.Addr{a}
			}
			if d := cmp.Diff(want, last, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), sameAddr); d != "" || last.Client == 0 {
				t.Errorf("%s %s: record (-want +got):\n%s", c.name, dns.Type(c.qtype), d)
			}
		}
		if n := s.Asked(); n != int64(len(s.rec.all())) {
			t.Errorf("%d asked, %d recorded", n, len(s.rec.all()))
		}
	}
	for _, q := range up.asked() {
		f := strings.Fields(q)
		if !policy.Granted(strings.TrimSuffix(f[0], ".")).Allowed || f[1] != "A" && f[1] != "AAAA" || f[0] == "c.files.example." {
			t.Errorf("%q left the host", q)
		}
	}
}

// While the host's resolvers are silent, refusals come at once, and an answer before C
// libraries stop waiting for it.
func TestResolverDown(t *testing.T) {
	t.Parallel() // it waits most of the time
	dumb := serveNames(t, func(string, *dns.Msg) *dns.Msg { return nil })
	s := serve(t, policy, UpstreamOptions{Servers: []netip.AddrPort{dumb.addr}, Try: time.Minute, Total: time.Minute}, Options{Wait: 3 * time.Second})
	var wg sync.WaitGroup
	for _, network := range []string{"udp", "tcp"} {
		for range 5 {
			wg.Go(func() {
				began := time.Now()
				m := s.ask(t, network, "api.example.", dns.TypeA, edns(1232, 0))
				if took := time.Since(began); m.Rcode != dns.RcodeServerFailure || took < 2500*time.Millisecond || took > 15*time.Second {
					t.Errorf("after %v:\n%v", took, m)
				}
				if e, ok := m.IsEdns0().Option[0].(*dns.EDNS0_EDE); !ok || e.InfoCode != 22 && e.InfoCode != 23 {
					t.Errorf("extended error %v", m.IsEdns0())
				}
			})
		}
	}
	for end := time.Now().Add(time.Second); (len(s.wait) < 5 || len(s.slots) < 5) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	within(t, 2*time.Second, "refusals", func() { // less than the others wait
		for range 20 {
			if m := s.ask(t, "udp", "evil.example.", dns.TypeA); m.Rcode != dns.RcodeNameError {
				t.Errorf("%v", m)
			}
		}
	})
	wg.Wait()
	for _, q := range s.rec.all() {
		if q.Name == "api.example" && (q.Decision != audit.Allowed || q.Code != "SERVFAIL" || q.Answers != nil) {
			t.Errorf("record %+v", q)
		}
	}
}

// More questions than may wait are answered all the same.
func TestResolverCrowded(t *testing.T) {
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	up := serveNames(t, func(_ string, m *dns.Msg) *dns.Msg {
		<-held
		m.Rcode = dns.RcodeServerFailure
		return m
	})
	s := serve(t, policy, UpstreamOptions{Servers: []netip.AddrPort{up.addr}, Try: time.Minute, Total: time.Minute}, Options{Wait: 10 * time.Second, Waiting: 1})
	var wg sync.WaitGroup
	wg.Go(func() { s.ask(t, "udp", "api.example.", dns.TypeA) })
	for len(up.asked()) == 0 {
		time.Sleep(time.Millisecond)
	}
	within(t, 5*time.Second, "one too many", func() { // half of what one that waits would take
		if m := s.ask(t, "udp", "six.example.", dns.TypeA); m.Rcode != dns.RcodeServerFailure {
			t.Errorf("%v", m)
		}
	})
	release()
	wg.Wait()
}

// Beyond its limit a run is refused, nothing leaves for it, and the record does not grow with
// what it goes on asking.
func TestQueryLimit(t *testing.T) {
	up := outside(t)
	s := serve(t, policy, UpstreamOptions{Servers: []netip.AddrPort{up.addr}}, Options{Queries: 5})
	conn, err := net.Dial("udp", s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := dns.Conn{Conn: conn}
	for i := range 150 {
		m := new(dns.Msg)
		m.SetQuestion("evil.example.", dns.TypeA)
		if i >= 5 {
			m.SetQuestion("api.example.", dns.TypeA)
		}
		c.WriteMsg(m)
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		got, err := c.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: dns.RcodeNameError, false: dns.RcodeRefused}[i < 5]; got.Rcode != want {
			t.Fatalf("question %d: %v", i, got)
		}
	}
	var over []string
	for _, q := range s.rec.all()[5:] {
		over = append(over, q.Rule)
		if q.Decision != audit.Blocked || q.Code != "REFUSED" || q.Name != "api.example" {
			t.Errorf("record %+v", q)
		}
	}
	rule := "limits.queries allows 5 questions; this is number %d beyond"
	if d := cmp.Diff([]string{fmt.Sprintf(rule, 1), fmt.Sprintf(rule, 10), fmt.Sprintf(rule, 100)}, over); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
	if s.Asked() != 150 || len(up.asked()) != 0 {
		t.Errorf("%d asked; outside %q", s.Asked(), up.asked())
	}
}

func TestStreams(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := serve(t, policy, UpstreamOptions{}, Options{Streams: 3, Idle: 2 * time.Second})
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", s.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { c.Close() })
		return c
	}
	closed := func(c net.Conn) error {
		_, err := io.Copy(io.Discard, c)
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() {
			return err
		}
		return nil
	}
	rule := func(n int) string {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if r := s.rec.all(); len(r) >= n {
				return r[n-1].Rule
			}
		}
		t.Fatalf("%d records, want %d", len(s.rec.all()), n)
		return ""
	}

	// Pipelined, and in pieces of a byte.
	c := dial()
	q := frame(question(t, "evil.example.", dns.TypeA))
	for _, b := range bytes.Repeat(q, 3) {
		c.Write([]byte{b})
	}
	for range 3 {
		m, err := (&dns.Conn{Conn: c}).ReadMsg()
		if err != nil || m.Rcode != dns.RcodeNameError {
			t.Fatalf("%v, %v", m, err)
		}
	}
	rule(3)
	c.Close()

	// One that says nothing, and one that stops in the middle.
	idle, half := dial(), dial()
	half.Write(q[:7])
	within(t, 15*time.Second, "idle streams", func() {
		if err := errors.Join(closed(idle), closed(half)); err != nil {
			t.Error(err)
		}
	})
	if r := rule(5); r != "a stream without a question" || rule(4) != r {
		t.Errorf("rule %q", r)
	}

	long := dial()
	long.Write([]byte{0xff, 0xff})
	if err := closed(long); err != nil || !strings.Contains(rule(6), "at most 4096 bytes") {
		t.Error(err, rule(6))
	}
	mute := dial()
	mute.Write(frame(question(t, "evil.example.", dns.TypeA, func(m *dns.Msg) { m.Response = true })))
	if err := closed(mute); err != nil || !strings.Contains(rule(7), "it is an answer") {
		t.Error(err, rule(7))
	}

	free := func() {
		for len(s.slots) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	free()
	// The fourth of three is closed, and one that comes later has room.
	var open []net.Conn
	for range 3 {
		c := dial()
		c.Write(q)
		if _, err := (&dns.Conn{Conn: c}).ReadMsg(); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if err := closed(dial()); err != nil || !strings.Contains(rule(11), "at most 3 streams") {
		t.Error(err, rule(11))
	}
	for _, c := range open {
		closed(c)
	}
	free()
	c = dial()
	c.Write(q)
	if m, err := (&dns.Conn{Conn: c}).ReadMsg(); err != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("%v, %v", m, err)
	}
}

// Go's own resolver takes a refusal for what it is.
func TestGoClient(t *testing.T) {
	up := outside(t)
	s := serve(t, policy, UpstreamOptions{Servers: []netip.AddrPort{up.addr}}, Options{})
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.addr.String())
	}}
	within(t, 4*time.Second, "lookups", func() { // it would ask again after 5 s
		got, err := r.LookupNetIP(t.Context(), "ip", "api.example.")
		if err != nil || len(got) != 2 {
			t.Errorf("%v, %v", got, err)
		}
		_, err = r.LookupNetIP(t.Context(), "ip", "evil.example.")
		var dnsError *net.DNSError
		if !errors.As(err, &dnsError) || !dnsError.IsNotFound || dnsError.IsTemporary {
			t.Errorf("a refusal: %v", err)
		}
		names, err := r.LookupAddr(t.Context(), "198.18.1.1")
		if err != nil || len(names) != 1 || names[0] != "api.example." {
			t.Errorf("%v, %v", names, err)
		}
	})
	n := 0
	for _, q := range s.rec.all() {
		if q.Name == "evil.example" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("the refused name was asked for %d times, want one for each family", n)
	}
}

// Node's resolver, which is c-ares, does as well.
func TestNodeClient(t *testing.T) {
	node := testenv.Tool(t, "node")
	up := outside(t)
	s := serve(t, policy, UpstreamOptions{Servers: []netip.AddrPort{up.addr}}, Options{})
	script := fmt.Sprintf(`const {Resolver} = require('dns').promises; const r = new Resolver(); r.setServers(['%s']);
		(async () => {
			console.log(await r.resolve4('api.example'), await r.resolve6('api.example'));
			const began = Date.now();
			for (const f of ['resolve4', 'resolve6', 'resolveTxt'])
				try { await r[f]('evil.example') } catch (e) { console.log(e.code) }
			try { await r.resolveMx('api.example') } catch (e) { console.log(e.code) }
			if (Date.now() - began > 4000) console.log('slow');
		})()`, s.addr)
	out, err := exec.CommandContext(t.Context(), node, "-e", script).CombinedOutput()
	want := "[ '198.18.1.1' ] [ 'fd70:726f:6374:6f72::c612:101' ]\nENOTFOUND\nENOTFOUND\nENOTFOUND\nENODATA\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: got\n%swant\n%s", err, out, want)
	}
	if n := len(s.rec.all()); n != 6 {
		t.Errorf("%d questions, want 6", n)
	}
}

func TestNewResolverNeedsAll(t *testing.T) {
	if _, err := NewResolver(Options{Policy: policy}); err == nil {
		t.Error("a resolver of nothing")
	}
	if _, err := NewUpstream(UpstreamOptions{Servers: []netip.AddrPort{{}}}); err == nil {
		t.Error("a server that is none")
	}
}
