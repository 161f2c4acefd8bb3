package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/testenv"
)

func tlsServer(w *world, names ...string) *httptest.Server {
	s := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %s", r.TLS.ServerName, r.URL.Path)
	}))
	w.Cleanup(func() { w.stop(); s.Close() })
	for _, name := range names {
		w.dialer.set(name, s.Listener.Addr().String())
	}
	return s
}

func TestTLSPassesUntouched(t *testing.T) {
	w := newWorld(t)
	s := tlsServer(w, "one.test:443")
	// httptest's certificate is for another name; that it is the server's own is checked below.
	c := w.client(s, "")
	c.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	for _, host := range []string{"one.test", "ONE.test."} {
		resp, err := c.Get("https://" + host + "/a")
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp.Body); !strings.HasSuffix(got, " /a") {
			t.Errorf("got %q", got)
		}
		if !bytes.Equal(resp.TLS.PeerCertificates[0].Raw, s.Certificate().Raw) {
			t.Error("the certificate is not the server's")
		}
		resp.Body.Close()
		c.CloseIdleConnections()
		f := w.allowed()
		if f.Name != "one.test" || f.Address != netip.MustParseAddr("198.18.0.1") || f.Port != 443 || f.Client == 0 ||
			f.Upstream.String() != s.Listener.Addr().String() || f.BytesUp < 500 || f.BytesDown < 1000 || f.DurationMS <= 0 || f.Error != "" {
			t.Errorf("flow %+v", f)
		}
	}
	w.quiet()
}

// A client with another SNI gets an alert that says so; nothing is connected to.
func TestTLSRefused(t *testing.T) {
	for _, c := range []struct {
		name, dest, sni, rule, alert string
		claimed                      string
	}{
		{"other name", "198.18.0.1:443", "other.test", ruleSNI, "unrecognized name", "other.test"},
		{"below the name", "198.18.0.1:443", "a.one.test", ruleSNI, "unrecognized name", "a.one.test"},
		{"no name", "198.18.0.1:443", "", "names no server", "unrecognized name", ""},
		{"other port", "198.18.0.1:8080", "other.test", ruleSNI, "unrecognized name", "other.test"},
		{"TLS on 80", "198.18.0.1:80", "one.test", ruleOnlyHTTP, "access denied", ""},
		{"name not granted", "198.18.0.2:443", "other.test", "other.test is not granted on port 443", "access denied", ""},
		{"never resolved", "198.18.9.9:443", "one.test", ruleNeverResolved, "access denied", "one.test"},
		{"an address", "192.0.2.7:443", "one.test", "192.0.2.7 is not granted", "access denied", "one.test"},
		{"credential, and nobody adds it", "198.18.0.3:443", "secret.test", ruleNoTerminator, "access denied", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			conn := w.dial(c.dest)
			err := tls.Client(conn, &tls.Config{ServerName: c.sni, InsecureSkipVerify: true}).Handshake()
			conn.Close()
			if err == nil || !strings.Contains(err.Error(), c.alert) {
				t.Errorf("the client sees %v; it should see the alert %q", err, c.alert)
			}
			f := w.blocked(c.rule)
			if string(f.Claimed) != c.claimed || f.Upstream.IsValid() || f.BytesUp != 0 {
				t.Errorf("flow %+v", f)
			}
			if len(w.dialer.dialed) > 0 {
				t.Errorf("%v was dialed", w.dialer.dialed)
			}
			w.quiet()
		})
	}
}

