package relay

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A waiter waits until a connection has something to read, and reads nothing.
type waiter struct {
	raw syscall.RawConn
}

func newWaiter(c net.Conn) (waiter, bool) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return waiter{}, false
	}
	raw, err := t.SyscallConn()
	return waiter{raw}, err == nil
}

// wait returns how many bytes can be read without waiting: 0 at the end of the stream. It
// keeps the connection's read deadline.
func (w waiter) wait() (int, error) {
	var n int
	var failed error
	err := w.raw.Read(func(fd uintptr) bool {
		n, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if failed != nil || n > 0 {
			return true
		}
		// Nothing there: is it the end, an error, or not yet anything?
		var one [1]byte
		n, _, failed = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// socket is the connection below one that its listener has wrapped, to say another address than
// the socket's own.
func socket(c net.Conn) net.Conn {
	if w, ok := c.(interface{ NetConn() net.Conn }); ok {
		return w.NetConn()
	}
	return c
}

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// abort closes a connection so that the other side sees that it was reset.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		// It fails on a connection that is gone, which is as good.
		_ = t.SetLinger(0)
	}
	c.Close()
}

// Closing a socket that has something unread resets the connection, and what was written last
// may be lost with it. These bound how long, and for how much, the other side is listened to
// so that it can read its answer.
const (
	drainTime  = 500 * time.Millisecond
	drainBytes = 256 << 10
)

// closeAfter closes a connection on which an answer was written.
func closeAfter(c net.Conn) {
	defer c.Close()
	if closeWrite(c) != nil {
		return
	}
	c.SetReadDeadline(time.Now().Add(drainTime))
	buf := make([]byte, 4096)
	for read := 0; read < drainBytes; {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		read += n
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return unmap(ap)
}

// unmap gives an address its one spelling.
func unmap(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
