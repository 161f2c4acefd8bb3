package credential

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
)

// An exchange is one request that is sent on, and its answer.
type exchange struct {
	c  *connection
	w  http.ResponseWriter
	r  *http.Request
	up *upload

	ctx context.Context
	cut func() // ends what is asked of the upstream

	mu       sync.Mutex // informational answers come from another goroutine
	answered bool
}

// Format says nothing of what is exchanged.
func (*exchange) Format(f fmt.State, _ rune) { fmt.Fprint(f, "exchange") }

func (e *exchange) run() {
	e.ctx, e.cut = context.WithCancel(e.r.Context())
	defer e.cut()
	out, up, added := e.c.outgoing(e.r)
	e.up = up
	if up != nil {
		defer up.Close()
		if e.r.ProtoMajor == 1 && strings.EqualFold(e.r.Header.Get("Expect"), "100-continue") {
			up.ask = e.proceed
		}
	}
	if up != nil && e.r.ProtoMajor == 1 {
		// An answer may begin before the request's body has ended.
		_ = http.NewResponseController(e.w).EnableFullDuplex()
	}
	res, err := e.send(out, added)
	e.mu.Lock()
	e.answered = true
	e.mu.Unlock()
	if err != nil {
		e.failed(err)
		return
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		e.upgrade(res)
		return
	}
	e.respond(res)
}

// send sends the request on, and returns its answer.
func (e *exchange) send(out *http.Request, added bool) (*http.Response, error) {
	ctx, t := e.ctx, e.c.t
	if e.c.host.http1.Load() && t.direct.suits(out) {
		return t.direct.roundTrip(ctx, out, func(conn net.Conn) { e.c.connected(conn, added) }, e.informational)
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:        func(i httptrace.GotConnInfo) { e.c.connected(i.Conn, added) },
		Got1xxResponse: e.informational,
	})
	res, err := t.transport.RoundTrip(out.WithContext(ctx))
	if err == nil && out.Header["Upgrade"] == nil { // which HTTP/2 has not, so that it is never asked for then
		e.c.host.http1.Store(res.ProtoMajor == 1)
	}
	return res, err
}

// connected notes where a request goes.
func (c *connection) connected(conn net.Conn, added bool) {
	if s, ok := conn.(*tls.Conn); ok {
		conn = s.NetConn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if u, ok := conn.(*upstreamConn); ok {
		c.upstream = u.to
	}
	c.sent = true
	c.added = c.added || added
}

// forbidden is an error of a [Dialer] for a name that is granted and has no address that may be
// connected to. The rule is "" where something else is wrong.
type forbidden interface {
	error
	Forbidden() (rule string, at netip.AddrPort)
}

// failed answers where the upstream did not.
func (e *exchange) failed(err error) {
	if over := e.up.reached(); over != nil {
		e.c.answer(e.w, refuse(http.StatusForbidden, "%s", e.c.t.text(over)))
		return
	}
	if e.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the code went away
	}
	if f, ok := errors.AsType[forbidden](err); ok {
		if rule, at := f.Forbidden(); rule != "" {
			e.c.forbid(rule, at)
		}
	}
	status := http.StatusBadGateway
	if n := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout() {
		status = http.StatusGatewayTimeout
	}
	e.block(status, fmt.Sprintf("%s: %s", e.c.to.Name, e.c.t.text(err)))
}

// block answers in place of what the upstream sent, or would have.
func (e *exchange) block(status int, reason string) {
	e.c.fail(reason)
	e.c.reply(e.w, status, reason)
}

// proceed asks for a body that was announced. The server would do it by itself when the body is
// read, but not one after the other with the upstream's informational answers.
func (e *exchange) proceed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.answered {
		e.w.WriteHeader(http.StatusContinue)
	}
}

// informational passes a 1xx answer on. A 100 comes of its own, when the body is read.
func (e *exchange) informational(code int, header textproto.MIMEHeader) error {
	if code == http.StatusContinue || !e.r.ProtoAtLeast(1, 1) {
		return nil
	}
	h, hits := e.c.clean(http.Header(header))
	e.c.hit("header", hits)
	if err := e.c.addDown(headerSize(h)); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answered {
		return nil
	}
	to := e.w.Header()
	for name, values := range h {
		to[name] = values
	}
	e.w.WriteHeader(code)
	clear(to)
	return nil
}

// clean returns the fields of an answer that the code may see. A field whose name holds a secret
// is left out.
func (c *connection) clean(h http.Header) (http.Header, Hits) {
	out, hits := make(http.Header, len(h)), Hits{}
	for name, values := range h {
		if c.t.scrub.holds(name, hits) {
			continue
		}
		clean := make([]string, len(values))
		for i, v := range values {
			clean[i] = c.t.scrub.String(v, hits)
		}
		out[name] = clean
	}
	return out, hits
}