// A hello that comes byte by byte, in small records, arrives as it was sent.
func TestSplitHello(t *testing.T) {
	w := newWorld(t)
	got := make(chan []byte, 1)
	hello := fragment(clientHello(&tls.Config{ServerName: "one.test"}), 11)
	w.dialer.set("one.test:443", w.tcpServer(func(c *net.TCPConn) {
		b := make([]byte, len(hello))
		_, _ = io.ReadFull(c, b)
		got <- b
	}))
	c := w.dial("198.18.0.1:443")
	for _, b := range hello {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if b := <-got; !bytes.Equal(b, hello) {
		t.Errorf("it arrived as %x", b)
	}
	c.Close()
	if f := w.allowed(); f.BytesUp != int64(len(hello)) {
		t.Errorf("flow %+v", f)
	}
}

func TestSlowHello(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t, func(w *world) { w.opts.HelloTimeout = 2 * time.Second })
	hello := clientHello(&tls.Config{ServerName: "one.test"})
	c := w.dial("198.18.0.1:443")
	if _, err := c.Write(hello[:100]); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, c); got != "\x15\x03\x03\x00\x02\x02\x32" {
		t.Errorf("the client sees %q", got)
	}
	w.blocked("not all of it came within 2s")

	// One that keeps sending has no longer than one that doesn't.
	c = w.dial("198.18.0.1:443")
	begin := time.Now()
	for time.Since(begin) < 20*time.Second && len(hello) > 0 {
		if _, err := c.Write(hello[:1]); err != nil {
			break
		}
		hello = hello[1:]
		time.Sleep(20 * time.Millisecond)
	}
	if d := time.Since(begin); d > 12*time.Second {
		t.Errorf("it went on for %s", d)
	}
	w.blocked("not all of it came")
}

func TestLongHello(t *testing.T) {
	w := newWorld(t)
	c := w.dial("198.18.0.1:443")
	// As long as it may be, and then a record's length of garbage more.
	msg := append([]byte{1, 0, 0xff, 0xf0}, make([]byte, 70<<10)...)
	go func() { _, _ = c.Write(fragment(append(make([]byte, recordHeader), msg...), 1000)) }()
	_, _ = io.Copy(io.Discard, c)
	w.blocked("longer than 65536 bytes")
}

func TestOnlyTLSOn443(t *testing.T) {
	w := newWorld(t)
	c := w.dial("198.18.0.1:443")
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: one.test\r\n\r\n")
	if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, ruleOnlyTLS) {
		t.Errorf("got %q", got)
	}
	w.blocked(ruleOnlyTLS)
	c = w.dial("198.18.0.1:443")
	fmt.Fprint(c, "SSH-2.0-x\r\n")
	isReset(t, c)
	w.blocked(ruleOnlyTLS)
}

func isReset(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client sees %v; it should see a reset", err)
	}
}

// On a port of its own a granted name may speak whatever it wants.
func TestOtherProtocols(t *testing.T) {
	t.Parallel() // it waits most of the time
	t.Run("server first", func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.opts.SpeakTimeout, w.opts.HelloTimeout = 50*time.Millisecond, time.Minute })
		w.dialer.set("one.test:5432", w.tcpServer(func(c *net.TCPConn) { fmt.Fprint(c, "220 hello\r\n"); echo(c) }))
		c := w.dial("198.18.0.1:5432")
		b := make([]byte, 11)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "220 hello\r\n" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
		w.allowed()
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		w := newWorld(t)
		s := tlsServer(w)
		w.dialer.set("one.test:5432", w.tcpServer(func(c *net.TCPConn) {
			b := make([]byte, 8)
			_, _ = io.ReadFull(c, b)
			fmt.Fprint(c, "S")
			srv := tls.Server(c, &tls.Config{Certificates: s.TLS.Certificates})
			_, _ = io.Copy(srv, srv)
			srv.Close()
		}))
		c := w.dial("198.18.0.1:5432")
		_, _ = c.Write([]byte{0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f})
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != 'S' {
			t.Fatalf("%q, %v", b, err)
		}
		cl := tls.Client(c, &tls.Config{ServerName: "any.test", InsecureSkipVerify: true})
		fmt.Fprint(cl, "query")
		b = make([]byte, 5)
		if _, err := io.ReadFull(cl, b); err != nil || string(b) != "query" {
			t.Errorf("%q, %v", b, err)
		}
		cl.Close()
		w.allowed()
	})
	t.Run("client first", func(t *testing.T) {
		w := newWorld(t)
		w.dialer.set("one.test:5432", w.tcpServer(echo))
		c := w.dial("198.18.0.1:5432")
		fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
		c.CloseWrite()
		if got := readAll(t, c); got != "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n" {
			t.Errorf("%q", got)
		}
		w.allowed()
	})
	t.Run("HTTP for another host, slowly", func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.opts.SpeakTimeout = time.Second })
		c := w.dial("198.18.0.1:8080")
		for i, part := range []string{"\r\nG", "ET / HTTP/1.1\r\n", "Host: other.test\r\n\r\n"} {
			if i > 0 {
				time.Sleep(1200 * time.Millisecond) // longer than one that says nothing is waited for
			}
			fmt.Fprint(c, part)
		}
		if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%q", got)
		}
		w.blocked("")
	})
	t.Run("half a hello", func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.opts.HelloTimeout = 200 * time.Millisecond })
		c := w.dial("198.18.0.1:8080")
		_, _ = c.Write([]byte{22})
		isReset(t, c)
		w.blocked("neither a ClientHello nor a request within")
	})
}

