package names

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// grants is a policy of host grants, and of ranges, on any port.
type grants struct {
	hosts  []string
	ranges []netip.Prefix
	ports  []uint16 // of hosts; empty: any
}

func (g grants) Granted(name string) egress.Decision {
	for _, h := range g.hosts {
		if h == name || strings.HasPrefix(h, "*.") && strings.HasSuffix(name, h[1:]) {
			return egress.Decision{Allowed: true, Rule: "host " + h, Grant: &egress.Grant{Host: h}}
		}
	}
	return egress.Decision{Rule: name + " is not granted"}
}

func (g grants) Host(name string, port uint16) egress.Decision {
	for _, p := range g.ports {
		if p == port {
			return g.Granted(name)
		}
	}
	if g.ports != nil {
		return egress.Decision{Rule: fmt.Sprintf("%s is not granted on port %d", name, port)}
	}
	return g.Granted(name)
}

func (g grants) Address(a netip.Addr, port uint16, protocol string) egress.Decision {
	for _, p := range g.ranges {
		if p.Contains(a) {
			return egress.Decision{Allowed: true, Rule: "cidr " + p.String(), Grant: &egress.Grant{CIDR: p}}
		}
	}
	return egress.Decision{Rule: a.String() + " is not granted"}
}

// tape is a recorder that keeps what it is told.
type tape struct {
	mu      sync.Mutex
	queries []audit.Query
}

func (t *tape) Query(q audit.Query) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queries = append(t.queries, q)
}

func (t *tape) all() []audit.Query {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]audit.Query(nil), t.queries...)
}

// nameServer is a real server on loopback that stands for a resolver of the host.
type nameServer struct {
	addr netip.AddrPort
	mu   sync.Mutex
	seen []string // "name type network"
}

// serveNames starts one. answer fills in the reply, or returns nil to say nothing.
func serveNames(t testing.TB, answer func(network string, m *dns.Msg) *dns.Msg) *nameServer {
	t.Helper()
	s := &nameServer{}
	pc, l := pair(t)
	s.addr = pc.LocalAddr().(*net.UDPAddr).AddrPort()
	handler := func(network string) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			s.mu.Lock()
			s.seen = append(s.seen, q.Question[0].Name+" "+dns.Type(q.Question[0].Qtype).String()+" "+network)
			s.mu.Unlock()
			m := new(dns.Msg)
			m.SetReply(q)
			m.Extra = q.Extra
			m.RecursionAvailable = true
			if m = answer(network, m); m != nil {
				w.WriteMsg(m)
			}
		}
	}
	for _, server := range []*dns.Server{{PacketConn: pc, Handler: handler("udp")}, {Listener: l, Handler: handler("tcp")}} {
		started, ended := make(chan struct{}), make(chan error, 1)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			server.Shutdown()
			<-ended
		})
	}
	return s
}

func (s *nameServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

// pair is a UDP socket and a listener on the same free port of 127.0.0.1.
func pair(t testing.TB) (*net.UDPConn, net.Listener) {
	t.Helper()
	for range 50 {
		pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp4", pc.LocalAddr().String())
		if err == nil {
			return pc, l
		}
		pc.Close()
	}
	t.Fatal("no port that is free for both UDP and TCP")
	return nil, nil
}

// zone answers from records in zone file syntax; names without any do not exist.
func zone(t testing.TB, records ...string) func(string, *dns.Msg) *dns.Msg {
	t.Helper()
	var rrs []dns.RR
	for _, s := range records {
		rr, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		rrs = append(rrs, rr)
	}
	return func(_ string, m *dns.Msg) *dns.Msg {
		m.Rcode = dns.RcodeNameError
		owner := m.Question[0].Name
		for range 20 {
			alias := ""
			for _, rr := range rrs {
				h := rr.Header()
				if !strings.EqualFold(h.Name, owner) {
					continue
				}
				m.Rcode = dns.RcodeSuccess
				if c, ok := rr.(*dns.CNAME); ok {
					alias = c.Target
				}
				if h.Rrtype == m.Question[0].Qtype || alias != "" {
					m.Answer = append(m.Answer, dns.Copy(rr))
				}
			}
			if alias == "" {
				break
			}
			owner = alias
		}
		if len(m.Answer) == 0 {
			soa, _ := dns.NewRR("example. 60 IN SOA ns.example. hostmaster.example. 1 3600 600 86400 30")
			m.Ns = []dns.RR{soa}
		}
		return m
	}
}

func newUpstream(t testing.TB, o UpstreamOptions) *Upstream {
	t.Helper()
	u, err := NewUpstream(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func addrs(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// within fails the test if f takes longer.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > d {
		t.Errorf("%s took %v, want %v at most", what, took, d)
	}
}
