package credential

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"proctor/netpolicy/egress"
)

// rawUpstream is a server that answers each request of a connection as serve says, with the
// numbers of the connection and of the request on it; false closes the connection.
func rawUpstream(t *testing.T, serve func(conn net.Conn, r *http.Request, connection, request int) bool) *run {
	t.Helper()
	u := newUpstreams(t, hostA)
	leaf, err := u.ca.Leaf(hostA)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*leaf}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				defer conn.Close()
				br := bufio.NewReader(conn)
				for i := 1; ; i++ {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, r.Body); err != nil || !serve(conn, r, n, i) {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { cancel(); l.Close(); <-done })
	r := newRun(t, runOptions{
		credentials: []egress.Credential{bearer(hostA)}, secrets: map[string]string{"key-of-" + hostA: plainSecret},
		to: map[string]string{hostA: l.Addr().String()}, roots: u.roots,
	})
	r.term.hosts[hostA].http1.Store(true)
	return r
}

func text(conn net.Conn, body string) {
	fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestUpstreamIsKnownByItsFirstAnswer is how requests come to be served without the transport.
func TestUpstreamIsKnownByItsFirstAnswer(t *testing.T) {
	bothProtocols(t, func(t *testing.T, down, up bool) {
		r := simple(t, up, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }, nil)
		known := &r.term.hosts[hostA].http1
		known.Store(false)
		c := r.client(down)
		for i := range 3 {
			if _, body := send(t, c, "GET", "https://"+hostA+"/", "", nil); body != "ok" {
				t.Fatal(body)
			}
			if known.Load() == up {
				t.Errorf("after answer %d: known to speak HTTP/1.1 only: %v", i, known.Load())
			}
		}
		want := int64(1)
		if !up {
			want = 2 // the first was the transport's
		}
		if n := r.dialer.conns.Load(); n != want {
			t.Errorf("%d connections, not %d", n, want)
		}
	})
}

// A WebSocket is asked for over HTTP/1.1 also where the upstream speaks HTTP/2: it says nothing of
// the next request.
func TestWebSocketTellsNothingOfTheProtocol(t *testing.T) {
	r := simple(t, true, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) }, func(o *runOptions) { o.websocket = true })
	conn := r.dial(hostA)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", hostA)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusForbidden {
		t.Fatal(res, err)
	}
	if r.term.hosts[hostA].http1.Load() {
		t.Error("the upstream is taken for one without HTTP/2")
	}
}

func TestConnectionIsKept(t *testing.T) {
	for name, answer := range map[string]string{
		"length": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"none":   "HTTP/1.1 204 No Content\r\n\r\n",
		"hints":  "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := rawUpstream(t, func(conn net.Conn, _ *http.Request, _, _ int) bool {
				fmt.Fprint(conn, answer)
				return true
			})
			c := r.client(false)
			for _, method := range []string{"GET", "POST", "GET"} {
				send(t, c, method, "https://"+hostA+"/", strings.Repeat("b", 2*(len(method)-3)), nil)
			}
			if n := r.dialer.conns.Load(); n != 1 {
				t.Errorf("%d connections for 3 requests", n)
			}
			if idle := len(r.term.direct.idle[hostA]); idle != 1 {
				t.Errorf("%d are kept", idle)
			}
		})
	}
}

// TestConnectionIsNotKept where what comes next on it is not the next answer.
func TestConnectionIsNotKept(t *testing.T) {
	for name, answer := range map[string]string{
		"close":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		"old":         "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"one too far": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
	} {
		t.Run(name, func(t *testing.T) {
			r := rawUpstream(t, func(conn net.Conn, _ *http.Request, _, _ int) bool {
				fmt.Fprint(conn, answer)
				return true
			})
			c := r.client(false)
			for range 3 {
				if _, body := send(t, c, "GET", "https://"+hostA+"/", "", nil); body != "ok" {
					t.Errorf("answer %q", body)
				}
			}
			if n := r.dialer.conns.Load(); n != 3 {
				t.Errorf("%d connections for 3 requests", n)
			}
		})
	}
}

