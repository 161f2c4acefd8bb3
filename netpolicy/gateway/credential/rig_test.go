package credential

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hostA = "api.example"
	hostB = "other.example"
)

var dest = netip.MustParseAddrPort("198.18.0.7:443")

type secretText string

func (s secretText) Reveal() []byte { return []byte(s) }

// policy is what the run's policy says, in a form that a test can write down.
type policy struct {
	credentials map[string]*egress.Credential
	grants      map[string]*egress.Grant
}

func (p *policy) Credential(name string) *egress.Credential { return p.credentials[name] }

func (p *policy) Host(name string, port uint16) egress.Decision {
	g := p.grants[name]
	if g == nil || !slices.Contains(g.Ports, port) {
		return egress.Decision{Rule: fmt.Sprintf("%s:%d is not granted", name, port)}
	}
	return egress.Decision{Allowed: true, Rule: "host " + name, Grant: g}
}

// dialer leads names to servers on loopback.
type dialer struct {
	mu    sync.Mutex
	to    map[string]string
	err   error // of every dial, if there is one
	conns atomic.Int64
}

func (d *dialer) Dial(ctx context.Context, name string, port uint16) (net.Conn, netip.AddrPort, error) {
	d.mu.Lock()
	to := d.to[fmt.Sprintf("%s:%d", name, port)]
	d.mu.Unlock()
	if d.err != nil {
		return nil, netip.AddrPort{}, d.err
	}
	if to == "" {
		return nil, netip.AddrPort{}, fmt.Errorf("no address for %s:%d", name, port)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	d.conns.Add(1)
	return conn, netip.MustParseAddrPort(to), nil
}

type recorder struct {
	mu     sync.Mutex
	flows  []audit.Flow
	scrubs []audit.Scrub
}

func (r *recorder) Query(audit.Query) {}

func (r *recorder) Flow(f audit.Flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flows = append(r.flows, f)
}

func (r *recorder) Scrub(s audit.Scrub) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scrubs = append(r.scrubs, s)
}

// hits is how many secrets were taken out of where.
func (r *recorder) hits(where string) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.scrubs {
		if s.Where == where {
			n += s.Count
		}
	}
	return n
}

// meter has caps.
type meter struct{ up, down atomic.Int64 }

func (m *meter) AddUp(n int64) error {
	if m.up.Add(-n) < 0 {
		return fmt.Errorf("the run's cap on bytes to the outside is reached")
	}
	return nil
}

func (m *meter) AddDown(n int64) error {
	if m.down.Add(-n) < 0 {
		return fmt.Errorf("the run's cap on bytes from the outside is reached")
	}
	return nil
}

// upstreams are real servers with certificates of an authority of their own.
type upstreams struct {
	ca    *Authority
	roots *x509.CertPool
}

func newUpstreams(t testing.TB, hosts ...string) *upstreams {
	t.Helper()
	ca, err := NewAuthority("of the outside", hosts)
	if err != nil {
		t.Fatal(err)
	}
	return &upstreams{ca, poolOf(t, ca)}
}

func poolOf(t testing.TB, ca *Authority) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca.PEM()) {
		t.Fatal("the authority's PEM is no certificate")
	}
	return pool
}

func (u *upstreams) start(t testing.TB, host string, h2 bool, h http.Handler) string {
	t.Helper()
	leaf, err := u.ca.Leaf(host)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = h2
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// A run is a Terminator behind a real listener, and what it leads to.
type run struct {
	t         testing.TB
	ca        *Authority
	term      *Terminator
	policy    *policy
	dialer    *dialer
	recorder  *recorder
	listeners map[string]string // by host

	cancel context.CancelFunc
	wg     sync.WaitGroup
	ln     []net.Listener

	mu   sync.Mutex
	errs []error
	once sync.Once
}

type runOptions struct {
	credentials []egress.Credential
	secrets     map[string]string
	websocket   bool
	to          map[string]string // host to server
	roots       *x509.CertPool
	change      func(*Options)
}

func newRun(t testing.TB, o runOptions) *run {
	t.Helper()
	r := &run{
		t:         t,
		policy:    &policy{map[string]*egress.Credential{}, map[string]*egress.Grant{}},
		dialer:    &dialer{to: map[string]string{}},
		recorder:  &recorder{},
		listeners: map[string]string{},
	}
	var hosts []string
	for _, c := range o.credentials {
		hosts = append(hosts, c.Host)
		r.policy.credentials[c.Host] = &c
		r.policy.grants[c.Host] = &egress.Grant{Host: c.Host, Ports: []uint16{443, 8443}, WebSocket: o.websocket}
	}
	for host, to := range o.to {
		r.dialer.to[host+":443"] = to
	}
	var err error
	if r.ca, err = NewAuthority("r1", hosts); err != nil {
		t.Fatal(err)
	}
	options := Options{
		Authority: r.ca, Policy: r.policy, Dialer: r.dialer, Roots: o.roots, Recorder: r.recorder,
		Secrets: func(name string) (Secret, bool) {
			s, ok := o.secrets[name]
			return secretText(s), ok
		},
	}
	if o.change != nil {
		o.change(&options)
	}
	if r.term, err = New(options); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	for _, host := range hosts {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r.ln = append(r.ln, ln)
		r.listeners[host] = ln.Addr().String()
		r.wg.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				r.wg.Go(func() {
					client := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Port()
					if err := r.term.Serve(ctx, conn, host, dest, client); err != nil {
						r.mu.Lock()
						r.errs = append(r.errs, err)
						r.mu.Unlock()
					}
				})
			}
		})
	}
	t.Cleanup(r.end)
	return r
}

