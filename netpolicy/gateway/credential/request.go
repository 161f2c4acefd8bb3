package credential

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// ServeHTTP answers one request of the code: with what the upstream answers, or with a refusal
// that says why.
func (c *connection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.enter() {
		panic(http.ErrAbortHandler)
	}
	defer c.leave()
	c.requests.Add(1)
	if no := c.check(r); no != nil {
		c.answer(w, no)
		return
	}
	if err := c.addUp(sizeOf(r)); err != nil {
		c.answer(w, refuse(http.StatusForbidden, "%s", c.t.text(err)))
		return
	}
	(&exchange{c: c, w: w, r: r}).run()
}

// check returns why a request is not sent on, or nil.
func (c *connection) check(r *http.Request) *refusal {
	if no := checkHost(r, c.to.Name); no != nil {
		return no // before all else: no method or path hides it
	}
	if no := checkMethod(r); no != nil {
		return no
	}
	if no := checkRules(r, c.host.injector.credential); no != nil {
		return no
	}
	if err := c.t.beginnings.refuses(c.credential()); err != nil {
		return refuse(http.StatusForbidden, "%s", err)
	}
	if upgrades(r.Header) && (c.decision.Grant == nil || !c.decision.Grant.WebSocket) {
		return refuse(http.StatusForbidden, "the grant of %s does not let a connection become a WebSocket: set websocket: true on it", c.to.Name)
	}
	return nil
}

// answerTime is how long a connection may last that is ended by an answer, so that it is read.
const answerTime = 2 * time.Second

// answer refuses a request. One for another host is the connection's last: there is one record of
// a connection, at its end, and this must be known now, not when the code is done.
func (c *connection) answer(w http.ResponseWriter, no *refusal) {
	c.refuse(no.reason, no.claimed)
	if no.claimed != "" {
		w.Header().Set("Connection", "close") // in HTTP/2, GOAWAY
		time.AfterFunc(answerTime, c.cut)
	}
	c.reply(w, no.status, no.reason)
}

// reply answers in the upstream's place, on one line.
func (c *connection) reply(w http.ResponseWriter, status int, reason string) {
	body := "proctor: " + reason + "\n"
	if err := c.addDown(int64(len(body))); err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// hopByHop are the fields that end at the next HTTP speaker, whatever Connection says.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// dropHopByHop removes them and what Connection names. What says how a body is to be read is
// never among those: an encoding that was dropped could not be looked into.
func dropHopByHop(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.Trim(name, " \t"))
			if !strings.HasPrefix(name, "Content-") {
				delete(h, name)
			}
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// hasToken reports whether a field that is a list has token in it.
func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.Trim(t, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// upgrades reports whether a request asks for a WebSocket. Other upgrades are dropped with the
// rest of what ends here: a server may ignore them.
func upgrades(h http.Header) bool {
	return hasToken(h["Connection"], "upgrade") && hasToken(h["Upgrade"], "websocket")
}

// outgoing makes the request that is sent on, and reports whether the secret is in it.
func (c *connection) outgoing(r *http.Request) (out *http.Request, up *upload, added bool) {
	h := r.Header.Clone()
	dropHopByHop(h)
	if hasToken(r.Header["Te"], "trailers") {
		h["Te"] = []string{"trailers"} // gRPC needs it
	}
	if upgrades(r.Header) {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		// Compressed messages could not be looked into.
		delete(h, "Sec-Websocket-Extensions")
	}
	delete(h, "Host")
	delete(h, "Content-Length")
	// A secret could be fetched in halves.
	delete(h, "Range")
	delete(h, "If-Range")
	if v, ok := h["Accept-Encoding"]; ok && !slices.Equal(v, []string{"identity"}) {
		h["Accept-Encoding"] = []string{acceptEncoding}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // sends none
	}
	query, added := c.host.injector.apply(h, r.URL.RawQuery)
	out = &http.Request{
		Method: r.Method,
		URL: &url.URL{
			Scheme: "https", Host: c.to.Name, Path: r.URL.Path, RawPath: r.URL.RawPath,
			RawQuery: query, ForceQuery: r.URL.ForceQuery,
		},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, // or a 100 is not waited for
		Host: c.to.Name, Header: h, ContentLength: r.ContentLength,
	}
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return out, nil, added
	}
	up = &upload{c: c, body: r.Body, from: r}
	if len(r.Trailer) > 0 {
		out.Trailer = http.Header{}
		for name := range r.Trailer {
			out.Trailer[name] = nil
		}
		c.host.injector.drop(out.Trailer)
		up.trailer = out.Trailer
	}
	out.Body = up
	return out, up, added
}

// An upload counts a request's body on its way. The transport may read it for longer than the
// request is served; it gets nothing then.
type upload struct {
	c       *connection
	from    *http.Request
	trailer http.Header // of the outgoing request, filled at the end of the body
	ask     func()      // before the first Read: asks the code for its body
	asked   sync.Once

	mu     sync.Mutex
	body   io.Reader
	closed bool
	over   error // cap that was reached
}

func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	closed := u.closed
	u.mu.Unlock()
	if closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if u.ask != nil {
		u.asked.Do(u.ask)
	}
	n, err := u.body.Read(p)
	if n > 0 {
		if over := u.c.addUp(int64(n)); over != nil {
			u.mu.Lock()
			u.over = over
			u.mu.Unlock()
			return 0, over
		}
	}
	if errors.Is(err, io.EOF) {
		for name := range u.trailer {
			u.trailer[name] = u.from.Trailer[name]
		}
	}
	return n, err
}

// Close makes further reads fail. The server closes the body itself.
func (u *upload) Close() error {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	return nil
}

func (u *upload) reached() error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.over
}

// sizeOf is about what a request's line and header take.
func sizeOf(r *http.Request) int64 {
	return int64(len(r.Method)+len(r.URL.Path)+len(r.URL.RawQuery)+len(r.Host)+16) + headerSize(r.Header)
}

func headerSize(h http.Header) int64 {
	n := 0
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return int64(n)
}
