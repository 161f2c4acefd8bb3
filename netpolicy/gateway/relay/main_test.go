package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// grants is a policy: what is not in it is refused.
type grants struct {
	hosts       map[string]*egress.Grant // "name:port"
	ranges      []*egress.Grant
	credentials []string
}

func (g grants) Host(name string, port uint16) egress.Decision {
	if grant, ok := g.hosts[fmt.Sprintf("%s:%d", name, port)]; ok {
		return egress.Decision{Allowed: true, Rule: name, Grant: grant}
	}
	return egress.Decision{Rule: fmt.Sprintf("%s is not granted on port %d", name, port)}
}

func (g grants) Address(a netip.Addr, port uint16, protocol string) egress.Decision {
	for _, grant := range g.ranges {
		if grant.CIDR.Contains(a) && slices.Contains(grant.Ports, port) && grant.Protocol == protocol {
			return egress.Decision{Allowed: true, Rule: grant.CIDR.String(), Grant: grant}
		}
	}
	return egress.Decision{Rule: a.String() + " is not granted"}
}

func (g grants) Credential(name string) *egress.Credential {
	if slices.Contains(g.credentials, name) {
		return &egress.Credential{Name: "key", Host: name}
	}
	return nil
}

type nameMap map[netip.Addr]string

func (n nameMap) Name(a netip.Addr) (string, bool) {
	name, ok := n[a]
	return name, ok
}

// A dialer leads names and addresses to the servers of a test.
type dialer struct {
	mu     sync.Mutex
	to     map[string]string // "name:port" or "address:port"
	dialed []string
}

func (d *dialer) set(from, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to[from] = to
}

func (d *dialer) dial(ctx context.Context, network, key string) (net.Conn, error) {
	d.mu.Lock()
	d.dialed = append(d.dialed, key)
	to, ok := d.to[key]
	d.mu.Unlock()
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: key, IsNotFound: true}
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

func (d *dialer) Dial(ctx context.Context, name string, port uint16) (net.Conn, netip.AddrPort, error) {
	c, err := d.dial(ctx, "tcp", fmt.Sprintf("%s:%d", name, port))
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	return c, addrPort(c.RemoteAddr()), nil
}

func (d *dialer) DialAddr(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	return d.dial(ctx, network, to.String())
}

type flows struct{ ch chan audit.Flow }

func (f flows) Flow(x audit.Flow) { f.ch <- x }

// A world is a run's network with a relay in it.
type world struct {
	testing.TB
	opts   Options
	grants grants
	names  nameMap
	dialer *dialer
	flows  flows
	relay  *Relay
	ctx    context.Context
	stop   func()
	wg     sync.WaitGroup
	packet *net.UDPConn      // that all datagrams lead to
	served map[string]string // destination → where it can be dialed
}

const proxyAddr = "192.0.2.53:3128"

// newWorld grants one.test on 80 (also 443, 8080, 5432) at 198.18.0.1, and knows other.test at
// 198.18.0.2 and secret.test, which has a credential, at 198.18.0.3.
func newWorld(t testing.TB, change ...func(*world)) *world {
	w := &world{
		TB:     t,
		grants: grants{hosts: make(map[string]*egress.Grant), credentials: []string{"secret.test"}},
		names: nameMap{
			netip.MustParseAddr("198.18.0.1"): "one.test",
			netip.MustParseAddr("198.18.0.2"): "other.test",
			netip.MustParseAddr("198.18.0.3"): "secret.test",
		},
		dialer: &dialer{to: make(map[string]string)},
		flows:  flows{make(chan audit.Flow, 100000)},
		served: make(map[string]string),
	}
	for _, name := range []string{"one.test:80", "one.test:443", "one.test:8080", "one.test:5432", "secret.test:443", "secret.test:80"} {
		w.grants.hosts[name] = &egress.Grant{Host: name}
	}
	w.grants.ranges = []*egress.Grant{
		{CIDR: netip.MustParsePrefix("203.0.113.0/24"), Ports: []uint16{5432, 80}, Protocol: "tcp"},
		{CIDR: netip.MustParsePrefix("127.0.0.0/8"), Ports: []uint16{9}, Protocol: "udp"},
	}
	w.opts = Options{
		Names: w.names, Dialer: w.dialer, Recorder: w.flows,
		ProxyAddr:    netip.MustParseAddrPort(proxyAddr),
		Synthetic:    []netip.Prefix{netip.MustParsePrefix("198.18.0.0/16")},
		HelloTimeout: 10 * time.Second,
		SpeakTimeout: 2 * time.Second,
	}
	for _, c := range change {
		c(w)
	}
	w.opts.Policy = &w.grants
	var err error
	if w.relay, err = New(w.opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	w.stop = func() { cancel(); w.wg.Wait() }
	t.Cleanup(w.stop)
	return w
}

// destListener is a listener whose connections were meant for dest.
type destListener struct {
	net.Listener
	dest netip.AddrPort
}

type destConn struct {
	net.Conn
	dest netip.AddrPort
}

func (c *destConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.dest) }
func (c *destConn) NetConn() net.Conn   { return c.Conn }