func TestGrantedRange(t *testing.T) {
	w := newWorld(t)
	w.dialer.set("203.0.113.9:5432", w.tcpServer(echo))
	c := w.dial("203.0.113.9:5432")
	hello := clientHello(&tls.Config{ServerName: "any.test"})
	_, _ = c.Write(hello)
	c.CloseWrite()
	if got := readAll(t, c); got != string(hello) {
		t.Errorf("%q", got)
	}
	if f := w.allowed(); f.Rule != "203.0.113.0/24" || f.Name != "" || f.Upstream != netip.MustParseAddrPort("203.0.113.9:5432") {
		t.Errorf("flow %+v", f)
	}
	w.isReset("203.0.113.9:22")
	w.blocked("203.0.113.9 is not granted")
	w.quiet()
}

// A synthetic address that stands for nothing is refused, even where a range would grant it.
func TestUnknownSynthetic(t *testing.T) {
	w := newWorld(t)
	w.grants.ranges[0].CIDR = netip.MustParsePrefix("198.18.0.0/15")
	w.isReset("198.18.7.7:5432")
	w.blocked(ruleNeverResolved)
}

// curl is one more client.
func TestCurl(t *testing.T) {
	testenv.Tool(t, "curl")
	w := newWorld(t)
	tlsServer(w, "one.test:443")
	curl := func(args ...string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		args = append([]string{"-q", "-s", "-S", "-k", "--noproxy", "*", "--connect-to", "::" + w.at("198.18.0.1:443")}, args...)
		out, _ := exec.CommandContext(ctx, "curl", args...).CombinedOutput()
		return string(out)
	}
	if got := curl("https://one.test/a"); got != "one.test /a" {
		t.Errorf("got %q", got)
	}
	w.allowed()
	if got := curl("https://other.test/a"); !strings.Contains(got, "unrecognized name") {
		t.Errorf("got %q", got)
	}
	w.blocked(ruleSNI)
}

type terminator struct{ hello chan []byte }

func (x terminator) Serve(_ context.Context, conn net.Conn, name string, dest netip.AddrPort, client uint16) error {
	if name != "secret.test" || dest.Port() != 443 || client == 0 {
		return fmt.Errorf("%s %s %d", name, dest, client)
	}
	b, err := io.ReadAll(conn)
	x.hello <- b
	fmt.Fprint(conn, "done")
	return errors.Join(err, conn.(interface{ CloseWrite() error }).CloseWrite())
}

func TestTerminator(t *testing.T) {
	hello := clientHello(&tls.Config{ServerName: "secret.test"})
	x := terminator{make(chan []byte, 1)}
	w := newWorld(t, func(w *world) { w.opts.Terminator = x })
	c := w.dial("198.18.0.3:443")
	_, _ = c.Write(hello)
	fmt.Fprint(c, "more")
	c.CloseWrite()
	if got := <-x.hello; string(got) != string(hello)+"more" {
		t.Errorf("it got %q", got)
	}
	if got := readAll(t, c); got != "done" {
		t.Errorf("the client got %q", got)
	}
	// Another name's hello does not get there.
	if err := tls.Client(w.dial("198.18.0.3:443"), &tls.Config{ServerName: "one.test"}).Handshake(); err == nil {
		t.Error("it did")
	}
	w.blocked(ruleSNI)
	if n := w.relay.up.used.Load(); n != int64(len(hello)+4) {
		t.Errorf("%d bytes up are counted", n)
	}
	w.quiet() // the terminator records the rest
}
