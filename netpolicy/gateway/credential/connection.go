package credential

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

// A Target is what a connection of the run is for.
type Target struct {
	Name   string         // a host with a credential, in its one spelling
	Port   uint16         // that the code means; [Port] is the only one served
	Dest   netip.AddrPort // that the code connected to, for the record
	Client uint16         // port of the connecting socket, for the record
	Proxy  bool           // asked for through the explicit proxy: Dest is the proxy
}

// Serve serves a connection whose destination's port is the one that the code means. See ServeTarget.
func (t *Terminator) Serve(ctx context.Context, conn net.Conn, name string, dest netip.AddrPort, client uint16) error {
	return t.ServeTarget(ctx, conn, Target{Name: name, Port: dest.Port(), Dest: dest, Client: client})
}

// ServeTarget takes over a connection, from the first byte of its ClientHello on. It returns
// when the connection and all of its requests have ended, and has closed it and recorded its one
// flow then. When ctx ends, so does the connection. The error says why nothing could be served;
// requests that were refused or failed are no error. It holds no secret.
func (t *Terminator) ServeTarget(ctx context.Context, conn net.Conn, to Target) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &connection{t: t, to: to, from: addressOf(conn), start: time.Now(), decision: t.options.Policy.Host(to.Name, to.Port), ended: make(chan struct{}), cut: cancel}
	defer c.record()
	w := watch(conn, t.options.Idle)
	defer w.stop()
	stop := context.AfterFunc(ctx, func() { w.Close() })
	defer stop()

	if err := c.admit(); err != nil {
		return err
	}
	secure := tls.Server(w, c.host.tls)
	if err := c.handshake(ctx, secure); err != nil {
		return err
	}
	server := &http.Server{
		Handler:                      c,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            t.options.Header,
		IdleTimeout:                  t.options.Idle,
		MaxHeaderBytes:               t.options.HeaderBytes,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: t.options.Streams},
		ErrorLog:                     t.log,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				c.end()
			}
		},
	}
	// Serve returns when there is nothing left to accept, which is when the connection has ended.
	_ = server.Serve(&once{conn: secure, ended: c.ended})
	c.wait()
	return nil
}

// A connection is one of the run's, and the handler of its requests.
type connection struct {
	t        *Terminator
	host     *host
	to       Target
	from     netip.Addr // the connecting socket's
	decision egress.Decision
	start    time.Time
	cut      func() // ends the connection at once

	up, down, requests atomic.Int64

	mu       sync.Mutex
	upstream netip.AddrPort
	claimed  string // first host that was claimed and is another one
	trouble  string // first refusal or failure
	more     int    // how many followed
	sent     bool   // something went out
	refused  string // first refusal
	added    bool   // the credential went out

	active  int // requests; no new one begins when the connection has ended
	over    bool
	ended   chan struct{}
	drained chan struct{}
}

// Format says nothing of what the connection carries.
func (*connection) Format(f fmt.State, _ rune) { fmt.Fprint(f, "connection") }

// admit decides whether the connection is served at all.
func (c *connection) admit() error {
	c.host = c.t.hosts[c.to.Name]
	var why string
	switch {
	case !c.decision.Allowed:
		why = c.decision.Rule
	case c.host == nil:
		why = fmt.Sprintf("%s has no credential in this run", quoted(c.to.Name))
	case c.to.Port != Port:
		why = fmt.Sprintf("credential %s of %s is added on port %d alone, not on %d", c.host.injector.credential.Name, c.to.Name, Port, c.to.Port)
	default:
		return nil
	}
	c.refuse(why, "")
	return errors.New(why)
}

func (c *connection) handshake(ctx context.Context, conn *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, c.t.options.Handshake)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	if err == nil {
		// A resumed session asks for no certificate.
		if claimed := conn.ConnectionState().ServerName; claimed != "" && !sameHost(claimed, c.to.Name) {
			err = &otherName{claimed, c.to.Name}
		}
	}
	if other := (*otherName)(nil); errors.As(err, &other) {
		c.refuse(other.Error(), other.claimed)
		return other
	}
	if remote := (*net.OpError)(nil); errors.As(err, &remote) && remote.Op == "remote error" {
		err = fmt.Errorf("TLS with the code: %w: does it use the run's trust store (SSL_CERT_FILE)?", err)
	} else if err != nil {
		err = fmt.Errorf("TLS with the code: %w", err)
	}
	if err != nil {
		c.fail(c.t.text(err))
	}
	return err
}

