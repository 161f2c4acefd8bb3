package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

// httpServer serves one.test on port 80.
func httpServer(w *world, f http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(f)
	w.Cleanup(func() { w.stop(); s.Close() })
	w.dialer.set("one.test:80", s.Listener.Addr().String())
	w.dialer.set("one.test:8080", s.Listener.Addr().String())
	return s
}

// show answers with what arrived.
func show(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %s %s %q %v %v %v", r.Method, r.Host, r.RequestURI, body, err, r.TransferEncoding, r.Trailer)
}

func TestRequests(t *testing.T) {
	w := newWorld(t)
	httpServer(w, show)
	c := w.client(nil, "")
	do := func(req *http.Request, want string) {
		t.Helper()
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := readAll(t, resp.Body); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	get, _ := http.NewRequest("GET", "http://one.test/a%2Fb?c=d", nil)
	do(get, `GET one.test /a%2Fb?c=d "" <nil> [] map[]`)
	post, _ := http.NewRequest("POST", "http://one.test/", strings.NewReader("hello"))
	do(post, `POST one.test / "hello" <nil> [] map[]`)
	chunks, _ := http.NewRequest("PUT", "http://one.test/", io.MultiReader(strings.NewReader("hel"), strings.NewReader("lo")))
	chunks.Trailer = http.Header{"Sum": {"1"}}
	do(chunks, `PUT one.test / "hello" <nil> [chunked] map[Sum:[1]]`)
	expect, _ := http.NewRequest("POST", "http://one.test/", strings.NewReader("hello"))
	expect.Header.Set("Expect", "100-continue")
	c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	do(expect, `POST one.test / "hello" <nil> [] map[]`)
	c.CloseIdleConnections()
	f := w.allowed()
	if f.Requests != 4 || f.Name != "one.test" || f.BytesUp == 0 || f.BytesDown == 0 || f.Claimed != "" || f.Error != "" {
		t.Errorf("flow %+v", f)
	}
	// On a port of its own the Host has the port.
	other, _ := http.NewRequest("GET", "http://one.test:8080/", nil)
	do(other, `GET one.test:8080 / "" <nil> [] map[]`)
	c.CloseIdleConnections()
	w.allowed()
	w.quiet()
}

// What a server sends arrives when it is sent, and as it was meant.
func TestAnswers(t *testing.T) {
	w := newWorld(t)
	release := make(chan bool)
	httpServer(w, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			rw.Header().Set("Trailer", "Sum")
			fmt.Fprint(rw, "first")
			rw.(http.Flusher).Flush()
			<-release
			fmt.Fprint(rw, "second")
			rw.Header().Set("Sum", "1")
		case "/early":
			rw.Header().Set("Link", "</a>")
			rw.WriteHeader(103)
			rw.WriteHeader(204)
		case "/refuses":
			// Without reading the body.
			rw.Header().Set("Connection", "close")
			rw.WriteHeader(413)
		default:
			rw.Header().Add("Set-Cookie", "a=b")
			rw.Header().Add("Set-Cookie", "c=d")
			rw.Header().Set("Content-Length", "12345")
		}
	})
	c := w.client(nil, "")
	resp, err := c.Get("http://one.test/stream")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "first" {
		t.Errorf("%q, %v", b, err)
	}
	close(release)
	if got := readAll(t, resp.Body); got != "second" || resp.Trailer.Get("Sum") != "1" {
		t.Errorf("%q, trailer %v", got, resp.Trailer)
	}
	resp.Body.Close()
	if resp, err = c.Get("http://one.test/early"); err != nil || resp.StatusCode != 204 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	if resp, err = c.Head("http://one.test/"); err != nil || resp.ContentLength != 12345 || len(resp.Cookies()) != 2 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	req, _ := http.NewRequest("POST", "http://one.test/refuses", strings.NewReader(strings.Repeat("x", 1<<20)))
	req.Header.Set("Expect", "100-continue")
	c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	if resp, err = c.Do(req); err != nil || resp.StatusCode != 413 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	if f := w.allowed(); f.Requests != 4 || f.Error != "" {
		t.Errorf("flow %+v", f)
	}
	w.quiet()
}

// Each of these is answered, and nothing of it arrives at the server.
func TestSmuggling(t *testing.T) {
	for _, c := range smuggled {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			arrived := make(chan string, 10)
			httpServer(w, func(_ http.ResponseWriter, r *http.Request) { arrived <- r.Host })
			conn := w.dial("198.18.0.1:80")
			go func() { _, _ = io.WriteString(conn, c.head+"hello") }()
			b, _ := io.ReadAll(conn)
			conn.Close()
			got := string(b)
			if !strings.HasPrefix(got, "HTTP/1.1 400 ") && !strings.HasPrefix(got, "HTTP/1.1 403 ") ||
				!strings.Contains(got, "\r\n\r\nproctor: ") || strings.Count(got, "\n") != 8 && strings.Count(got, "\n") != 9 {
				t.Errorf("got %q", got)
			}
			f := w.blocked(c.rule)
			if f.Requests != 0 || f.Name != "one.test" || f.BytesUp != 0 {
				t.Errorf("flow %+v", f)
			}
			w.quiet()
			if len(arrived) > 0 || len(w.dialer.dialed) > 0 {
				t.Errorf("%d requests arrived, and %v was dialed", len(arrived), w.dialer.dialed)
			}
		})
	}
}

