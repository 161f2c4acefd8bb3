package credential

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// pieceBytes is how much of a body is read at a time.
const pieceBytes = 32 << 10

// pieces are buffers of what is read and of what is written.
var pieces = sync.Pool{New: func() any {
	return &piece{in: make([]byte, pieceBytes), out: make([]byte, 0, pieceBytes+1024)}
}}

type piece struct{ in, out []byte }

// A download passes a body on, scrubbed.
type download struct {
	c      *connection
	w      io.Writer
	stream *Stream
	flush  func() error // nil: w does not buffer
	eager  bool         // flush each piece: nobody knows when the next one comes
	late   time.Duration

	mu     sync.Mutex // guards the above while a timer runs
	timer  *time.Timer
	done   bool
	err    error
	began  bool   // something was flushed, and the header with it
	told   bool   // a hit was recorded
	rest   Hits   // that were not recorded yet
	held   string // credential whose secret's beginning is held back
	outBuf []byte
	end    func() // makes a read of the body that waits fail
}

// whole passes on a body of a known length of at most pieceBytes.
func (d *download) whole(body io.Reader, status int, length int64) error {
	p := pieces.Get().(*piece)
	defer pieces.Put(p)
	if _, err := io.ReadFull(body, p.in[:length]); err != nil {
		return err
	}
	// The end is met, so that the upstream's connection can be used again.
	var more [1]byte
	if n, err := body.Read(more[:]); n > 0 || err != nil && !errors.Is(err, io.EOF) {
		return errors.New("it is longer than its Content-Length")
	}
	p.out = d.stream.Close(d.stream.Append(p.out[:0], p.in[:length]))
	w := d.w.(http.ResponseWriter)
	w.Header().Set("Content-Length", strconv.Itoa(len(p.out)))
	w.WriteHeader(status)
	return d.write(p.out)
}

// copy passes on a body of any length as it comes.
func (d *download) copy(body io.Reader) error {
	p := pieces.Get().(*piece)
	defer pieces.Put(p)
	d.outBuf = p.out
	d.stream.watch = d.watch
	defer func() { p.out = d.outBuf[:0] }()
	defer d.stop()
	if d.eager {
		// The header goes out with the first piece, unless that is late.
		d.mu.Lock()
		d.timer = time.AfterFunc(d.late, d.release)
		d.mu.Unlock()
	}
	for {
		n, err := body.Read(p.in)
		if n > 0 {
			if err := d.piece(p.in[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return d.last()
		}
		if err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.err != nil {
				return d.err // which ended the body
			}
			return err
		}
	}
}

// watch counts beginnings of secrets. It is called with the lock held.
func (d *download) watch(credential string, t turn) {
	switch t {
	case begun:
		d.held = credential
		d.c.t.beginnings.add(beginningOf{credential, d.c.credential()}, 1)
	case whole:
		d.held = ""
		d.c.t.beginnings.add(beginningOf{credential, d.c.credential()}, -1)
	case broken:
		d.beginning()
	}
}

// beginning records the beginning that was held back: it was no whole secret.
func (d *download) beginning() {
	if d.held != "" {
		d.c.hit("body (a beginning)", Hits{d.held: 1})
		d.held = ""
	}
}

func (d *download) piece(data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	d.outBuf = d.stream.Append(d.outBuf[:0], data)
	if d.err = d.c.t.beginnings.refuses(d.c.credential()); d.err != nil {
		return d.err // before it shows what is held back
	}
	if err := d.write(d.outBuf); err != nil {
		return err
	}
	if !d.eager {
		return nil
	}
	if d.stream.Held() {
		d.timer.Reset(d.late)
	}
	return d.flushed()
}

// release lets go of a few bytes, or of the header, that were held back for too long. The body is
// ended where more is held back: that shows, and so it does when it goes out.
func (d *download) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done || d.err != nil || d.began && !d.stream.Held() {
		return
	}
	d.outBuf = d.stream.Release(d.outBuf[:0])
	if d.err = d.write(d.outBuf); d.err == nil {
		d.err = d.flushed()
	}
	if d.err == nil && d.held != "" {
		d.err = &guessed{fmt.Sprintf("%s: an answer stopped in a beginning of the secret of credential %s: it is ended, or secrets could be guessed by what is held back", d.c.to.Name, d.held)}
		d.beginning()
	}
	if d.err != nil {
		d.end()
	}
}

func (d *download) last() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	d.outBuf = d.stream.Close(d.outBuf[:0])
	if err := d.c.t.beginnings.refuses(d.c.credential()); err != nil {
		return err
	}
	return d.write(d.outBuf)
}

// stop ends the timer. Nothing is written after it.
func (d *download) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = true
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *download) flushed() error {
	d.began = true
	if d.flush == nil {
		return nil
	}
	return d.flush()
}

// write counts and writes; the first hit is recorded before it goes out, those that follow at
// the end: an answer full of them is no flood of records.
func (d *download) write(data []byte) error {
	if hits := d.stream.Hits(); hits != nil {
		if !d.told {
			d.told = true
			d.c.hit("body", hits)
		} else {
			if d.rest == nil {
				d.rest = Hits{}
			}
			for name, n := range hits {
				d.rest[name] += n
			}
		}
	}
	if len(data) == 0 {
		return nil
	}
	if err := d.c.addDown(int64(len(data))); err != nil {
		return err
	}
	_, err := d.w.Write(data)
	return err
}

// record gives the hits that were not recorded yet.
func (d *download) record() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beginning()
	d.c.hit("body", d.rest)
	d.rest = nil
}
