package relay

import (
	"io"
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is taken and given back, never more than the limit is out.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &budget{limit: rapid.Int64Range(0, 100).Draw(t, "limit")}
		var out int64
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if n := rapid.Int64Range(1, 50).Draw(t, "n"); rapid.Bool().Draw(t, "take") {
				got := b.take(n)
				if got != min(n, b.limit-out) {
					t.Fatalf("%d of %d with %d out of %d", got, n, out, b.limit)
				}
				out += got
			} else {
				n = min(n, out)
				b.give(n)
				out -= n
			}
			if b.spent() != (out == b.limit) {
				t.Fatalf("spent: %t with %d out of %d", b.spent(), out, b.limit)
			}
		}
	})
}

// What was not carried is given back, and a connection that waits holds nothing.
func TestLaneGivesBack(t *testing.T) {
	w := newWorld(t)
	ours, theirs := pair(t)
	s := newSession(w.ctx, w.relay, ours)
	used := func() int64 { return w.relay.up.used.Load() }
	ours.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := s.upward().read(ours, make([]byte, 1000)); !isTimeout(err) || used() != 0 {
		t.Errorf("%v; %d bytes are taken", err, used())
	}
	ours.SetReadDeadline(time.Time{})
	_, _ = theirs.Write([]byte("four"))
	if n, err := s.upward().read(ours, make([]byte, 1000)); n != 4 || err != nil || used() != 4 {
		t.Errorf("%d, %v; %d bytes are taken", n, err, used())
	}
	ours.Close()
	if _, err := s.upward().write(ours, make([]byte, 1000)); err == nil || used() != 4 {
		t.Errorf("%v; %d bytes are taken", err, used())
	}
	theirs.Close()
	if _, err := s.upward().read(theirs, make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a closed connection: %v", err)
	}
}

// pair is a connection and its other end.
func pair(t *testing.T) (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// What the limit has room for is read; the session is cut when more is asked for.
func TestMeterReadsToTheLimit(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Limits.BytesUp = 3 })
	ours, theirs := pair(t)
	s := newSession(w.ctx, w.relay, ours)
	m := &meter{Conn: ours, reads: s.upward(), writes: s.downward()}
	_, _ = theirs.Write([]byte("four"))
	buf := make([]byte, 1000)
	if n, err := m.Read(buf); n != 3 || err != nil || s.cutBy() != nil {
		t.Errorf("%d, %v, cut by %v", n, err, s.cutBy())
	}
	for range 2 {
		if n, err := m.Read(buf); n != 0 || err == nil || err != s.cutBy() || err.Error() != "bytes_up limit of 3" {
			t.Errorf("%d, %v, cut by %v", n, err, s.cutBy())
		}
	}
	if got := s.up.Load(); got != 3 || !w.relay.up.spent() {
		t.Errorf("%d bytes are counted", got)
	}

	// The same where it is copied: it arrives before the cut.
	w = newWorld(t, func(w *world) { w.opts.Limits.BytesUp = 3 })
	ours, theirs = pair(t)
	s = newSession(w.ctx, w.relay, ours)
	_, _ = theirs.Write([]byte("four"))
	var to sink
	if err := copyAll(&to, ours, s.upward()); err == nil || err != s.cutBy() || string(to.got) != "fou" {
		t.Errorf("%q, %v, cut by %v", to.got, err, s.cutBy())
	}
}

// A sink keeps what is written to it.
type sink struct {
	net.Conn
	got []byte
}

func (s *sink) Write(p []byte) (int, error) {
	s.got = append(s.got, p...)
	return len(p), nil
}