// A second request on a connection is checked like the first, whether it waits or not.
func TestSecondHost(t *testing.T) {
	for _, pipelined := range []bool{true, false} {
		w := newWorld(t)
		httpServer(w, show)
		c := w.dial("198.18.0.1:80")
		first := "POST /1 HTTP/1.1\r\nHost: one.test\r\nContent-Length: 2\r\n\r\nok"
		second := "GET /2 HTTP/1.1\r\nHost: other.test\r\n\r\n"
		br := bufio.NewReader(c)
		if pipelined {
			fmt.Fprint(c, first+second)
		} else {
			fmt.Fprint(c, first)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp.Body); !strings.HasPrefix(got, `POST one.test /1 "ok"`) {
			t.Errorf("got %q", got)
		}
		if !pipelined {
			fmt.Fprint(c, second)
		}
		if resp, err = http.ReadResponse(br, nil); err != nil || resp.StatusCode != 403 {
			t.Fatal(resp, err)
		}
		if got := readAll(t, resp.Body); got != "proctor: other.test is not granted: "+ruleHost+"\n" {
			t.Errorf("got %q", got)
		}
		if f := w.blocked(ruleHost); f.Requests != 1 || f.Claimed != "other.test" || f.Name != "one.test" {
			t.Errorf("flow %+v", f)
		}
		w.quiet()
	}
}

// Fields of one connection are not passed on; nothing that a client says of them has an effect.
func TestHopByHop(t *testing.T) {
	w := newWorld(t)
	httpServer(w, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Keep-Alive", "timeout=5")
		fmt.Fprint(rw, r.Header)
	})
	c := w.dial("198.18.0.1:80")
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: one.test\r\nConnection: close, X-Mine, Upgrade\r\nX-Mine: 1\r\nUpgrade: h2c\r\n"+
		"HTTP2-Settings: AAMAAABk\r\nTE: trailers\r\nProxy-Authorization: Basic eA==\r\nX-Other: 2\r\n\r\n")
	got := readAll(t, c)
	if !strings.HasSuffix(got, "map[Connection:[close] X-Other:[2]]") || strings.Contains(got, "Keep-Alive") || strings.Count(got, "Connection:") != 2 {
		t.Errorf("got %q", got)
	}
	w.allowed()
}

func TestOldClient(t *testing.T) {
	w := newWorld(t)
	w.dialer.set("one.test:80", w.tcpServer(func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	}))
	c := w.dial("198.18.0.1:80")
	fmt.Fprint(c, "GET / HTTP/1.0\r\nHost: one.test\r\n\r\n")
	if got := readAll(t, c); got != "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok" {
		t.Errorf("got %q", got)
	}
	w.allowed()
}

func TestBadBody(t *testing.T) {
	w := newWorld(t)
	httpServer(w, show)
	c := w.dial("198.18.0.1:80")
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n")
	if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("got %q", got)
	}
	w.blocked("the body")
}

// A server that ends a connection that waits for the next request: the client sees that, and
// not a failed request.
func TestServerEndsConnection(t *testing.T) {
	w := newWorld(t)
	w.dialer.set("one.test:80", w.tcpServer(func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}))
	c := w.dial("198.18.0.1:80")
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: one.test\r\n\r\n")
	if got := readAll(t, c); got != "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" {
		t.Errorf("got %q", got)
	}
	if f := w.allowed(); f.Error != "" {
		t.Errorf("flow %+v", f)
	}
}

func TestBadServer(t *testing.T) {
	t.Parallel() // it waits most of the time
	for answer, want := range map[string]string{
		"":           "ended the connection",
		"nonsense\n": "malformed",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n": "not asked for",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100):          "informational",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20):            "head of the answer is longer than 262144 bytes",
		// Also in parts, and where the parts are many.
		"HTTP/1.1 103 Early Hints\r\nX: " + strings.Repeat("x", 200<<10) + "\r\n\r\n" + "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 200<<10) + "\r\n\r\n": "head of the answer is longer than",
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxFields+1) + "\r\n":                                                                             "the answer has more than 256 header fields",
		"HTTP/1.1 200 OK\r\nX: y\r\n \r\nY: z\r\n\r\n":                                                                                                       "a line of whitespace",
	} {
		w := newWorld(t)
		w.dialer.set("one.test:80", w.tcpServer(func(c *net.TCPConn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, answer)
		}))
		c := w.dial("198.18.0.1:80")
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: one.test\r\n\r\n")
		b, _ := io.ReadAll(c)
		if !strings.Contains(string(b), "HTTP/1.1 502 ") {
			t.Errorf("got %q", b)
		}
		if f := w.allowed(); !strings.Contains(f.Error, want) {
			t.Errorf("flow %+v; its error should be %q", f, want)
		}
	}
}

