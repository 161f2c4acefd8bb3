package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// A LimitError ends a connection: one of the run's limits is reached.
type LimitError struct {
	Rule string // such as "bytes_up limit of 104857600"
}

func (e *LimitError) Error() string { return e.Rule }

// A budget is how many bytes all connections of a run may carry one way. Bytes are taken from
// it before they are carried, so that it holds exactly, however many take from it at a time.
type budget struct {
	limit int64
	what  string // the limit's name in a profile
	used  atomic.Int64
}

// take takes up to n, and returns how many it got: none if nothing is left.
func (b *budget) take(n int64) int64 {
	for {
		used := b.used.Load()
		got := min(n, b.limit-used)
		if got <= 0 {
			return 0
		}
		if b.used.CompareAndSwap(used, used+got) {
			return got
		}
	}
}

// give gives back what was taken and not carried.
func (b *budget) give(n int64) {
	if n != 0 {
		b.used.Add(-n)
	}
}

func (b *budget) spent() bool { return b.used.Load() >= b.limit }

func (b *budget) err() *LimitError {
	return &LimitError{Rule: fmt.Sprintf("%s limit of %d", b.what, b.limit)}
}

// A lane is one direction of a session: its bytes are counted for both.
type lane struct {
	s     *session
	total *budget
	n     *atomic.Int64
}

func (s *session) upward() lane   { return lane{s: s, total: s.r.up, n: &s.up} }
func (s *session) downward() lane { return lane{s: s, total: s.r.down, n: &s.down} }

func (l lane) carried(taken, carried int64) {
	l.total.give(taken - carried)
	if carried > 0 {
		l.n.Add(carried)
		l.s.touch()
	}
}

// write writes all of p, or as much of it as the limit allows. Where that is not all, the
// session is cut.
func (l lane) write(w io.Writer, p []byte) (int, error) {
	done := 0
	for done < len(p) {
		got := l.total.take(int64(len(p) - done))
		if got == 0 {
			err := l.total.err()
			l.s.cut(err)
			return done, err
		}
		n, err := w.Write(p[done : done+int(got)])
		l.carried(got, int64(n))
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// read reads, and takes from the limit what there was: a connection that says nothing takes
// nothing from the others. Where the limit has no room for all of it, what it has room for is
// returned with a [LimitError]. It is for the caller to cut the session then, once that is carried.
func (l lane) read(c net.Conn, p []byte) (int, error) {
	n, err := c.Read(p)
	got := int(l.total.take(int64(n)))
	l.carried(int64(got), int64(got))
	if got < n {
		return got, l.total.err()
	}
	return n, err
}

// A meter is a connection whose bytes are counted.
type meter struct {
	net.Conn
	reads, writes lane
	first         []byte // is read before anything else
	over          error  // the limit, when all that it had room for was read
}

func (m *meter) Read(p []byte) (int, error) {
	if m.over != nil {
		m.reads.s.cut(m.over)
		return 0, m.over
	}
	if len(m.first) == 0 {
		n, err := m.reads.read(m.Conn, p)
		if over := (*LimitError)(nil); !errors.As(err, &over) {
			return n, err
		}
		if m.over = err; n > 0 {
			return n, nil
		}
		return m.Read(p)
	}
	got := m.reads.total.take(int64(min(len(p), len(m.first))))
	if got == 0 && len(p) > 0 {
		err := m.reads.total.err()
		m.reads.s.cut(err)
		return 0, err
	}
	n := copy(p[:got], m.first)
	m.first = m.first[n:]
	m.reads.carried(got, int64(n))
	return n, nil
}

func (m *meter) Write(p []byte) (int, error) { return m.writes.write(m.Conn, p) }

// CloseWrite ends one direction, as [net.TCPConn.CloseWrite] does.
func (m *meter) CloseWrite() error { return closeWrite(m.Conn) }
