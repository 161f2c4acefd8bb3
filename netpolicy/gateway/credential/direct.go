package credential

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a kept connection to an upstream may cost. The numbers are those of the [http.Transport].
const (
	maxIdle     = 100 // connections of one host that no request uses
	maxIdleTime = 90 * time.Second
	// directBody is how long a body may be to be sent before the answer is read: the kernel has
	// room for it, whether the upstream reads or not.
	directBody = 32 << 10
)

// A direct is a client of upstreams that speak HTTP/1.1. It serves a request on the goroutine
// that asks, where an [http.Transport] has two more for each connection and hands the request
// and the answer over between them: that costs more than the rest of a small request does.
type direct struct {
	dial        func(ctx context.Context, name string) (*upstreamConn, error)
	tls         *tls.Config // ServerName is set for each connection
	handshake   time.Duration
	headerBytes int

	mu     sync.Mutex
	closed bool
	idle   map[string][]*directConn // the last one was used last
	most   int                      // connections to one host that requests use at a time
	used   map[string]chan struct{} // those, by host
}

// A directConn is used by one request at a time. A body's reader returns it when it met the end.
type directConn struct {
	owner *direct
	name  string
	conn  *tls.Conn
	raw   syscall.RawConn // nil: not known
	w     *bufio.Writer
	r     *bufio.Reader
	left  int64 // of a header, while one is read
	began bool  // something of the answer was read
	timer *time.Timer
}

// suits reports whether a request can be served this way.
func (*direct) suits(out *http.Request) bool {
	return out.ContentLength >= 0 && out.ContentLength <= directBody && out.Trailer == nil &&
		out.Header["Upgrade"] == nil && out.Header["Expect"] == nil
}

var errLongHeader = errors.New("the header of its answer is too long")

// Read is what the buffered reader reads by: an answer's header has a bound, its body none here.
func (c *directConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errLongHeader
	}
	if c.left > 0 {
		p = p[:min(int64(len(p)), c.left)]
	}
	n, err := c.conn.Read(p)
	c.began = c.began || n > 0
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

// roundTrip sends a request and reads the header of its answer. connected is told of each
// connection before something goes out on it, informational of each 1xx answer. The caller must
// close the answer's body; that closes the connection unless the body's end was read. When ctx
// ends before, the connection is closed. Where the host has as many connections as it may, it
// waits for one.
func (d *direct) roundTrip(ctx context.Context, out *http.Request, connected func(net.Conn), informational func(int, textproto.MIMEHeader) error) (res *http.Response, err error) {
	slot := d.slot(out.URL.Host)
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		if err != nil {
			<-slot
		}
	}()
	c := d.kept(out.URL.Host)
	for {
		reused := c != nil
		if !reused {
			if c, err = d.connect(ctx, out.URL.Host); err != nil {
				return nil, err
			}
		}
		connected(c.conn)
		stop := context.AfterFunc(ctx, func() { c.close() })
		res, err = c.exchange(out, informational)
		if err == nil {
			res.Body = &directBodyReader{ReadCloser: res.Body, c: c, stop: stop, slot: slot, reuse: !res.Close, ended: res.Body == http.NoBody}
			return res, nil
		}
		stop()
		c.close()
		// The upstream may have closed it at the moment that it was taken. What can be asked twice is.
		if !reused || c.began || out.ContentLength != 0 || !safe(out.Method) || ctx.Err() != nil {
			return nil, err
		}
		c = nil
	}
}

// slot is what requests to a host wait for.
func (d *direct) slot(name string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used[name] == nil {
		d.used[name] = make(chan struct{}, d.most)
	}
	return d.used[name]
}

// safe is RFC 9110, section 9.2.1.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

func (c *directConn) exchange(out *http.Request, informational func(int, textproto.MIMEHeader) error) (*http.Response, error) {
	c.began = false
	sent := out.Write(c.w)
	if sent == nil {
		sent = c.w.Flush()
	}
	// An upstream that refuses a body answers before it has all of it.
	c.left = int64(c.owner.headerBytes)
	for {
		res, err := http.ReadResponse(c.r, out)
		if err != nil {
			if sent != nil {
				err = sent
			}
			return nil, err
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("answered 101 with a protocol that was not asked for")
		}
		if res.StatusCode < 100 || res.StatusCode >= 200 {
			c.left = -1
			res.Close = res.Close || sent != nil
			return res, nil
		}
		if err := informational(res.StatusCode, textproto.MIMEHeader(res.Header)); err != nil {
			return nil, err
		}
	}
}

// connect makes a new connection.
func (d *direct) connect(ctx context.Context, name string) (*directConn, error) {
	conn, err := d.dial(ctx, name)
	if err != nil {
		return nil, err
	}
	config := d.tls.Clone()
	config.ServerName, config.NextProtos = name, []string{"http/1.1"}
	c := &directConn{owner: d, name: name, conn: tls.Client(conn, config), left: -1}
	ctx, cancel := context.WithTimeout(ctx, d.handshake)
	defer cancel()
	if err := c.conn.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	if s, ok := conn.Conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.w, c.r = bufio.NewWriterSize(c.conn, 16<<10), bufio.NewReaderSize(c, 16<<10)
	return c, nil
}

// kept takes a connection that no request uses, or nil.
func (d *direct) kept(name string) *directConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	for list := d.idle[name]; len(list) > 0; {
		c := list[len(list)-1]
		list = list[:len(list)-1]
		d.idle[name] = list
		c.timer.Stop()
		if c.quiet() {
			return c
		}
		c.close()
	}
	return nil
}

// close closes the connection without TLS's farewell, which could be waited for.
func (c *directConn) close() { _ = c.conn.NetConn().Close() }

// quiet reports whether nothing came in since the last answer: neither the connection's end nor
// what would be taken for an answer.
func (c *directConn) quiet() bool {
	if c.raw == nil {
		return true
	}
	quiet := false
	var b [1]byte
	err := c.raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && quiet
}

// keep takes a connection back.
func (d *direct) keep(c *directConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.idle[c.name]
	if d.closed || len(list) >= min(maxIdle, d.most) {
		c.close()
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(maxIdleTime, func() { d.expire(c) })
	} else {
		c.timer.Reset(maxIdleTime)
	}
	d.idle[c.name] = append(list, c)
}

func (d *direct) expire(c *directConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, other := range d.idle[c.name] {
		if other == c {
			d.idle[c.name] = append(d.idle[c.name][:i], d.idle[c.name][i+1:]...)
			c.close()
		}
	}
}

// close closes what no request uses; what is in use is closed when it is given back.
func (d *direct) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, list := range d.idle {
		for _, c := range list {
			c.timer.Stop()
			c.close()
		}
	}
	clear(d.idle)
}

// A directBodyReader is the body of an answer.
type directBodyReader struct {
	io.ReadCloser
	c     *directConn
	stop  func() bool // false: the connection was closed
	slot  chan struct{}
	reuse bool
	ended bool
}

func (b *directBodyReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// Close gives the connection back. It reads nothing: an endless body would never end.
func (b *directBodyReader) Close() error {
	if b.c == nil {
		return nil
	}
	c := b.c
	b.c = nil
	defer func() { <-b.slot }()
	if b.stop() && b.reuse && b.ended && c.r.Buffered() == 0 {
		c.owner.keep(c)
		return nil
	}
	c.close()
	return nil
}
