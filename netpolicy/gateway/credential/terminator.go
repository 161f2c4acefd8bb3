package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"proctor/netpolicy/egress"
)

// A Policy is what a Terminator asks of the run's policy.
type Policy interface {
	Host(name string, port uint16) egress.Decision
	// Credential returns the credential of exactly this host, or nil.
	Credential(name string) *egress.Credential
}

// A Dialer connects to a granted name. It checks the addresses that it connects to.
type Dialer interface {
	Dial(ctx context.Context, name string, port uint16) (net.Conn, netip.AddrPort, error)
}

// A Meter counts what a run sends and gets, and fails when the run's cap is reached: what was
// to be counted is not sent then. It is called from many goroutines.
type Meter interface {
	AddUp(n int64) error
	AddDown(n int64) error
}

// Port is the one port that credentials are added on.
const Port = 443

// Options of a Terminator. All fields without a default must be set.
type Options struct {
	Authority *Authority
	Policy    Policy
	// Secrets returns a credential's secret by the credential's name. It is called in New alone.
	Secrets  func(credential string) (Secret, bool)
	Dialer   Dialer
	Roots    *x509.CertPool // who may vouch for an upstream: the system's authorities
	Recorder Recorder

	Meter       Meter         // default: no caps
	Handshake   time.Duration // for TLS with the code, and with an upstream; default 10 s
	Header      time.Duration // for a request's header; default 30 s
	Idle        time.Duration // after which a silent connection is closed; default 5 min
	HeaderBytes int           // of a request's, and of an answer's header; default 64 KiB
	Streams     int           // requests at a time on an HTTP/2 connection; default 100
	Connections int           // to one host at a time, of HTTP/1.1 and as many of HTTP/2; requests wait for one; default 100
	Late        time.Duration // how long a few bytes that may begin a secret are held back; default 20 ms
}

func (o *Options) setDefaults() error {
	for what, missing := range map[string]bool{
		"Authority": o.Authority == nil, "Policy": o.Policy == nil, "Secrets": o.Secrets == nil,
		"Dialer": o.Dialer == nil, "Roots": o.Roots == nil, "Recorder": o.Recorder == nil,
	} {
		if missing {
			return fmt.Errorf("terminator: option %s is not set", what)
		}
	}
	if o.Meter == nil {
		o.Meter = unmetered{}
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&o.Handshake, 10 * time.Second}, {&o.Header, 30 * time.Second}, {&o.Idle, 5 * time.Minute}, {&o.Late, 20 * time.Millisecond}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if o.HeaderBytes <= 0 {
		o.HeaderBytes = 64 << 10
	}
	if o.Connections <= 0 {
		o.Connections = 100
	}
	if o.Streams <= 0 {
		o.Streams = 100
	}
	return nil
}

type unmetered struct{}

func (unmetered) AddUp(int64) error   { return nil }
func (unmetered) AddDown(int64) error { return nil }

// A Terminator serves the connections of one run to its hosts with a credential. It is safe for
// use by many goroutines.
type Terminator struct {
	options   Options
	hosts     map[string]*host
	scrub     *Scrubber       // of all the run's secrets: two of its hosts may be one upstream
	transport *http.Transport // for HTTP/2, and all that direct is not for
	direct    *direct

	decoders    *semaphore.Weighted // memory of decoders, in bytes
	decoderWait time.Duration
	beginnings  *beginnings

	log *log.Logger
}

// A host is what is known of one name before anybody connects.
type host struct {
	injector *injector
	tls      *tls.Config
	http1    atomic.Bool // the upstream speaks HTTP/1.1, and no HTTP/2
}

// Format hides the secrets from every verb.
func (*host) Format(f fmt.State, _ rune) { fmt.Fprint(f, Redacted) }

// Format hides the secrets from every verb.
func (Terminator) Format(f fmt.State, _ rune) { fmt.Fprint(f, "credential.Terminator") }

// New makes one for every host of the authority. Each must have a credential, whose secret is at
// least [MinSecret] bytes long and can go where the credential says; an error names the
// credential. Close it after its last connection.
func New(o Options) (*Terminator, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	t := &Terminator{options: o, hosts: map[string]*host{}, decoders: semaphore.NewWeighted(decoderBytes), decoderWait: decoderWait, beginnings: &beginnings{seen: map[beginningOf]int{}}, log: log.New(io.Discard, "", 0)}
	var owners []string
	var all []needle
	for _, name := range o.Authority.Hosts() {
		c := o.Policy.Credential(name)
		if c == nil {
			return nil, fmt.Errorf("terminator: host %q has no credential: leave it out of the authority", name)
		}
		s, ok := o.Secrets(c.Name)
		if !ok {
			return nil, fmt.Errorf("credential %q: its secret is missing", c.Name)
		}
		secret := string(s.Reveal())
		in, err := newInjector(c, secret)
		if err != nil {
			return nil, err
		}
		list, err := needles(c.Name, len(owners), secret, in.whole()...)
		if err != nil {
			return nil, err
		}
		owners, all = append(owners, c.Name), append(all, list...)
		leaf, err := o.Authority.Leaf(name)
		if err != nil {
			return nil, err
		}
		t.hosts[name] = &host{injector: in, tls: serverConfig(name, leaf)}
	}
	t.scrub = newScrubber(owners, all)
	upstreams := &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(len(owners))}
	t.direct = &direct{
		dial: func(ctx context.Context, name string) (*upstreamConn, error) { return t.connect(ctx, name, Port) },
		tls:  upstreams, handshake: o.Handshake, headerBytes: o.HeaderBytes, idle: map[string][]*directConn{}, most: o.Connections, used: map[string]chan struct{}{},
	}
	t.transport = &http.Transport{
		DialContext:            t.dial,
		TLSClientConfig:        upstreams,
		TLSHandshakeTimeout:    o.Handshake,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		MaxConnsPerHost:        o.Connections,
		IdleConnTimeout:        maxIdleTime,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: int64(o.HeaderBytes),
		ReadBufferSize:         16 << 10,
		WriteBufferSize:        16 << 10,
	}
	return t, nil
}

// Close closes the upstream connections that nothing uses any more.
func (t *Terminator) Close() {
	t.transport.CloseIdleConnections()
	t.direct.close()
}

// An otherName is a handshake that asks for another host than the connection is for.
type otherName struct{ claimed, name string }

func (e *otherName) Error() string {
	return fmt.Sprintf("TLS asks for %s on a connection for %s", quoted(e.claimed), e.name)
}

func serverConfig(name string, leaf *tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName != "" && !sameHost(hello.ServerName, name) {
				return nil, &otherName{hello.ServerName, name}
			}
			return leaf, nil
		},
	}
}

// dial connects to an upstream for the transport, which then does TLS on the connection.
func (t *Terminator) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || t.hosts[name] == nil {
		return nil, errors.New("not an upstream of this run")
	}
	conn, err := t.connect(ctx, name, uint16(port))
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (t *Terminator) connect(ctx context.Context, name string, port uint16) (*upstreamConn, error) {
	conn, to, err := t.options.Dialer.Dial(ctx, name, port)
	if err != nil {
		return nil, err
	}
	return &upstreamConn{conn, to}, nil
}

// An upstreamConn knows the address that was dialled.
type upstreamConn struct {
	net.Conn
	to netip.AddrPort
}

// text returns an error as it may be shown: without secrets, on one line and bounded.
func (t *Terminator) text(err error) string {
	return oneLine(t.scrub.String(err.Error(), nil))
}

func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 500 {
		s = string(r[:500]) + "..."
	}
	return s
}
