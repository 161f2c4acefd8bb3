package relay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const ruleHost = "the request is for another host than the connection"

// maxResponseHead bounds the head of an answer, with all informational ones before it.
const maxResponseHead = 256 << 10 // bytes

var (
	errUpstreamEnded = errors.New("the server has ended the connection")
	errAnswerLong    = fmt.Errorf("the head of the answer is longer than %d bytes", maxResponseHead)
	errAnswerFields  = fmt.Errorf("the answer has more than %d header fields", maxFields)
	errAnswerBlank   = errors.New("the head of the answer has a line of whitespace")
	past             = time.Unix(1, 0)
)

// An httpConn carries the requests of one connection, one after another: a request is not
// looked at before the answer to the last one is complete.
type httpConn struct {
	s      *session
	t      target
	single bool // one request, which came to the explicit proxy
	br     *bufio.Reader
	server *meter // below ubr and ubw
	ubr    *bufio.Reader
	ubw    *bufio.Writer
}

// reader reads what the client has said and says. Its buffer holds a whole head.
func (s *session) reader() *bufio.Reader {
	first := s.buf
	s.buf = nil
	return bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first), s.client), max(maxHead, len(first))+4096)
}

// http serves a connection whose first bytes are an HTTP request.
func (s *session) http(t target) {
	h := &httpConn{s: s, t: t, br: s.reader()}
	h.serve()
}

func (h *httpConn) serve() {
	s := h.s
	for first := true; ; first = false {
		raw, err := h.next(first)
		if err != nil {
			h.ended(err)
			return
		}
		hd, wrong := h.check(raw)
		var req *http.Request
		if wrong == nil {
			req, wrong = h.read()
		}
		if wrong != nil {
			s.refused(wrong, h.t)
			return
		}
		if err := h.connect(); err != nil {
			if s.cutBy() == nil {
				s.answer(refuse(http.StatusBadGateway, s.flow.Error), h.t)
			}
			return
		}
		s.flow.Requests++
		if !h.exchange(req, hd) {
			return
		}
	}
}

// next waits for a request and returns its head, which is still in the reader.
func (h *httpConn) next(first bool) ([]byte, error) {
	if !first && h.br.Buffered() == 0 {
		if err := h.wait(); err != nil {
			return nil, err
		}
	}
	h.s.client.SetReadDeadline(time.Now().Add(h.s.r.HelloTimeout))
	defer h.s.client.SetReadDeadline(time.Time{})
	raw, err := readHead(h.br)
	if errors.Is(err, io.EOF) && h.br.Buffered() > 0 {
		err = io.ErrUnexpectedEOF
	}
	return raw, err
}

// wait waits between two requests. A server may end the connection meanwhile: the client has
// to see that before it sends a request that could not be sent again.
func (h *httpConn) wait() error {
	s := h.s
	ended := make(chan bool, 1)
	go func() {
		_, err := h.ubr.Peek(1)
		gone := !isTimeout(err)
		if gone {
			s.client.SetReadDeadline(past)
		}
		ended <- gone
	}()
	_, err := h.br.Peek(1)
	s.upstream.SetReadDeadline(past)
	gone := <-ended
	s.upstream.SetReadDeadline(time.Time{})
	if gone {
		return errUpstreamEnded
	}
	return err
}

// ended says why there was no further request.
func (h *httpConn) ended(err error) {
	s := h.s
	switch {
	case s.cutBy() != nil:
	case errors.Is(err, errBareLine), errors.Is(err, errHeadLong):
		s.refused(bad(err.Error()), h.t)
	case errors.Is(err, io.EOF), errors.Is(err, errUpstreamEnded):
		closeAfter(s.client)
	case isTimeout(err):
		s.refused(refuse(http.StatusRequestTimeout, "no whole request head within "+s.r.HelloTimeout.String()), h.t)
	case errors.Is(err, io.ErrUnexpectedEOF):
		s.block("the head of a request is cut off")
	default:
		s.lostClient(err)
	}
}