// TestLateAnswerIsNotTheNext sends more than was asked for after the answer was passed on.
func TestLateAnswerIsNotTheNext(t *testing.T) {
	sent := make(chan struct{})
	r := rawUpstream(t, func(conn net.Conn, _ *http.Request, connection, _ int) bool {
		text(conn, "ok")
		if connection == 1 {
			go func() {
				time.Sleep(50 * time.Millisecond)
				text(conn, "evil")
				close(sent)
			}()
		}
		return true
	})
	c := r.client(false)
	for range 2 {
		if _, body := send(t, c, "GET", "https://"+hostA+"/", "", nil); body != "ok" {
			t.Errorf("answer %q", body)
		}
		<-sent
	}
}

// TestClosedConnectionIsTriedAgain where the upstream closes as the request comes: what changes
// nothing is asked again on a new connection, and what may have been done is not.
func TestClosedConnectionIsTriedAgain(t *testing.T) {
	var asked atomic.Int64
	r := rawUpstream(t, func(conn net.Conn, _ *http.Request, _, request int) bool {
		asked.Add(1)
		if request == 2 {
			return false
		}
		text(conn, "ok")
		return true
	})
	c := r.client(false)
	for _, step := range []struct {
		method string
		status int
		asked  int64 // in all
	}{{"GET", 200, 1}, {"GET", 200, 3}, {"POST", 502, 4}, {"GET", 200, 5}} {
		body := ""
		if step.method == "POST" {
			body = "once"
		}
		if res, answer := send(t, c, step.method, "https://"+hostA+"/", body, nil); res.StatusCode != step.status || asked.Load() != step.asked {
			t.Errorf("%s: %s %q, asked %d times; want %+v", step.method, res.Status, answer, asked.Load(), step)
		}
	}
}

func TestLongHeaderOfAnAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"field": "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 70<<10) + "\r\nContent-Length: 0\r\n\r\n",
		"hints": strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 3000) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		r := rawUpstream(t, func(conn net.Conn, _ *http.Request, _, _ int) bool {
			fmt.Fprint(conn, answer)
			return true
		})
		if res, body := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil); res.StatusCode != 502 || !strings.Contains(body, "header") {
			t.Errorf("%s: %s %q", name, res.Status, body)
		}
	}
}

// TestEarlyAnswer comes before the request's body was read, and then the connection is closed.
func TestEarlyAnswer(t *testing.T) {
	u := newUpstreams(t, hostA)
	leaf, _ := u.ca.Leaf(hostA)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*leaf}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		br := bufio.NewReader(conn)
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 413 Too Long\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlong")
		_, _ = io.Copy(io.Discard, br)
	}()
	r := newRun(t, runOptions{
		credentials: []egress.Credential{bearer(hostA)}, secrets: map[string]string{"key-of-" + hostA: plainSecret},
		to: map[string]string{hostA: l.Addr().String()}, roots: u.roots,
	})
	r.term.hosts[hostA].http1.Store(true)
	if res, body := send(t, r.client(false), "POST", "https://"+hostA+"/", strings.Repeat("b", directBody), nil); res.StatusCode != 413 || body != "long" {
		t.Errorf("%s %q", res.Status, body)
	}
}

// TestCodeGoesAway while the upstream has not answered: its connection is closed.
func TestCodeGoesAway(t *testing.T) {
	gone, asked := make(chan struct{}), make(chan struct{})
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(gone)
	}, nil)
	conn := r.dial(hostA)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", hostA)
	<-asked
	conn.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the upstream was not told")
	}
}

func TestKeptConnectionsExpire(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }, nil)
	send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil)
	d := r.term.direct
	d.mu.Lock()
	c := d.idle[hostA][0]
	d.mu.Unlock()
	d.expire(c)
	if n := len(d.idle[hostA]); n != 0 {
		t.Errorf("%d are kept", n)
	}
	if _, err := c.conn.Write([]byte("x")); err == nil {
		t.Error("it is open")
	}
}
