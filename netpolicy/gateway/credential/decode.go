package credential

import (
	"bufio"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// acceptEncoding is what an upstream is asked to answer in: what can be decoded with little memory,
// scrubbed, and is sent on as it is then. Brotli and zstd are decoded, too, if they come, but few at
// a time: their windows are large.
const acceptEncoding = "gzip, deflate"

// maxEncodings is how often a body may be encoded over.
const maxEncodings = 3

// maxWindowBytes is the largest zstd window, which is what RFC 9659 lets HTTP have.
const maxWindowBytes = 8 << 20

// decoderBytes is what the windows of all of a Terminator's decoders may take together, and
// decoderWait how long an answer waits for its part.
const (
	decoderBytes = 96 << 20
	decoderWait  = 10 * time.Second
)

// windowBytes is how large the window of an encoding's decoder may be.
var windowBytes = map[string]int64{"gzip": 64 << 10, "x-gzip": 64 << 10, "deflate": 64 << 10, "br": 16 << 20, "zstd": maxWindowBytes}

// windows is what the decoders of an answer may take together, in bytes.
func windows(list []string) (n int64) {
	for _, e := range list {
		n += windowBytes[e]
	}
	return n
}

// openers make the readers of the encodings that are known. The source is buffered and not at
// its end.
var openers = map[string]func(*bufio.Reader) (io.ReadCloser, error){
	"gzip":   func(r *bufio.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	"x-gzip": func(r *bufio.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	"br":     func(r *bufio.Reader) (io.ReadCloser, error) { return io.NopCloser(brotli.NewReader(r)), nil },
	"zstd": func(r *bufio.Reader) (io.ReadCloser, error) {
		// One block at a time, without goroutines.
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindowBytes))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	},
	// Deflate should be in a zlib frame, and is sent bare by some.
	"deflate": func(r *bufio.Reader) (io.ReadCloser, error) {
		if head, err := r.Peek(2); err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
			return zlib.NewReader(r)
		}
		return flate.NewReader(r), nil
	},
}

// encodings returns what the body of an answer is encoded in, the last one applied first, and an
// error for what can't be decoded.
func encodings(h http.Header) ([]string, error) {
	var list []string
	for _, v := range h.Values("Content-Encoding") {
		for e := range strings.SplitSeq(v, ",") {
			e = strings.ToLower(strings.Trim(e, " \t"))
			if e == "" || e == "identity" {
				continue
			}
			if openers[e] == nil {
				return nil, fmt.Errorf("the answer's Content-Encoding %s can't be looked into for secrets: gzip, br, zstd and deflate can", quoted(e))
			}
			list = append([]string{e}, list...)
			if len(list) > maxEncodings {
				return nil, fmt.Errorf("the answer is encoded more than %d times over", maxEncodings)
			}
		}
	}
	return list, nil
}

// decode returns the body without its encodings. It reads nothing yet. The result must be
// closed; body stays the caller's.
func decode(body io.Reader, list []string) io.ReadCloser {
	out := io.NopCloser(body)
	for _, e := range list {
		out = &decoder{src: out, open: openers[e]}
	}
	return out
}

// A decoder opens its encoding when it is first read, as that already waits for data.
type decoder struct {
	src  io.ReadCloser
	open func(*bufio.Reader) (io.ReadCloser, error)
	buf  *bufio.Reader
	r    io.ReadCloser
	err  error
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if d.r == nil {
		d.buf = bufio.NewReaderSize(d.src, 16<<10)
		if _, err := d.buf.Peek(1); err != nil { // an empty body is one in every encoding
			d.err = err
			return 0, err
		}
		if d.r, d.err = d.open(d.buf); d.err != nil {
			return 0, d.err
		}
	}
	n, err := d.r.Read(p)
	if errors.Is(err, io.EOF) {
		// What is behind the end is nobody's, but the end of the source has to be met: trailers
		// come after it.
		if left, _ := io.CopyN(io.Discard, d.buf, maxTail+1); left > maxTail {
			err = errors.New("data behind the end of an encoded body")
		}
	}
	d.err = err
	return n, err
}

// maxTail is how much is passed over behind the end of an encoded body.
const maxTail = 4 << 10

func (d *decoder) Close() error {
	if d.r != nil {
		d.r.Close()
	}
	return d.src.Close()
}