// A long head is an answer like another, with what follows it.
func TestLongAnswer(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 200<<10)
	w.dialer.set("one.test:80", w.tcpServer(func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		for range 3 {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\nY: z\n\nHTTP/1.1 200 OK\r\nX: "+long+"\r\n"+strings.Repeat("A: b\r\n", maxFields-2)+"Content-Length: 5\r\n\r\nhello")
		}
	}))
	c := w.dial("198.18.0.1:80")
	br := bufio.NewReader(c)
	for range 3 {
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: one.test\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 103 || resp.Header.Get("Y") != "z" {
			t.Fatal(resp, err)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp.Body); got != "hello" || resp.Header.Get("X") != long || len(resp.Header["A"]) != maxFields-2 {
			t.Errorf("got %q, with %d bytes and %d fields", got, len(resp.Header.Get("X")), len(resp.Header["A"]))
		}
	}
	c.Close()
	if f := w.allowed(); f.Requests != 3 || f.Error != "" {
		t.Errorf("flow %+v", f)
	}
}

// What Connection names is as long as the other side likes.
func TestManyConnectionTokens(t *testing.T) {
	h := http.Header{"Connection": {"Mine"}, "Mine": {"1"}, "Other": {"2"}}
	for i := range 60000 {
		h.Set(fmt.Sprint("X", i), "y")
	}
	h["Connection"] = append(h["Connection"], strings.Repeat("t,", 100000))
	var tokens strings.Builder
	for i := range 100000 {
		fmt.Fprint(&tokens, "t", i, ",")
	}
	h["Connection"] = append(h["Connection"], tokens.String())
	start := time.Now()
	if got := fields(h); len(got) != 60001 || got[0] != "Other" {
		t.Errorf("%d fields are passed on", len(got))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// What is refused is quoted, and that is not much.
func TestLongQuote(t *testing.T) {
	for _, request := range []string{
		"GET /%zz" + strings.Repeat("<", 60000) + " HTTP/1.1\r\nHost: one.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + strings.Repeat("<", 2000) + "\xff\r\n\r\n",
	} {
		w := newWorld(t)
		httpServer(w, show)
		c := w.dial("198.18.0.1:80")
		fmt.Fprint(c, request)
		if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("got %q", got)
		}
		if f := w.blocked(""); len(f.Rule) > 300 || !strings.Contains(f.Rule, "<<<") || strings.Trim(printable(f.Rule), "?") == "" || f.Rule != printable(f.Rule) {
			t.Errorf("%d bytes of a rule: %q", len(f.Rule), f.Rule)
		}
	}
}

func TestWebSocket(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.grants.hosts["one.test:80"] = &egress.Grant{Host: "one.test", WebSocket: true}
	})
	w.dialer.set("one.test:80", w.tcpServer(func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		req, err := http.ReadRequest(br)
		if err != nil || req.Header.Get("Upgrade") != "websocket" || req.Header.Get("Connection") != "Upgrade" || req.Header.Get("Sec-WebSocket-Key") != "k" {
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\nhello ")
		_, _ = io.Copy(c, br)
		c.CloseWrite()
	}))
	c := w.dial("198.18.0.1:80")
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: one.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nfirst ")
	time.Sleep(50 * time.Millisecond)
	fmt.Fprint(c, "second")
	c.CloseWrite()
	if got := readAll(t, c); got != "HTTP/1.1 101 Switching Protocols\r\nSec-Websocket-Accept: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello first second" {
		t.Errorf("got %q", got)
	}
	if f := w.allowed(); f.Requests != 1 || f.Decision != audit.Allowed {
		t.Errorf("flow %+v", f)
	}
	w.quiet()
}

func TestRefusalSaysWhy(t *testing.T) {
	w := newWorld(t)
	c := w.dial("198.18.0.2:80")
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
	got := readAll(t, c)
	if !strings.HasPrefix(got, "HTTP/1.1 403 Forbidden\r\n") || !strings.Contains(got, "X-Proctor-Rule: other.test is not granted on port 80\r\n") ||
		!strings.HasSuffix(got, "\r\n\r\nproctor: other.test is not granted on port 80\n") {
		t.Errorf("got %q", got)
	}
	w.blocked("other.test is not granted on port 80")
	w.quiet()
}

// A client that was to wait for a 100, and gets another answer, may send its body or not: what
// it says next could be either, so that nothing more is read.
func TestBodyThatMayNotCome(t *testing.T) {
	w := newWorld(t)
	w.dialer.set("one.test:80", w.tcpServer(func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		fmt.Fprint(c, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	}))
	c := w.dial("198.18.0.1:80")
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if got := readAll(t, c); got != "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" {
		t.Errorf("got %q", got)
	}
	c.Close()
	if f := w.allowed(); f.Requests != 1 || f.Error != "" {
		t.Errorf("flow %+v", f)
	}
}