func (l *destListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &destConn{c, l.dest}, nil
}

// at returns where a connection to dest, as the run sees it, can be dialed.
func (w *world) at(dest string) string {
	w.Helper()
	if addr, ok := w.served[dest]; ok {
		return addr
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	addr := l.Addr().String()
	w.served[dest] = addr
	serve := w.relay.Serve
	if dest == proxyAddr {
		serve = w.relay.ServeProxy
	}
	w.wg.Go(func() {
		if err := serve(w.ctx, &destListener{l, netip.MustParseAddrPort(dest)}); err != nil {
			w.Error(err)
		}
	})
	return addr
}

func (w *world) dial(dest string) *net.TCPConn {
	w.Helper()
	c, err := net.Dial("tcp", w.at(dest))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c.(*net.TCPConn)
}

// flow waits for the next flow.
func (w *world) flow() audit.Flow {
	w.Helper()
	select {
	case f := <-w.flows.ch:
		return f
	case <-time.After(30 * time.Second):
		w.Fatal("no flow was recorded")
	}
	return audit.Flow{}
}

// blocked waits for a flow that a rule has blocked.
func (w *world) blocked(rule string) audit.Flow {
	w.Helper()
	f := w.flow()
	if f.Decision != audit.Blocked || !strings.Contains(f.Rule, rule) {
		w.Errorf("flow %+v: it should be blocked by %q", f, rule)
	}
	return f
}

// allowed waits for a flow that was allowed.
func (w *world) allowed() audit.Flow {
	w.Helper()
	f := w.flow()
	if f.Decision != audit.Allowed {
		w.Errorf("flow %+v: it should be allowed", f)
	}
	return f
}

// quiet checks that there are no more flows when everything has ended.
func (w *world) quiet() {
	w.Helper()
	w.stop()
	select {
	case f := <-w.flows.ch:
		w.Errorf("one flow too many: %+v", f)
	default:
	}
}

// client is an HTTP client of the run, for which addr leads to where one.test is. pool trusts s.
func (w *world) client(s *httptest.Server, serverName string) *http.Client {
	pool := x509.NewCertPool()
	if s != nil && s.Certificate() != nil {
		pool.AddCert(s.Certificate())
	}
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: serverName},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(addr)
			return new(net.Dialer).DialContext(ctx, network, w.at("198.18.0.1:"+port))
		},
	}
	w.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// tcpServer serves each connection with f.
func (w *world) tcpServer(f func(*net.TCPConn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(30 * time.Second))
				f(c.(*net.TCPConn))
			})
		}
	})
	w.Cleanup(func() { w.stop(); l.Close(); wg.Wait() })
	return l.Addr().String()
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	c.CloseWrite()
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("after %q: %v", b, err)
	}
	return string(b)
}

// isReset checks that a connection to dest is reset without a word.
func (w *world) isReset(dest string) {
	w.Helper()
	c, err := net.Dial("tcp", w.at(dest))
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		w.Errorf("the client sees %v; it should see a reset", err)
	}
}
