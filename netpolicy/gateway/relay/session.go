package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

// A session is one connection of a run, from when it was accepted until it is recorded.
type session struct {
	r      *Relay
	ctx    context.Context
	client net.Conn
	dest   netip.AddrPort // what the code connected to
	start  time.Time
	buf    []byte // what the client has said, and nobody has read yet
	flow   audit.Flow
	handed bool // to a terminator, which records it
	// websocket is whether the grant that decided lets requests switch to it.
	websocket bool

	up, down atomic.Int64
	last     atomic.Int64 // when a byte was carried, ns since start

	mu       sync.Mutex
	upstream net.Conn
	cause    error // why it was cut
}

var errEnded = errors.New("the run ended")

// run serves one connection and records it.
func (r *Relay) run(ctx context.Context, c net.Conn, handle func(*session)) {
	s := newSession(ctx, r, c)
	ctx, cancel := context.WithCancel(ctx)
	s.ctx = ctx
	stop := context.AfterFunc(ctx, func() { s.cut(errEnded) })
	idle := s.watchIdle()

	handle(s)

	stop()
	idle.stop()
	cancel()
	s.close()
	s.record()
}

func newSession(ctx context.Context, r *Relay, c net.Conn) *session {
	s := &session{r: r, ctx: ctx, client: socket(c), dest: addrPort(c.LocalAddr()), start: time.Now()}
	s.flow = audit.Flow{
		Protocol: "tcp",
		Address:  s.dest.Addr(),
		Port:     s.dest.Port(),
		From:     addrPort(c.RemoteAddr()).Addr(),
		Client:   addrPort(c.RemoteAddr()).Port(),
		Decision: audit.Blocked,
	}
	return s
}

// block says why the connection is not served, or not any further. The rule may quote what the
// client said, of which not much is kept.
func (s *session) block(rule string) {
	s.flow.Decision = audit.Blocked
	s.flow.Rule = printable(rule)
}

// decide takes over what the policy said.
func (s *session) decide(d egress.Decision) bool {
	s.flow.Rule = d.Rule
	s.flow.Decision = audit.Blocked
	if d.Allowed {
		s.flow.Decision = audit.Allowed
		s.websocket = d.Grant != nil && d.Grant.WebSocket
	}
	return d.Allowed
}

// maxClaimed bounds what is kept of a name that a client claims: a name has at most 255 bytes.
const maxClaimed = 255

func (s *session) claim(name string) { s.flow.Claimed = audit.Text(name[:min(len(name), maxClaimed)]) }

func (s *session) fail(reason string) {
	if s.flow.Error == "" {
		s.flow.Error = reason
	}
}

// lostClient notes an error of the client's connection, unless that was cut here.
func (s *session) lostClient(err error) {
	if s.cutBy() == nil {
		s.fail(lost(err) + " by client")
	}
}

func (s *session) touch() { s.last.Store(int64(time.Since(s.start))) }

// cut ends the connection at once, on both sides, and keeps the first reason for it.
func (s *session) cut(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
	}
	abort(s.client)
	if s.upstream != nil {
		abort(s.upstream)
	}
}

// cutBy returns why the connection was cut, or nil.
func (s *session) cutBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Close()
	if s.upstream != nil {
		s.upstream.Close()
	}
}

// record tells what became of the connection.
func (s *session) record() {
	if s.handed {
		return
	}
	var limit *LimitError
	switch cause := s.cutBy(); {
	case errors.As(cause, &limit):
		s.block(limit.Rule)
	case cause != nil:
		s.fail(cause.Error())
	}
	s.flow.BytesUp, s.flow.BytesDown = s.up.Load(), s.down.Load()
	s.flow.DurationMS = milliseconds(time.Since(s.start))
	s.r.Recorder.Flow(s.flow)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// connect connects to what t names, unless that is done already. Its error is recorded.
func (s *session) connect(t target) error {
	if s.upstream != nil { // set by this goroutine alone
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.r.DialTimeout)
	defer cancel()
	var c net.Conn
	var err error
	to := netip.AddrPortFrom(t.addr, t.port)
	if t.name != "" {
		c, to, err = s.r.Dialer.Dial(ctx, t.name, t.port)
	} else {
		c, err = s.r.Dialer.DialAddr(ctx, "tcp", to)
	}
	if err != nil {
		s.fail(s.r.reason(err))
		if f, ok := errors.AsType[forbidden](err); ok {
			if rule, at := f.Forbidden(); rule != "" {
				s.block(rule)
				s.flow.Upstream = unmap(at)
			}
		}
		return err
	}
	s.flow.Upstream = unmap(to)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstream = c
	if s.cause != nil {
		abort(c)
		return s.cause
	}
	s.touch()
	return nil
}

// idleWatch cuts a session on which nothing was carried for a while.
type idleWatch struct {
	mu    sync.Mutex
	timer *time.Timer
	done  bool
}

func (s *session) watchIdle() *idleWatch {
	w := new(idleWatch)
	limit := s.r.Limits.Idle
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limit, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.done {
			return
		}
		silent := time.Since(s.start) - time.Duration(s.last.Load())
		if silent >= limit {
			s.cut(fmt.Errorf("idle for %s", limit))
			return
		}
		w.timer.Reset(limit - silent)
	})
	return w
}

func (w *idleWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.timer.Stop()
}
