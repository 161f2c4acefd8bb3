package relay

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// maxChunk bounds what is carried in one step. A connection counts as idle where not even one
// step was made in the whole idle time.
const maxChunk = 128 << 10

// pump carries bytes both ways until both have ended. up and down are sent first.
func (s *session) pump(up, down []byte) {
	done := make(chan bool, 1)
	go func() { done <- s.carry(s.upstream, s.client, up, s.upward(), "client") }()
	whole := s.carry(s.client, s.upstream, down, s.downward(), "upstream")
	whole = <-done && whole
	if !whole {
		// One side has lost something, and sees it.
		abort(s.client)
		abort(s.upstream)
	}
}

// carry carries bytes one way: first, and then what src has. It reports whether all of it
// arrived. from says what src is.
func (s *session) carry(dst, src net.Conn, first []byte, l lane, from string) bool {
	if _, err := l.write(dst, first); err != nil {
		return false
	}
	var err error
	d, tcp := dst.(*net.TCPConn)
	waits, ok := newWaiter(src)
	if tcp && ok {
		err = splice(d, src, waits, l)
	} else {
		err = copyAll(dst, src, l)
	}
	var read *readError
	switch {
	case err == nil:
		// The other direction goes on.
		return closeWrite(dst) == nil
	case errors.As(err, &read):
		// src is gone both ways, and whoever waits for more from dst would wait for nothing.
		s.cut(errors.New(lost(read.err) + " by " + from))
	}
	// Where dst is gone, what it said last is still read, by the other direction, until its end.
	return false
}

// A readError is an error of the side that was read from.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

// splice moves bytes inside the kernel, as many at a time as are there.
func splice(dst *net.TCPConn, src net.Conn, waits waiter, l lane) error {
	for {
		there, err := waits.wait()
		if err != nil {
			return &readError{err}
		}
		if there == 0 {
			return nil
		}
		got := l.total.take(int64(min(there, maxChunk)))
		if got == 0 {
			err := l.total.err()
			l.s.cut(err)
			return err
		}
		// All of it is there, so that an error is one of dst.
		n, err := io.CopyN(dst, src, got)
		l.carried(got, n)
		if err != nil {
			return err
		}
	}
}

func copyAll(dst, src net.Conn, l lane) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.read(src, buf)
		if n > 0 {
			// Counted when it was read.
			if _, err := dst.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if over := (*LimitError)(nil); errors.As(err, &over) {
			l.s.cut(err)
			return err
		}
		if err != nil {
			return &readError{err}
		}
	}
}

// lost says in a few words how a connection ended.
func lost(err error) string {
	if errors.Is(err, unix.ETIMEDOUT) {
		return "timeout"
	}
	return "connection reset"
}
