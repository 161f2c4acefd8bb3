package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// A kind is what a client's first bytes look like.
type kind int

const (
	kindUnknown kind = iota // too little to say
	kindTLS
	kindHTTP
	kindOther
)

// maxLine is how long a first line may be that decides whether this is HTTP.
const maxLine = 8 << 10

// classify says what a stream that begins with b is. A stream that may become TLS or HTTP
// is neither yet: it can't be passed on as something else by being slow.
func classify(b []byte) kind {
	if len(b) == 0 {
		return kindUnknown
	}
	if b[0] == recordHandshake {
		switch {
		case len(b) > 1 && b[1] != 3:
			return kindOther
		case len(b) < 3:
			return kindUnknown
		}
		return kindTLS
	}
	// Servers pass over empty lines before a request.
	line := bytes.TrimLeft(b, "\r\n")
	if len(line) == 0 {
		if len(b) < maxLine {
			return kindUnknown
		}
		return kindOther
	}
	method := 0
	for method < len(line) && isToken(line[method]) {
		method++
	}
	switch {
	case method == len(line) && method < maxMethod:
		return kindUnknown
	case method == 0, method >= maxMethod, line[method] != ' ' && line[method] != '\t':
		return kindOther
	}
	switch string(line[:method]) {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI":
		return kindHTTP
	}
	// Another word: what comes at the end of the line says whether it is a method.
	end := bytes.IndexByte(line, '\n')
	if end < 0 {
		if len(line) < maxLine {
			return kindUnknown
		}
		return kindOther
	}
	fields := bytes.Fields(line[:end])
	if bytes.HasPrefix(fields[len(fields)-1], []byte("HTTP/")) {
		return kindHTTP
	}
	return kindOther
}

// more reads more of what the client says into s.buf, until the deadline.
func (s *session) more(deadline time.Time) error {
	s.client.SetReadDeadline(deadline)
	defer s.client.SetReadDeadline(time.Time{})
	const step = 4096
	if cap(s.buf)-len(s.buf) < step {
		s.buf = append(make([]byte, 0, 2*len(s.buf)+step), s.buf...)
	}
	n, err := s.client.Read(s.buf[len(s.buf) : len(s.buf)+step])
	s.buf = s.buf[:len(s.buf)+n]
	if n > 0 {
		s.touch()
		return nil
	}
	return err
}

// sniff reads until it is clear what the client speaks. speak is how long a client may be
// silent before that is taken for waiting for the server; 0: it has to speak first. Where it
// returns false, the reason is recorded.
func (s *session) sniff(speak time.Duration) (kind, bool) {
	deadline := time.Now().Add(s.r.HelloTimeout)
	first := deadline
	if speak > 0 {
		first = time.Now().Add(speak)
	}
	for {
		if k := classify(s.buf); k != kindUnknown {
			return k, true
		}
		until := deadline
		if len(s.buf) == 0 {
			until = first
		}
		err := s.more(until)
		if err == nil {
			continue
		}
		switch {
		case len(s.buf) == 0 && speak > 0 && (isTimeout(err) || errors.Is(err, io.EOF)):
			return kindOther, true
		case errors.Is(err, io.EOF) && len(s.buf) > 0 && speak > 0:
			// All that it will ever say is no request and no ClientHello.
			return kindOther, true
		case errors.Is(err, io.EOF):
			s.fail("the client sent nothing that could be checked")
		case isTimeout(err) && len(s.buf) == 0:
			s.fail("the client sent nothing for " + s.r.HelloTimeout.String())
		case isTimeout(err):
			s.block("neither a ClientHello nor a request within " + s.r.HelloTimeout.String())
		default:
			s.lostClient(err)
		}
		return kindUnknown, false
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
