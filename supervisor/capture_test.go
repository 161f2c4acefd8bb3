package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pattern is n bytes no two neighbouring stretches of which are alike.
func pattern(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.Bytes()[:n]
}

// kept says what a capture must hold of a stream.
func kept(stream []byte, limit int) (head, tail []byte) {
	tailMax := limit / 4
	head = stream[:min(len(stream), limit-tailMax)]
	rest := stream[len(head):]
	return head, rest[max(0, len(rest)-tailMax):]
}

func checkCapture(t interface{ Errorf(string, ...any) }, c *capture, stream []byte, limit int) {
	head, tail := kept(stream, limit)
	out := c.output()
	if !bytes.Equal(out.Head, head) {
		t.Errorf("limit %d, stream of %d: head is %d bytes, want %d: %.40q", limit, len(stream), len(out.Head), len(head), out.Head)
	}
	if !bytes.Equal(out.Tail, tail) {
		t.Errorf("limit %d, stream of %d: tail is %.60q, want %.60q", limit, len(stream), out.Tail, tail)
	}
	if out.Total != int64(len(stream)) {
		t.Errorf("limit %d: total %d, want %d", limit, out.Total, len(stream))
	}
	if want := int64(max(0, len(stream)-limit)); out.Truncated() != want {
		t.Errorf("limit %d, stream of %d: %d bytes missing, want %d", limit, len(stream), out.Truncated(), want)
	}
}

func TestCaptureBoundaries(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 4, 5, 7, 8, 100, 4096} {
		for _, length := range []int{0, 1, limit - 1, limit, limit + 1, limit + limit/4, 2*limit - 1, 2 * limit, 10*limit + 3} {
			for _, chunk := range []int{1, 3, limit, limit + 1, 1 << 20} {
				c := newCapture(int64(limit))
				stream := pattern(length)
				for rest := stream; len(rest) > 0; {
					n := min(chunk, len(rest))
					c.add(rest[:n])
					rest = rest[n:]
				}
				checkCapture(t, c, stream, limit)
			}
		}
	}
}

func TestCaptureAnyWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 64).Draw(t, "limit")
		c := newCapture(int64(limit))
		var stream []byte
		for _, p := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 100)).Draw(t, "writes") {
			c.add(p)
			stream = append(stream, p...)
			checkCapture(t, c, stream, limit)
		}
	})
}

// What output returned does not change when the stream goes on.
func TestCaptureOutputIsACopy(t *testing.T) {
	c := newCapture(8)
	c.add([]byte("abcdefgh"))
	out := c.output()
	c.add([]byte("ijkl"))
	if string(out.Bytes()) != "abcdefgh" {
		t.Errorf("it became %q", out.Bytes())
	}
}

func capturePipe(t *testing.T, limit int64) (c *capture, w *os.File, ended chan struct{}) {
	t.Helper()
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	c, ended = newCapture(limit), make(chan struct{})
	go func() { defer close(ended); c.read(r) }()
	t.Cleanup(func() { w.Close(); <-ended; r.Close() })
	return c, w, ended
}

func TestCaptureReads(t *testing.T) {
	c, w, ended := capturePipe(t, 1000)
	stream := pattern(300_000) // more than a pipe holds
	if _, err := w.Write(stream); err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-ended
	checkCapture(t, c, stream, 1000)
}

// Closing the reading end wakes the reader, as when a box's processes cannot be killed.
func TestCaptureReadEndsByClose(t *testing.T) {
	st, err := newStreams(10)
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	telling := &telling{obs: deaf{}}
	st.follow(telling)
	if _, err := st.inside[1].Write([]byte("held open")); err != nil {
		t.Fatal(err)
	}
	st.closeOutside()
	st.wait()
	telling.wait()
}

type deaf struct{}

func (deaf) Waits(string, int)   {}
func (deaf) Admitted(string)     {}
func (deaf) Stdout([]byte) error { return nil }
func (deaf) Stderr([]byte) error { return nil }