// enter counts a request in; false: the connection has ended.
func (c *connection) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.active++
	return true
}

func (c *connection) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if c.active == 0 && c.drained != nil {
		close(c.drained)
	}
}

// end is called once, when the server is done with the connection.
func (c *connection) end() {
	select {
	case <-c.ended:
	default:
		close(c.ended)
	}
}

// wait returns when no request is left. New ones can't begin.
func (c *connection) wait() {
	c.mu.Lock()
	c.over = true
	if c.active == 0 {
		c.mu.Unlock()
		return
	}
	c.drained = make(chan struct{})
	c.mu.Unlock()
	<-c.drained
}

// refuse notes a refusal, and what host was claimed if that was why: nothing counts for more.
func (c *connection) refuse(why, claimed string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == "" || c.claimed == "" && claimed != "" {
		c.refused = why
	}
	if c.claimed == "" {
		c.claimed = claimed
	}
	c.note(why)
}

// forbid notes that the host has no address that may be connected to, and the first that it has.
func (c *connection) forbid(rule string, at netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == "" {
		c.refused = rule
	}
	if !c.upstream.IsValid() {
		c.upstream = at
	}
}

func (c *connection) fail(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(why)
}

func (c *connection) note(why string) {
	if c.trouble == "" {
		c.trouble = why
	} else {
		c.more++
	}
}

// addUp counts bytes towards the outside before they go.
func (c *connection) addUp(n int64) error {
	if err := c.t.options.Meter.AddUp(n); err != nil {
		return &overCap{err}
	}
	c.up.Add(n)
	return nil
}

// addDown counts bytes towards the run before they go.
func (c *connection) addDown(n int64) error {
	if err := c.t.options.Meter.AddDown(n); err != nil {
		return &overCap{err}
	}
	c.down.Add(n)
	return nil
}

// An overCap is a cap of the run that was reached.
type overCap struct{ err error }

func (e *overCap) Error() string { return e.err.Error() }
func (e *overCap) Unwrap() error { return e.err }

// credential is the name of the host's.
func (c *connection) credential() string { return c.host.injector.credential.Name }

// hit records what was taken out of an answer.
func (c *connection) hit(where string, hits Hits) {
	for name, n := range hits {
		c.t.options.Recorder.Scrub(audit.Scrub{Credential: name, Name: audit.Text(c.to.Name), Where: where, Count: n})
	}
}

// record gives the connection's one flow.
func (c *connection) record() {
	c.mu.Lock()
	f := audit.Flow{
		Protocol: "tcp", Address: c.to.Dest.Addr(), Port: c.to.Dest.Port(), From: c.from, Client: c.to.Client, Proxy: c.to.Proxy,
		Name: audit.Text(c.to.Name), Claimed: audit.Text(clip(c.claimed)),
		Decision: audit.Allowed, Rule: c.decision.Rule, Upstream: c.upstream,
		Requests: c.requests.Load(), BytesUp: c.up.Load(), BytesDown: c.down.Load(),
		DurationMS: float64(time.Since(c.start)) / float64(time.Millisecond), Error: c.trouble,
	}
	// What claimed another host ended the connection, whatever went out before.
	if c.refused != "" && (!c.sent || c.claimed != "") {
		f.Decision, f.Rule = audit.Blocked, c.refused
	}
	if c.added {
		f.Credential = c.host.injector.credential.Name
	}
	if c.more > 0 {
		f.Error += fmt.Sprintf(" (and %d more)", c.more)
	}
	c.mu.Unlock()
	c.t.options.Recorder.Flow(f)
}

// addressOf is the other side's.
func addressOf(conn net.Conn) netip.Addr {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

func clip(s string) string { return s[:min(len(s), 255)] }
