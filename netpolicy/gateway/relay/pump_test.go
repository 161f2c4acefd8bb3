package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

const raw = "203.0.113.9:5432" // where everything is passed on

func TestHalfClose(t *testing.T) {
	w := newWorld(t)
	w.dialer.set(raw, w.tcpServer(func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "got %d", len(b))
		c.CloseWrite()
	}))
	c := w.dial(raw)
	_, _ = c.Write(make([]byte, 3<<20))
	c.CloseWrite()
	if got := readAll(t, c); got != "got 3145728" {
		t.Errorf("%q", got)
	}
	if f := w.allowed(); f.BytesUp != 3<<20 || f.BytesDown != 11 || f.Error != "" {
		t.Errorf("flow %+v", f)
	}
	// And the other way round: the server ends first.
	got := make(chan []byte, 1)
	w.dialer.set(raw, w.tcpServer(func(c *net.TCPConn) {
		fmt.Fprint(c, "bye")
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- b
	}))
	c = w.dial(raw)
	if s := readAll(t, c); s != "bye" {
		t.Errorf("%q", s)
	}
	fmt.Fprint(c, "still here")
	c.CloseWrite()
	if b := <-got; string(b) != "still here" {
		t.Errorf("%q", b)
	}
	w.allowed()
	w.quiet()
}

func TestManyBytesBothWays(t *testing.T) {
	w := newWorld(t)
	w.dialer.set(raw, w.tcpServer(echo))
	c := w.dial(raw)
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	go func() { _, _ = c.Write(data); c.CloseWrite() }()
	sum := sha256.New()
	if n, err := io.Copy(sum, c); n != int64(len(data)) || err != nil {
		t.Fatal(n, err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Error("other bytes come back")
	}
	if f := w.allowed(); f.BytesUp != int64(len(data)) || f.BytesDown != int64(len(data)) {
		t.Errorf("flow %+v", f)
	}
}

func TestResets(t *testing.T) {
	w := newWorld(t)
	seen := make(chan error, 1)
	w.dialer.set(raw, w.tcpServer(func(c *net.TCPConn) {
		fmt.Fprint(c, "x")
		_, err := io.Copy(io.Discard, c)
		seen <- err
	}))
	c := w.dial(raw)
	_, _ = io.ReadFull(c, make([]byte, 1))
	abort(c)
	if err := <-seen; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server sees %v", err)
	}
	if f := w.allowed(); f.Error != "connection reset by client" {
		t.Errorf("flow %+v", f)
	}
	w.dialer.set(raw, w.tcpServer(func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		abort(c)
	}))
	c = w.dial(raw)
	fmt.Fprint(c, "x")
	isReset(t, c)
	if f := w.allowed(); f.Error != "connection reset by upstream" {
		t.Errorf("flow %+v", f)
	}
	w.quiet()
}

func TestCannotConnect(t *testing.T) {
	w := newWorld(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	w.dialer.set(raw, closed.Addr().String())
	w.isReset(raw)
	if f := w.allowed(); f.Error != "connection refused" {
		t.Errorf("flow %+v", f)
	}
	w.isReset("203.0.113.10:5432")
	if f := w.allowed(); f.Error != "no such name" {
		t.Errorf("flow %+v", f)
	}
}

// led is the error of a dialer for a name that has forbidden addresses alone.
type led struct{ error }

func (led) Forbidden() (string, netip.AddrPort) {
	return "leads elsewhere", netip.MustParseAddrPort("10.0.0.1:5432")
}

func TestForbiddenIsBlocked(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Dialer = failing{fmt.Errorf("dial: %w", led{errors.New("forbidden")})} })
	w.isReset(raw)
	f := w.blocked("leads elsewhere")
	if f.Error != "dial: forbidden" || f.Upstream.String() != "10.0.0.1:5432" {
		t.Errorf("flow %+v", f)
	}
}

type failing struct{ err error }

func (f failing) Dial(context.Context, string, uint16) (net.Conn, netip.AddrPort, error) {
	return nil, netip.AddrPort{}, f.err
}

func (f failing) DialAddr(context.Context, string, netip.AddrPort) (net.Conn, error) {
	return nil, f.err
}

