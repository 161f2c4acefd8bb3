package credential

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A watched connection is closed when nothing was read or written for some time.
type watched struct {
	net.Conn
	idle  time.Duration
	last  atomic.Int64 // when there was something, in ns since begin
	begin time.Time
	timer atomic.Pointer[time.Timer]
}

func watch(conn net.Conn, idle time.Duration) *watched {
	w := &watched{Conn: conn, idle: idle, begin: time.Now()}
	w.timer.Store(time.AfterFunc(idle, w.check))
	return w
}

func (w *watched) touch() { w.last.Store(int64(time.Since(w.begin))) }

func (w *watched) check() {
	left := w.idle - (time.Since(w.begin) - time.Duration(w.last.Load()))
	if left <= 0 {
		w.Conn.Close()
		return
	}
	if t := w.timer.Load(); t != nil {
		t.Reset(left)
	}
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.touch()
	}
	return n, err
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if n > 0 {
		w.touch()
	}
	return n, err
}

// stop closes the connection and watches no more.
func (w *watched) stop() {
	if t := w.timer.Swap(nil); t != nil {
		t.Stop()
	}
	w.Conn.Close()
}

// once is a listener with one connection. Its second Accept waits for that one's end.
type once struct {
	conn  net.Conn
	ended chan struct{}
	given sync.Once
}

func (l *once) Accept() (conn net.Conn, err error) {
	err = net.ErrClosed
	l.given.Do(func() { conn, err = l.conn, nil })
	if err != nil {
		<-l.ended
	}
	return conn, err
}

func (l *once) Close() error   { return nil }
func (l *once) Addr() net.Addr { return l.conn.LocalAddr() }