// unfit are fields that are not true, or lead nowhere, on this side: digests of a body that
// may be changed, ranges that are not asked for, and other ways to the host.
var unfit = []string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges", "Alt-Svc"}

// respond passes an answer on.
func (e *exchange) respond(res *http.Response) {
	dropHopByHop(res.Header)
	for _, name := range unfit {
		delete(res.Header, name)
	}
	h, hits := e.c.clean(res.Header)
	e.c.hit("header", hits)
	list, err := encodings(h)
	if err != nil {
		e.block(http.StatusBadGateway, e.c.t.text(err))
		return
	}
	length, noBody := res.ContentLength, e.r.Method == http.MethodHead || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified
	if !noBody && len(list) > 0 {
		n := windows(list)
		if err := e.room(n); err != nil {
			e.block(http.StatusServiceUnavailable, fmt.Sprintf("%s: %s", e.c.to.Name, err))
			return
		}
		defer e.c.t.decoders.Release(n)
	}
	if len(list) > 0 {
		delete(h, "Content-Encoding")
		if tag := h.Get("Etag"); strings.HasPrefix(tag, `"`) {
			h.Set("Etag", "W/"+tag) // other bytes than the upstream's
		}
		length = -1
	}
	// A secret that is taken out changes the length.
	if delete(h, "Content-Length"); noBody && length >= 0 && res.Header.Get("Content-Length") != "" {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := h[name]; !ok {
			h[name] = nil // the server adds none of its own
		}
	}
	to := e.w.Header()
	for name, values := range h {
		to[name] = values
	}
	for name := range res.Trailer {
		if !e.c.t.scrub.holds(name, Hits{}) {
			to.Add("Trailer", name)
		}
	}
	if err := e.c.addDown(headerSize(h) + 16); err != nil {
		clear(to)
		e.c.answer(e.w, refuse(http.StatusForbidden, "%s", e.c.t.text(err)))
		return
	}
	if noBody {
		e.w.WriteHeader(res.StatusCode)
		return
	}
	body := decode(res.Body, list)
	defer body.Close()
	announced := len(res.Trailer)
	d := &download{c: e.c, w: e.w, stream: e.c.t.scrub.Stream(false), late: e.c.t.options.Late, end: e.cut}
	d.flush = http.NewResponseController(e.w).Flush
	if length >= 0 && length <= pieceBytes && announced == 0 {
		err = d.whole(body, res.StatusCode, length)
	} else {
		e.w.WriteHeader(res.StatusCode)
		d.eager = length < 0
		err = d.copy(body)
	}
	d.record()
	if err != nil {
		if over := e.up.reached(); over != nil {
			err = over
		}
		if ends(err) {
			e.c.refuse(e.c.t.text(err), "")
		} else if e.r.Context().Err() == nil {
			e.c.fail(fmt.Sprintf("%s: body of an answer: %s", e.c.to.Name, e.c.t.text(err)))
		}
		panic(http.ErrAbortHandler) // the code must not take a part for the whole
	}
	e.trailers(res, announced)
}

// room waits for the memory that decoders of an answer take. Release it after them.
func (e *exchange) room(bytes int64) error {
	ctx, cancel := context.WithTimeout(e.ctx, e.c.t.decoderWait)
	defer cancel()
	if e.c.t.decoders.Acquire(ctx, bytes) == nil {
		return nil
	}
	if e.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the code went away
	}
	return fmt.Errorf("no room to decode the answer within %v: the run's answers that are compressed take %d MiB: read fewer at a time, or ask for gzip", e.c.t.decoderWait, decoderBytes>>20)
}

// ends reports whether an error is policy: a cap that was reached, or a secret that is guessed at.
func ends(err error) bool {
	over, guess := (*overCap)(nil), (*guessed)(nil)
	return errors.As(err, &over) || errors.As(err, &guess)
}

// trailers passes on what came after the body.
func (e *exchange) trailers(res *http.Response, announced int) {
	if len(res.Trailer) == 0 {
		return
	}
	t, hits := e.c.clean(res.Trailer)
	e.c.hit("trailer", hits)
	if e.c.addDown(headerSize(t)) != nil {
		panic(http.ErrAbortHandler)
	}
	// An answer that has not begun would be sent with a length, and then has no trailers.
	_ = http.NewResponseController(e.w).Flush()
	for name, values := range t {
		if announced != len(res.Trailer) {
			name = http.TrailerPrefix + name
		}
		e.w.Header()[name] = values
	}
}
