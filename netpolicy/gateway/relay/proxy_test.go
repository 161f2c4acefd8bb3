package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"proctor/audit"
	"proctor/netpolicy/egress"
	"proctor/testenv"
)

// What is asked of the proxy in ways that other programs take for an address, or that nobody
// granted, is refused, and nothing is connected to.
func TestProxyRefuses(t *testing.T) {
	for _, asked := range []string{
		"2130706433:80", "0x7f000001:80", "017700000001:80", "0:80", "127.1:80", "127.0.1:80", "0x7f.1:80",
		"127.0.0.1:80", "127.0.0.01:80", "127.0.0.1.:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "[::ffff:7f00:1]:80", "[::]:80", "0.0.0.0:80",
		"[::127.0.0.1]:80", "[fe80::1%25lo]:80", "[fe80::1%lo]:80", "::1:80", "[127.0.0.1]:80", "[one.test]:443",
		"localhost:80", "localhost.:80", "LOCALHOST:80", "169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80",
		"metadata.google.internal:80", "one.test:22", "one.test:0", "one.test:65536", "one.test:+443", "one.test:0443", "one.test:", "one.test:443:443",
		"xone.test:443", "one.test.other.test:443", "a.one.test:443", "one.test..:443", ".one.test:443", ":443", "user@one.test:443",
		"one.test@127.0.0.1:443", "one.test%00.other.test:443", "other.test:443", "198.18.0.2:443", "198.18.9.9:443", "203.0.113.1:22",
		"192.0.2.53:3128", "[::ffff:192.0.2.53]:3128", "ⓞne.test:443",
	} {
		for _, head := range []string{
			"CONNECT " + asked + " HTTP/1.1\r\nHost: " + asked + "\r\n\r\n",
			"GET http://" + asked + "/latest HTTP/1.1\r\nHost: " + asked + "\r\n\r\n",
		} {
			w := newWorld(t)
			// The one way to refuse the proxy itself is not that it is not granted.
			w.grants.ranges = append(w.grants.ranges, &egress.Grant{CIDR: netip.MustParsePrefix("192.0.2.0/24"), Ports: []uint16{3128}, Protocol: "tcp"})
			c := w.dial(proxyAddr)
			fmt.Fprint(c, head)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(head, err)
			}
			if got := readAll(t, resp.Body); !strings.HasPrefix(got, "proctor: ") || strings.Count(got, "\n") != 1 ||
				resp.StatusCode != 403 && (resp.StatusCode != 400 || strings.IndexFunc(asked, notToken) < 0) ||
				resp.Header.Get("X-Proctor-Rule") == "" || !strings.Contains(resp.Header.Get("Proxy-Status"), "proctor; error=") {
				t.Errorf("%q: %d %v %q", head, resp.StatusCode, resp.Header, got)
			}
			c.Close()
			f := w.flow()
			if f.Decision != audit.Blocked || f.Rule == "" || !f.Proxy || f.Address.String() != "192.0.2.53" || f.Port != 3128 {
				t.Errorf("%q: flow %+v", head, f)
			}
			if len(w.dialer.dialed) > 0 {
				t.Errorf("%q: %v was dialed", head, w.dialer.dialed)
			}
			w.quiet()
		}
	}
}

func TestProxyForms(t *testing.T) {
	for head, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n":                                         "this is a proxy",
		"GET https://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n":                         "with CONNECT",
		"GET ftp://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n":                           "http:// and CONNECT",
		"GET http://one.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n":                        "another host",
		"POST http://one.test/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n": "more than one",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                 "HTTP/2",
		"CONNECT one.test HTTP/1.1\r\n\r\n":                                                ruleSpelling,
		"\x05\x01\x00\r\n\r\n":                                                             "request line",
		"GET http://one.test:443/ HTTP/1.1\r\nHost: one.test:443\r\n\r\n":                  ruleOnlyTLS,
		"GET http://198.18.0.1:443/ HTTP/1.1\r\nHost: 198.18.0.1:443\r\n\r\n":              ruleOnlyTLS,
		"GET http://secret.test:443/ HTTP/1.1\r\nHost: secret.test:443\r\n\r\n":            ruleOnlyTLS,
		"GET http://one.test/\n\n":                                                         "CR LF",
	} {
		w := newWorld(t)
		c := w.dial(proxyAddr)
		fmt.Fprint(c, head)
		if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 40") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q", head, got)
		}
		c.Close()
		f := w.blocked(want)
		if strings.HasPrefix(head, "GET ") && strings.Contains(head, "\r\n\r\n") && f.Name != "one.test" && f.Name != "secret.test" && f.Claimed == "" {
			t.Errorf("%q: it is not said what was meant: %+v", head, f)
		}
		w.quiet()
	}
}

