package relay

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

// A stream has one socket outside, and shares the one inside with all streams to its
// destination.
type stream struct {
	p     *packets
	key   streamKey
	up    net.Conn
	back  *reply
	start time.Time
	stop  func() bool

	mu    sync.Mutex
	flow  audit.Flow
	cause error // why it ended
}

// end closes the stream's socket; what receives from it does the rest.
func (s *stream) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
	}
	s.up.Close()
}

// send carries one datagram to the outside.
func (s *stream) send(data []byte) {
	s.touch()
	n := int64(len(data))
	if got := s.p.r.up.take(n); got < n {
		s.p.r.up.give(got)
		s.end(s.p.r.up.err())
		return
	}
	// Counted first: the answer, and with it the stream's end, may be faster.
	s.count(n)
	if _, err := s.up.Write(data); err != nil {
		s.count(-n)
		s.p.r.up.give(n)
		s.fail(err)
	}
}

func (s *stream) count(up int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flow.BytesUp += up
}

func (s *stream) touch() { s.up.SetReadDeadline(time.Now().Add(s.p.r.PacketIdle)) }

// fail notes an error that does not end a stream: the next datagram may arrive.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow.Error == "" && s.cause == nil {
		s.flow.Error = s.p.r.reason(err)
	}
}

// receive carries datagrams to the run until the stream has ended, and records it.
func (s *stream) receive() {
	defer s.p.r.release()
	down := s.p.r.down
	buf := make([]byte, maxPacket)
	s.touch()
	for {
		n, err := s.up.Read(buf)
		if errors.Is(err, unix.ECONNREFUSED) {
			s.fail(err)
			continue
		}
		if err != nil {
			if !isTimeout(err) && !errors.Is(err, net.ErrClosed) {
				s.fail(err)
			}
			break
		}
		s.touch()
		if got := down.take(int64(n)); got < int64(n) {
			down.give(got)
			s.end(down.err())
			break
		}
		if _, err := s.back.conn.WriteTo(buf[:n], net.UDPAddrFromAddrPort(s.key.client)); err != nil {
			down.give(int64(n))
			s.fail(err)
			continue
		}
		s.mu.Lock()
		s.flow.BytesDown += int64(n)
		s.mu.Unlock()
	}
	s.p.mu.Lock()
	delete(s.p.streams, s.key)
	s.p.drop(s.back)
	s.p.mu.Unlock()
	s.stop()
	s.up.Close()
	s.record()
}

func (s *stream) record() {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flow
	var limit *LimitError
	switch {
	case errors.As(s.cause, &limit):
		f.Decision, f.Rule = audit.Blocked, limit.Rule
	case s.cause != nil && f.Error == "":
		f.Error = s.cause.Error()
	}
	f.DurationMS = milliseconds(time.Since(s.start))
	s.p.r.Recorder.Flow(f)
}

// A reply is the socket inside the run from which a destination's answers come.
type reply struct {
	dest  netip.AddrPort
	conn  net.PacketConn
	users int
}

// reply returns the socket for a destination. It is called with the lock.
func (p *packets) reply(dest netip.AddrPort) (*reply, error) {
	if r, ok := p.replies[dest]; ok {
		r.users++
		return r, nil
	}
	conn, err := p.r.Reply(dest)
	if err != nil {
		return nil, err
	}
	r := &reply{dest: dest, conn: conn, users: 1}
	p.replies[dest] = r
	p.wg.Go(func() { p.listen(r) })
	return r, nil
}

// drop gives a reply back. It is called with the lock.
func (p *packets) drop(r *reply) {
	if r.users--; r.users == 0 {
		delete(p.replies, r.dest)
		r.conn.Close()
	}
}

// listen takes what is sent to a reply's socket: it is bound to the destination, so that the
// kernel may prefer it to the one that every destination leads to.
func (p *packets) listen(r *reply) {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := r.conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Of a datagram that was sent: the run's socket is gone.
			if errors.Is(err, unix.ECONNREFUSED) {
				continue
			}
			return
		}
		p.handle(streamKey{client: addrPort(from), dest: r.dest}, buf[:n])
	}
}
