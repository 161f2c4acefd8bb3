package supervisor

import (
	"io"
	"os"
	"sync"

	"proctor/audit"
)

// capture reads one of the program's streams for as long as anybody holds its other end,
// keeps the head and the tail within a limit, and never makes the program wait for
// anything but this process's reading.
type capture struct {
	mu    sync.Mutex
	grown *sync.Cond
	head  []byte
	tail  ring
	total int64
	ended bool

	headMax int
}

// newCapture keeps limit bytes: three quarters of the head, where programs say what they
// do, and a quarter of the tail, where they say how it went.
func newCapture(limit int64) *capture {
	c := &capture{headMax: int(limit - limit/4)}
	c.tail.max = int(limit / 4)
	c.grown = sync.NewCond(&c.mu)
	return c
}

// read takes everything from r until its end or an error, which it treats alike: the
// other end is gone.
func (c *capture) read(r *os.File) {
	const least, most = 4 << 10, 64 << 10 // a page; a pipe's capacity
	buf := make([]byte, least)
	for full := false; ; {
		if full && len(buf) < most { // most programs write little, and many run at a time
			buf = make([]byte, most)
		}
		n, err := r.Read(buf)
		full = n == len(buf)
		c.mu.Lock()
		c.add(buf[:n])
		c.ended = err != nil
		c.grown.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *capture) add(p []byte) {
	c.total += int64(len(p))
	n := min(len(p), c.headMax-len(c.head))
	c.head = append(c.head, p[:n]...)
	c.tail.write(p[n:])
}

// output is what was kept so far.
func (c *capture) output() audit.Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	return audit.Output{Head: c.head[:len(c.head):len(c.head)], Tail: c.tail.bytes(), Total: c.total}
}

// copyHead writes the head to w as it grows, and returns at the stream's end or when w
// gives an error. w may be slow: what it has not taken yet stands in the head.
func (c *capture) copyHead(w io.Writer) error {
	sent := 0
	for {
		c.mu.Lock()
		for sent == len(c.head) && !c.ended {
			c.grown.Wait()
		}
		p := c.head[sent:len(c.head):len(c.head)]
		c.mu.Unlock()
		if len(p) == 0 {
			return nil
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		sent += len(p)
	}
}

// ring keeps the last max bytes written to it.
type ring struct {
	max   int
	buf   []byte
	start int // of the oldest byte, once buf is full
}

func (r *ring) write(p []byte) {
	if len(p) >= r.max {
		r.buf = append(r.buf[:0], p[len(p)-r.max:]...)
		r.start = 0
		return
	}
	if n := min(len(p), r.max-len(r.buf)); n > 0 {
		r.buf = append(r.buf, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(r.buf[r.start:], p)
		p = p[n:]
		r.start = (r.start + n) % r.max
	}
}

func (r *ring) bytes() []byte {
	return append(append([]byte(nil), r.buf[r.start:]...), r.buf[:r.start]...)
}