// end closes everything and waits for the flows.
func (r *run) end() {
	r.once.Do(func() {
		for _, ln := range r.ln {
			ln.Close()
		}
		r.cancel()
		r.wg.Wait()
		r.term.Close()
	})
}

// flow ends the run and returns its only flow.
func (r *run) flow() audit.Flow {
	r.t.Helper()
	r.end()
	if len(r.recorder.flows) != 1 {
		r.t.Fatalf("%d flows, not one: %+v", len(r.recorder.flows), r.recorder.flows)
	}
	return r.recorder.flows[0]
}

// settle waits for the first flow, which comes of its own.
func (r *run) settle() {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		r.recorder.mu.Lock()
		n := len(r.recorder.flows)
		r.recorder.mu.Unlock()
		if n > 0 {
			return
		}
	}
	r.t.Error("no flow was recorded")
}

// client is the code's: it trusts the run's authority and asks for HTTP/2 or not.
func (r *run) client(h2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: poolOf(r.t, r.ca)},
		Protocols:       &protocols, ForceAttemptHTTP2: h2, DisableCompression: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr)
			to := r.listeners[host]
			if to == "" {
				return nil, fmt.Errorf("%s leads nowhere", host)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		},
		ExpectContinueTimeout: 5 * time.Second,
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dial opens a TLS connection with HTTP/1.1 for requests that a client would not send.
func (r *run) dial(host string) *tls.Conn {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.listeners[host], &tls.Config{RootCAs: poolOf(r.t, r.ca), ServerName: host, NextProtos: []string{"http/1.1"}})
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// send does a request and returns its answer with the body read.
func send(t testing.TB, c *http.Client, method, url, body string, header http.Header) (*http.Response, string) {
	t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, url, rd)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("body: %v after %q", err, data)
	}
	return res, string(data)
}

// bearer is the usual credential.
func bearer(host string) egress.Credential {
	return egress.Credential{Name: "key-of-" + host, Host: host, Header: "Authorization", Format: "Bearer {secret}"}
}

// simple is a run with one host, whose server is h.
func simple(t testing.TB, h2 bool, h http.HandlerFunc, change func(*runOptions)) *run {
	t.Helper()
	u := newUpstreams(t, hostA)
	o := runOptions{
		credentials: []egress.Credential{bearer(hostA)},
		secrets:     map[string]string{"key-of-" + hostA: plainSecret},
		to:          map[string]string{hostA: u.start(t, hostA, h2, h)},
		roots:       u.roots,
	}
	if change != nil {
		change(&o)
	}
	r := newRun(t, o)
	r.term.hosts[hostA].http1.Store(!h2) // is known after the first answer otherwise
	return r
}

// bothProtocols runs a test with every pair of HTTP/1.1 and HTTP/2 before and behind.
func bothProtocols(t *testing.T, f func(t *testing.T, down, up bool)) {
	for _, down := range []bool{false, true} {
		for _, up := range []bool{false, true} {
			t.Run(fmt.Sprintf("h2 from code=%v,h2 to upstream=%v", down, up), func(t *testing.T) { f(t, down, up) })
		}
	}
}

func noSecret(t testing.TB, what, text string, secrets ...string) {
	t.Helper()
	for _, s := range append(secrets, plainSecret) {
		if strings.Contains(text, s) {
			t.Errorf("%s holds the secret: %q", what, text)
		}
	}
}

func allBytes(n int) []byte { return bytes.Repeat([]byte("0123456789abcde\n"), n/16) }

func tlsClient(conn net.Conn, name string) *tls.Conn {
	return tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true}) // who is there does not matter
}

func tlsClientTrusting(conn net.Conn, name string, roots *x509.CertPool) *tls.Conn {
	return tls.Client(conn, &tls.Config{ServerName: name, RootCAs: roots})
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