// proxied is a client that uses the proxy.
func (w *world) proxied() *http.Client {
	tr := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: w.at(proxyAddr), User: url.UserPassword("u", "p")}),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	w.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func TestProxyServes(t *testing.T) {
	w := newWorld(t)
	tlsServer(w, "one.test:443")
	httpServer(w, func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.Method, r.Host, r.RequestURI, r.Header.Get("Proxy-Authorization"))
	})
	w.dialer.set("203.0.113.5:80", w.dialer.to["one.test:80"])
	c := w.proxied()
	get := func(u, want string) audit.Flow {
		t.Helper()
		resp, err := c.Get(u)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := readAll(t, resp.Body); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		c.CloseIdleConnections()
		return w.allowed()
	}
	if f := get("https://one.test/a", "one.test /a"); f.Name != "one.test" || !f.Proxy || f.Port != 3128 || !f.Upstream.IsValid() || f.BytesDown < 1000 {
		t.Errorf("flow %+v", f)
	}
	if f := get("http://one.test/a?b", "GETone.test/a?b"); f.Name != "one.test" || !f.Proxy || f.Requests != 1 {
		t.Errorf("flow %+v", f)
	}
	if f := get("http://203.0.113.5/", "GET203.0.113.5/"); f.Name != "203.0.113.5" || f.Rule != "203.0.113.0/24" {
		t.Errorf("flow %+v", f)
	}
	// A client that has resolved the name itself.
	if f := get("http://one.test/", "GETone.test/"); f.Name != "one.test" {
		t.Errorf("flow %+v", f)
	}
	w.quiet()
}

// In a tunnel the rules are those of a connection to the name.
func TestProxyTunnel(t *testing.T) {
	tunnel := func(w *world, to string) net.Conn {
		c := w.dial(proxyAddr)
		fmt.Fprintf(c, "CONNECT %s HTTP/1.0\r\n\r\n", to)
		b := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
		if n, err := c.Read(b); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
			t.Fatalf("%q, %v", b[:n], err)
		}
		return c
	}
	w := newWorld(t, func(w *world) { w.opts.Terminator = terminator{make(chan []byte, 1)} })
	tlsServer(w, "one.test:443")
	httpServer(w, show)
	err := tls.Client(tunnel(w, "one.test:443"), &tls.Config{ServerName: "other.test"}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Error(err)
	}
	if f := w.blocked(ruleSNI); f.Claimed != "other.test" || f.Name != "one.test" || !f.Proxy {
		t.Errorf("flow %+v", f)
	}
	c := tunnel(w, "198.18.0.1:80")
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
	if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("got %q", got)
	}
	w.blocked(ruleHost)
	c = tunnel(w, "secret.test:443")
	hello := clientHello(&tls.Config{ServerName: "secret.test"})
	_, _ = c.Write(hello)
	c.(*net.TCPConn).CloseWrite()
	if got := readAll(t, c); got != "done" {
		t.Errorf("got %q", got)
	}
	w.dialer.set("203.0.113.7:5432", w.tcpServer(echo))
	c = tunnel(w, "203.0.113.7:5432")
	fmt.Fprint(c, "anything")
	c.(*net.TCPConn).CloseWrite()
	if got := readAll(t, c); got != "anything" {
		t.Errorf("got %q", got)
	}
	if f := w.allowed(); f.Name != "203.0.113.7" {
		t.Errorf("flow %+v", f)
	}
	w.quiet()
}

func TestProxyCannotConnect(t *testing.T) {
	for _, head := range []string{"CONNECT one.test:443 HTTP/1.1\r\n\r\n", "GET http://one.test/ HTTP/1.0\r\n\r\n"} {
		w := newWorld(t)
		c := w.dial(proxyAddr)
		fmt.Fprint(c, head)
		if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.HasSuffix(got, "\nproctor: one.test: no such name\n") {
			t.Errorf("got %q", got)
		}
		c.Close()
		if f := w.allowed(); f.Error != "no such name" {
			t.Errorf("flow %+v", f)
		}
	}
}

// One request a connection: a second one, for whomever, is not even read.
func TestProxyOneRequest(t *testing.T) {
	w := newWorld(t)
	httpServer(w, show)
	c := w.dial(proxyAddr)
	fmt.Fprint(c, "GET http://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\nGET http://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n")
	if got := readAll(t, c); strings.Count(got, "HTTP/1.1 200") != 1 || !strings.Contains(got, "Connection: close") {
		t.Errorf("got %q", got)
	}
	if f := w.allowed(); f.Requests != 1 {
		t.Errorf("flow %+v", f)
	}
}

// curl is one more client.
func TestProxyCurl(t *testing.T) {
	testenv.Tool(t, "curl")
	w := newWorld(t)
	tlsServer(w, "one.test:443")
	httpServer(w, show)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	proxy := "http://" + w.at(proxyAddr)
	out, err := exec.CommandContext(ctx, "curl", "-q", "-s", "-k", "-x", proxy, "https://one.test/a", "http://one.test/b", "-d", "x=y").CombinedOutput()
	if err != nil || string(out) != `one.test /aPOST one.test /b "x=y" <nil> [] map[]` {
		t.Errorf("%s, %v", out, err)
	}
	out, err = exec.CommandContext(ctx, "curl", "-q", "-s", "-S", "-k", "-x", proxy, "https://other.test/a").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "403") {
		t.Errorf("%s, %v", out, err)
	}
}