func TestReason(t *testing.T) {
	r := &Relay{}
	for want, err := range map[string]error{
		"timeout":     fmt.Errorf("dial: %w", context.DeadlineExceeded),
		"unreachable": &net.OpError{Err: unix.EHOSTUNREACH},
		"?x?":         errors.New("\x1bx\n"),
	} {
		if got := r.reason(err); got != want {
			t.Errorf("%v is %q, should be %q", err, got, want)
		}
	}
	r.Reason = func(error) string { return "only forbidden addresses" }
	if got := r.reason(io.EOF); got != "only forbidden addresses" {
		t.Errorf("%q", got)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t, func(w *world) { w.opts.Limits.Idle = 2 * time.Second })
	w.dialer.set(raw, w.tcpServer(echo))
	c := w.dial(raw)
	// Whoever says something now and then is not idle.
	for range 8 {
		fmt.Fprint(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	isReset(t, c)
	if f := w.allowed(); f.Error != "idle for 2s" {
		t.Errorf("flow %+v", f)
	}
}

func TestRunEnds(t *testing.T) {
	w := newWorld(t)
	w.dialer.set(raw, w.tcpServer(echo))
	c := w.dial(raw)
	fmt.Fprint(c, "x")
	_, _ = io.ReadFull(c, make([]byte, 1))
	silent := w.dial("198.18.0.1:443")
	proxy := w.dial(proxyAddr)
	fmt.Fprint(proxy, "CONN")
	// What is accepted after the end has no record.
	for deadline := time.Now().Add(10 * time.Second); len(w.relay.slots) < 3 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	w.stop()
	isReset(t, c)
	isReset(t, silent)
	isReset(t, proxy)
	for range 3 {
		if f := w.flow(); f.Error != "the run ended" {
			t.Errorf("flow %+v", f)
		}
	}
	w.quiet()
}

// The limits hold to the byte, for all connections together.
func TestByteLimits(t *testing.T) {
	for _, up := range []bool{true, false} {
		w := newWorld(t, func(w *world) {
			w.opts.Limits.BytesUp, w.opts.Limits.BytesDown = 1<<40, 1<<40
			if up {
				w.opts.Limits.BytesUp = 1 << 20
			} else {
				w.opts.Limits.BytesDown = 1 << 20
			}
		})
		rule := map[bool]string{true: "bytes_up limit of 1048576", false: "bytes_down limit of 1048576"}[up]
		w.dialer.set(raw, w.tcpServer(func(c *net.TCPConn) {
			if up {
				_, _ = io.Copy(io.Discard, c)
			} else if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
				_, _ = io.Copy(c, strings.NewReader(strings.Repeat("x", 4<<20)))
			}
		}))
		var wg sync.WaitGroup
		for _, c := range []*net.TCPConn{w.dial(raw), w.dial(raw), w.dial(raw), w.dial(raw)} {
			wg.Go(func() {
				defer c.Close()
				if up {
					_, _ = c.Write(make([]byte, 4<<20))
				} else {
					fmt.Fprint(c, "x")
					_, _ = io.Copy(io.Discard, c)
				}
			})
		}
		wg.Wait()
		var carried int64
		for range 4 {
			f := w.blocked(rule)
			if up {
				carried += f.BytesUp
			} else {
				carried += f.BytesDown
			}
		}
		if carried != 1<<20 {
			t.Errorf("%d bytes were carried", carried)
		}
		w.isReset(raw)
		w.blocked(rule)
		w.quiet()
	}
}

// The limit holds where HTTP is read, too.
func TestByteLimitHTTP(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Limits.BytesUp = 10000 })
	httpServer(w, show)
	c := w.dial("198.18.0.1:80")
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 20000\r\n\r\n%s", strings.Repeat("x", 20000))
	_, _ = io.Copy(io.Discard, c)
	if f := w.blocked("bytes_up limit of 10000"); f.BytesUp != 10000 {
		t.Errorf("flow %+v", f)
	}
}

func TestConnectionLimit(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Limits.Connections = 2 })
	w.dialer.set(raw, w.tcpServer(echo))
	var held []*net.TCPConn
	for range 2 {
		c := w.dial(raw)
		fmt.Fprint(c, "x")
		_, _ = io.ReadFull(c, make([]byte, 1))
		held = append(held, c)
	}
	const flood = turnedSingly + 50
	for range flood {
		w.isReset(raw)
	}
	for range turnedSingly {
		w.blocked("connections limit of 2")
	}
	held[0].Close()
	w.allowed()
	// There is room again, a moment after the record.
	for deadline := time.Now().Add(5 * time.Second); len(w.relay.slots) > 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	c := w.dial(raw)
	fmt.Fprint(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	w.stop()
	counted := false
	for range 3 {
		if f := w.flow(); f.Decision == audit.Blocked {
			counted = strings.Contains(f.Error, "the last of 50 that were turned away")
		}
	}
	if !counted {
		t.Error("the others are not counted")
	}
	w.quiet()
}