// A writer that is slow gets every byte of the head, and the program never waits for it.
func TestCopyHeadSlowWriter(t *testing.T) {
	c, w, _ := capturePipe(t, 400_000)
	stream := pattern(500_000)
	turn := make(chan struct{})
	var got bytes.Buffer
	copied := make(chan error)
	go func() {
		copied <- c.copyHead(writerFunc(func(p []byte) error { <-turn; got.Write(p); return nil }))
	}()
	// No turn is given before everything is written: 500 kB pass a pipe of 64.
	if _, err := w.Write(stream); err != nil {
		t.Fatal(err)
	}
	w.Close()
	close(turn)
	if err := <-copied; err != nil {
		t.Fatal(err)
	}
	if head, _ := kept(stream, 400_000); !bytes.Equal(got.Bytes(), head) {
		t.Errorf("%d bytes came, want the %d of the head", got.Len(), len(head))
	}
}

func TestCopyHeadAsItGrows(t *testing.T) {
	c, w, _ := capturePipe(t, 1000)
	r2, w2 := io.Pipe()
	copied := make(chan error)
	go func() { copied <- c.copyHead(w2) }()
	for _, s := range []string{"first\n", "second\n"} {
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(s))
		if _, err := io.ReadFull(r2, got); err != nil || string(got) != s {
			t.Fatalf("got %q, %v, before the stream's end", got, err)
		}
	}
	w.Close()
	if err := <-copied; err != nil {
		t.Error(err)
	}
}

// A writer that fails ends the copying and nothing else.
func TestCopyHeadFailingWriter(t *testing.T) {
	c, w, ended := capturePipe(t, 1000)
	gone := errors.New("gone")
	calls := 0
	copied := make(chan error)
	go func() { copied <- c.copyHead(writerFunc(func([]byte) error { calls++; return gone })) }()
	if _, err := w.WriteString("a"); err != nil {
		t.Fatal(err)
	}
	if err := <-copied; !errors.Is(err, gone) || calls != 1 {
		t.Errorf("%v after %d writes", err, calls)
	}
	stream := pattern(200_000)
	if _, err := w.Write(stream); err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-ended
	checkCapture(t, c, append([]byte("a"), stream...), 1000)
}

func TestCopyHeadOfNothing(t *testing.T) {
	c, w, _ := capturePipe(t, 1)
	w.Close()
	if err := c.copyHead(writerFunc(func([]byte) error { t.Error("written to"); return nil })); err != nil {
		t.Error(err)
	}
}

type recordingObserver struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
}

func (o *recordingObserver) Waits(string, int) {}
func (o *recordingObserver) Admitted(string)   {}
func (o *recordingObserver) Stdout(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stdout.Write(p)
	return nil
}
func (o *recordingObserver) Stderr(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stderr.Write(p)
	return nil
}

func TestStreams(t *testing.T) {
	st, err := newStreams(100)
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	// stdin has ended before it began.
	if n, err := st.inside[0].Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("stdin: %d, %v", n, err)
	}
	var obs recordingObserver
	telling := &telling{obs: &obs}
	st.follow(telling)
	fmt.Fprint(st.inside[1], strings.Repeat("o", 150))
	fmt.Fprint(st.inside[2], "e")
	st.closeInside()
	st.wait()
	telling.wait()
	if out := st.stdout.output(); out.Total != 150 || len(out.Bytes()) != 100 {
		t.Errorf("stdout: %d of %d", len(out.Bytes()), out.Total)
	}
	if got := obs.stdout.String(); got != strings.Repeat("o", 75) {
		t.Errorf("passed on: %q", got)
	}
	if got := obs.stderr.String(); got != "e" {
		t.Errorf("passed on of stderr: %q", got)
	}
	if got := st.stderr.output(); string(got.Head) != "e" {
		t.Errorf("stderr: %q", got.Head)
	}
}

// Programs expect pipes that block: one end's flags are not the other's.
func TestPipeBlocksForTheProgram(t *testing.T) {
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(make([]byte, 200_000))
		written <- err
	}()
	select {
	case err := <-written:
		t.Fatalf("a full pipe did not block: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if _, err := io.CopyN(io.Discard, r, 200_000); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
