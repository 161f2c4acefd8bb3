package relay

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

// A stream has one socket outside, and shares the one inside with all others: [Relay.ServePacket]
// alone reads from that.
type stream struct {
	p     *packets
	key   streamKey
	up    net.Conn
	back  Sender
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
		if err := s.back.Send(buf[:n], s.key.client); err != nil {
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