// check says whether the request with this head may be sent to h.t.
func (h *httpConn) check(raw []byte) (*head, *refusal) {
	hd, wrong := checkHead(raw)
	if wrong != nil {
		return nil, wrong
	}
	if hd.method == "CONNECT" {
		return nil, bad("CONNECT is for the proxy alone")
	}
	if authority, rest, ok := cutAbsolute(hd.uri); ok {
		t, _, ok := parseTarget(authority, 80)
		if !ok || t != h.t {
			return nil, &refusal{status: http.StatusForbidden, rule: ruleHost, host: authority}
		}
		hd.uri = rest
	} else if hd.uri[0] != '/' && (hd.uri != "*" || hd.method != "OPTIONS") {
		return nil, bad("the request's target is no path")
	}
	if hd.hosts > 0 || !h.single {
		t, _, ok := parseTarget(hd.host, h.t.port)
		if hd.hosts == 0 {
			return nil, bad("a request without Host")
		}
		if !ok || t != h.t {
			return nil, &refusal{status: http.StatusForbidden, rule: ruleHost, host: hd.host}
		}
	}
	// An offer of HTTP/2 can be passed over, as RFC 9110 (7.8) lets every server do: some
	// clients make it without being asked.
	hd.upgrade = slices.DeleteFunc(hd.upgrade, func(p string) bool { return p == "h2c" || p == "" })
	if len(hd.upgrade) > 0 && (len(hd.upgrade) > 1 || hd.upgrade[0] != "websocket" || hd.method != "GET" ||
		hd.minor == 0 || hd.chunked || hd.length != "" && strings.Trim(hd.length, "0") != "") {
		return nil, refuse(http.StatusForbidden, "another protocol than HTTP/1 and WebSocket (Upgrade)")
	}
	if len(hd.upgrade) > 0 && !h.s.websocket {
		return nil, refuse(http.StatusForbidden, "the grant has no websocket: true")
	}
	return hd, nil
}

// cutAbsolute cuts a target in absolute form, http://authority/path, in two. rest is in
// origin form.
func cutAbsolute(uri string) (authority, rest string, ok bool) {
	const scheme = "http://"
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", "", false
	}
	authority = uri[len(scheme):]
	if i := strings.IndexAny(authority, "/?"); i >= 0 {
		authority, rest = authority[:i], authority[i:]
	}
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	return authority, rest, true
}

func (h *httpConn) read() (*http.Request, *refusal) {
	req, err := http.ReadRequest(h.br)
	if err != nil {
		return nil, bad("not a request: " + err.Error())
	}
	return req, nil
}

func (h *httpConn) connect() error {
	if h.ubr != nil {
		return nil
	}
	if err := h.s.connect(h.t); err != nil {
		return err
	}
	h.server = &meter{Conn: h.s.upstream, reads: h.s.downward(), writes: h.s.upward()}
	h.ubr = bufio.NewReaderSize(h.server, 32<<10)
	h.ubw = bufio.NewWriterSize(h.server, 32<<10)
	return nil
}

// exchange sends a request and its answer, both while they come. It reports whether another
// may follow.
func (h *httpConn) exchange(req *http.Request, hd *head) bool {
	s := h.s
	body := &requestBody{r: req.Body}
	sent := make(chan error, 1)
	go func() {
		err := h.send(req, hd, body)
		if err != nil && body.failed() != nil {
			// The server waits for what will not come.
			s.upstream.SetReadDeadline(past)
		}
		sent <- err
	}()
	a := h.receive(req, hd, body)
	if !a.complete || !a.keep {
		// Nothing of the body is wanted any more.
		s.client.SetReadDeadline(past)
		s.upstream.SetWriteDeadline(past)
	}
	sendErr := <-sent
	switch {
	case s.cutBy() != nil:
		return false
	case a.switched && sendErr == nil:
		h.switchProtocols()
		return false
	case a.complete && a.keep && sendErr == nil:
		return true
	case a.complete:
		s.upstream.Close()
		closeAfter(s.client)
		return false
	}
	abort(s.upstream)
	switch wrong := body.failed(); {
	case a.begun, wrong != nil && !isTimeout(wrong) && lostConn(wrong):
		abort(s.client)
		s.fail("the exchange was not completed")
	case wrong != nil && !isTimeout(wrong):
		s.refused(bad("the body: "+wrong.Error()), h.t)
	default:
		s.fail(s.r.reason(a.err))
		s.answer(refuse(http.StatusBadGateway, s.flow.Error), h.t)
	}
	return false
}

// lostConn says whether the client is gone.
func lostConn(err error) bool {
	return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, io.ErrUnexpectedEOF)
}

// switchProtocols carries what follows a 101.
func (h *httpConn) switchProtocols() {
	s := h.s
	s.client.SetReadDeadline(time.Time{})
	s.upstream.SetWriteDeadline(time.Time{})
	// What the server said already was counted when it was read.
	down, _ := h.ubr.Peek(h.ubr.Buffered())
	if _, err := s.client.Write(down); err != nil {
		return
	}
	up, _ := h.br.Peek(h.br.Buffered())
	s.pump(up, nil)
}

// A requestBody is read by the sender and asked about by the receiver.
type requestBody struct {
	r       io.Reader
	started atomic.Bool
	err     atomic.Pointer[error]
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if n > 0 {
		b.started.Store(true)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err.Store(&err)
	}
	return n, err
}

// failed returns why the client's body could not be read, or nil.
func (b *requestBody) failed() error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}
