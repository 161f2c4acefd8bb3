package credential

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

func TestHeaderIsReplaced(t *testing.T) {
	bothProtocols(t, func(t *testing.T, down, up bool) {
		type seen struct {
			header http.Header
			host   string
			uri    string
			proto  int
		}
		got := make(chan seen, 10)
		r := simple(t, up, func(w http.ResponseWriter, r *http.Request) {
			got <- seen{r.Header.Clone(), r.Host, r.RequestURI, r.ProtoMajor}
			w.Header().Set("X-Kept", "yes")
			fmt.Fprint(w, "hello")
		}, nil)
		c := r.client(down)
		for _, h := range []http.Header{
			{},
			{"Authorization": {"Bearer own"}},
			{"Authorization": {"Bearer own", "Basic two"}, "authorization": {"x"}, "AUTHORIZATION": {"y"}},
			{"Connection": {"Authorization, X-Gone"}, "Authorization": {"z"}, "X-Gone": {"1"}},
		} {
			if down {
				delete(h, "Connection") // HTTP/2 has none
				delete(h, "X-Gone")
			}
			res, body := send(t, c, "GET", "https://"+hostA+"/v1/a%20b?x=%41&y", "", h)
			if res.StatusCode != 200 || body != "hello" || res.Header.Get("X-Kept") != "yes" {
				t.Fatalf("answer %d %q", res.StatusCode, body)
			}
			s := <-got
			if a := s.header["Authorization"]; len(a) != 1 || a[0] != "Bearer "+plainSecret {
				t.Errorf("with %v upstream got Authorization %q", h, a)
			}
			if s.header.Get("X-Gone") != "" {
				t.Error("a field that Connection names went on")
			}
			if s.host != hostA || s.uri != "/v1/a%20b?x=%41&y" {
				t.Errorf("upstream got host %q, uri %q", s.host, s.uri)
			}
			if (s.proto == 2) != up {
				t.Errorf("upstream was asked with HTTP/%d", s.proto)
			}
		}
		f := r.flow()
		if f.Credential != "key-of-"+hostA || f.Requests != 4 || f.Decision != audit.Allowed || f.Rule != "host "+hostA || f.Error != "" {
			t.Errorf("flow %+v", f)
		}
		if f.Upstream.String() != r.dialer.to[hostA+":443"] || f.Address != dest.Addr() || f.Port != 443 || f.Client == 0 || f.BytesUp < 100 || f.BytesDown < 20 {
			t.Errorf("flow %+v", f)
		}
	})
}

func TestRedirectIsNotFollowed(t *testing.T) { // P8
	bothProtocols(t, func(t *testing.T, down, up bool) {
		var atB []http.Header
		u := newUpstreams(t, hostA, hostB)
		b := u.start(t, hostB, up, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			atB = append(atB, r.Header.Clone())
			if r.URL.Path == "/again" {
				return
			}
			http.Redirect(w, r, "https://"+hostB+"/again", http.StatusFound)
		}))
		a := u.start(t, hostA, up, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+plainSecret {
				t.Error("a got no credential")
			}
			code := http.StatusFound
			if r.Method == "POST" {
				code = http.StatusTemporaryRedirect
			}
			http.Redirect(w, r, "https://"+hostB+"/x", code)
		}))
		// b has a credential of its own, so that it is served here, too.
		other := "another-secret-of-b-0123"
		r := newRun(t, runOptions{
			credentials: []egress.Credential{bearer(hostA), {Name: "b", Host: hostB, Header: "X-Key"}},
			secrets:     map[string]string{"key-of-" + hostA: plainSecret, "b": other},
			to:          map[string]string{hostA: a, hostB: b}, roots: u.roots,
		})
		c := r.client(down)
		if res, _ := send(t, c, "GET", "https://"+hostA+"/", "", nil); res.StatusCode != 302 || res.Header.Get("Location") != "https://"+hostB+"/x" {
			t.Fatalf("answer %d, Location %q: a redirect is the code's to follow", res.StatusCode, res.Header.Get("Location"))
		}
		if len(atB) != 0 {
			t.Fatal("the gateway followed a redirect")
		}
		c.CheckRedirect = nil // as the code follows it: a, b, b
		for _, method := range []string{"GET", "POST"} {
			body := ""
			if method == "POST" {
				body = "payload"
			}
			if res, _ := send(t, c, method, "https://"+hostA+"/", body, http.Header{"Authorization": {"Bearer own"}}); res.StatusCode != 200 {
				t.Fatalf("%s: answer %d", method, res.StatusCode)
			}
		}
		if len(atB) != 4 {
			t.Fatalf("b was asked %d times", len(atB))
		}
		for _, h := range atB {
			noSecret(t, "b's request", fmt.Sprint(h))
			if h.Get("X-Key") != other {
				t.Error("b did not get its own")
			}
		}
	})
}

func TestOtherHostIsMisdirected(t *testing.T) {
	asked := false
	r := simple(t, false, func(http.ResponseWriter, *http.Request) { asked = true }, nil)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: " + hostB + "\r\n\r\n",
		"GET https://" + hostB + "/ HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"GET http://" + hostA + "/ HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + hostA + ":8443\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x." + hostA + "\r\n\r\n",
		"TRACE / HTTP/1.1\r\nHost: " + hostB + "\r\n\r\n",
		"CONNECT " + hostB + ":443 HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
	} {
		conn := r.dial(hostA)
		fmt.Fprint(conn, request)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(io.LimitReader(res.Body, res.ContentLength))
		if res.StatusCode != 421 || strings.Count(string(body), "\n") != 1 {
			t.Errorf("%q: answer %d %q", request, res.StatusCode, body)
		}
		conn.Close()
	}
	c := r.client(true)
	req, _ := http.NewRequest("GET", "https://"+hostA+"/", nil)
	req.Host = hostB
	res, err := c.Do(req)
	if err != nil || res.StatusCode != 421 {
		t.Errorf("over HTTP/2: %v, %v", res, err)
	}
	r.end()
	if asked {
		t.Error("a misdirected request went on")
	}
	if n := len(r.recorder.flows); n != 8 {
		t.Fatalf("%d flows for 8 connections", n)
	}
	for _, f := range r.recorder.flows {
		if f.Decision != audit.Blocked || f.Claimed == "" || f.Credential != "" || f.Upstream.IsValid() {
			t.Errorf("flow %+v", f)
		}
	}
}

func TestCaseAndLastDotOfHostDoNotMatter(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }, nil)
	c := r.client(false)
	for _, host := range []string{"API.example", hostA + ".", hostA + ":443"} {
		req, _ := http.NewRequest("GET", "https://"+hostA+"/", nil)
		req.Host = host
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || string(body) != hostA {
			t.Errorf("host %q: %d, upstream was asked for %q", host, res.StatusCode, body)
		}
	}
}

func TestMethodsThatAreNeverSentOn(t *testing.T) {
	asked := false
	r := simple(t, false, func(http.ResponseWriter, *http.Request) { asked = true }, nil)
	for _, request := range []string{
		"TRACE / HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"CONNECT " + hostA + ":443 HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
	} {
		conn := r.dial(hostA)
		fmt.Fprint(conn, request)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 405 {
			t.Errorf("%q: %v, %v", request, res, err)
		}
		conn.Close()
	}
	if asked {
		t.Error("it went on")
	}
}

func TestRulesAreEnforced(t *testing.T) {
	var asked []string
	r := simple(t, false, func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.Method+" "+r.RequestURI) }, func(o *runOptions) {
		o.credentials[0].Methods, o.credentials[0].Paths = []string{"GET"}, []string{"/v1/models*"}
	})
	for _, x := range []struct {
		method, path string
		header       http.Header
		want         int
	}{
		{"GET", "/v1/models", nil, 200},
		{"GET", "/v1/models/a%20b?q=/../", nil, 200},
		{"GET", "/v1/%6dodels", nil, 200},
		{"POST", "/v1/models", nil, 403},
		{"GET", "/v1/files", nil, 403},
		{"GET", "/v1/models/../files", nil, 403},
		{"GET", "/v1/models/%2e%2e/files", nil, 403},
		{"GET", "/v1/models%2f..%2ffiles", nil, 403},
		{"GET", "/V1/models", nil, 403},
		{"GET", "//v1/models", nil, 403},
		{"GET", "/v1/models/..;/files", nil, 403},
		{"GET", "/v1/models", http.Header{"X-Http-Method-Override": {"DELETE"}}, 403},
		{"GET", "/v1/models", http.Header{"X_http_method_override": {"DELETE"}}, 403},
		{"GET", "/v1/models", http.Header{"X-Original-Url": {"/v1/files"}}, 403},
	} {
		asked = nil
		conn := r.dial(hostA)
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n", x.method, x.path, hostA)
		x.header.Write(conn)
		fmt.Fprint(conn, "\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(io.LimitReader(res.Body, max(res.ContentLength, 0)))
		conn.Close()
		if res.StatusCode != x.want {
			t.Errorf("%s %s %v: %d, not %d", x.method, x.path, x.header, res.StatusCode, x.want)
		}
		if x.want == 200 && (len(asked) != 1 || asked[0] != x.method+" "+x.path) {
			t.Errorf("%s %s: upstream was asked %q", x.method, x.path, asked)
		}
		if x.want == 403 && (len(asked) != 0 || !strings.Contains(string(body), "methods GET and paths /v1/models*") || strings.Count(string(body), "\n") != 1) {
			t.Errorf("%s %s: upstream was asked %q, answer %q", x.method, x.path, asked, body)
		}
	}
}

func TestUpstreamMustBeTheGrantedHost(t *testing.T) {
	for name, change := range map[string]func(u *upstreams, o *runOptions, t *testing.T){
		"certificate of another host": func(u *upstreams, o *runOptions, t *testing.T) {
			o.to[hostA] = u.start(t, hostB, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
		},
		"certificate of nobody known": func(u *upstreams, o *runOptions, t *testing.T) {
			other := newUpstreams(t, hostA)
			o.to[hostA] = other.start(t, hostA, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
		},
		"plain HTTP": func(u *upstreams, o *runOptions, t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") })}
			done := make(chan struct{})
			go func() { s.Serve(ln); close(done) }()
			t.Cleanup(func() { s.Close(); <-done })
			o.to[hostA] = ln.Addr().String()
		},
		"nothing there": func(_ *upstreams, o *runOptions, _ *testing.T) { delete(o.to, hostA) },
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstreams(t, hostA, hostB)
			o := runOptions{
				credentials: []egress.Credential{bearer(hostA)}, secrets: map[string]string{"key-of-" + hostA: plainSecret},
				to: map[string]string{}, roots: u.roots,
			}
			change(u, &o, t)
			r := newRun(t, o)
			res, body := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil)
			if res.StatusCode != 502 || !strings.HasPrefix(body, "proctor: "+hostA+": ") {
				t.Errorf("answer %d %q", res.StatusCode, body)
			}
			noSecret(t, "answer", body)
			if f := r.flow(); f.Error == "" || f.Credential != "" {
				t.Errorf("flow %+v", f)
			}
		})
	}
}

// led is the error of a dialer for a name that has forbidden addresses alone.
type led struct{ error }

func (led) Forbidden() (string, netip.AddrPort) {
	return "leads elsewhere", netip.MustParseAddrPort("10.0.0.1:443")
}

func TestForbiddenAddressIsBlocked(t *testing.T) {
	u := newUpstreams(t, hostA)
	r := newRun(t, runOptions{
		credentials: []egress.Credential{bearer(hostA)}, secrets: map[string]string{"key-of-" + hostA: plainSecret},
		to: map[string]string{}, roots: u.roots,
	})
	r.dialer.err = led{errors.New("forbidden")}
	if res, body := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil); res.StatusCode != 502 {
		t.Errorf("answer %d %q", res.StatusCode, body)
	}
	if f := r.flow(); f.Decision != audit.Blocked || f.Rule != "leads elsewhere" || f.Upstream.String() != "10.0.0.1:443" || f.Credential != "" {
		t.Errorf("flow %+v", f)
	}
}

func TestWhatIsNotServed(t *testing.T) {
	r := simple(t, false, func(http.ResponseWriter, *http.Request) { t.Error("asked") }, nil)
	for _, x := range []Target{
		{Name: hostB, Port: 443, Dest: dest},
		{Name: hostA, Port: 444, Dest: dest},
		{Name: hostA, Port: 8443, Dest: dest}, // granted, and still not for the credential
	} {
		a, b := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- r.term.ServeTarget(context.Background(), a, x) }()
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%+v: the connection was not closed: %v", x, err)
		}
		if err := <-done; err == nil {
			t.Errorf("%+v: no error", x)
		}
	}
	r.end()
	if len(r.recorder.flows) != 3 {
		t.Fatalf("%d flows", len(r.recorder.flows))
	}
	for _, f := range r.recorder.flows {
		if f.Decision != audit.Blocked || f.Rule == "" {
			t.Errorf("flow %+v", f)
		}
	}
}

func TestTLSForAnotherHostIsRefused(t *testing.T) {
	r := simple(t, false, func(http.ResponseWriter, *http.Request) { t.Error("asked") }, nil)
	conn, err := net.Dial("tcp", r.listeners[hostA])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tc := tlsClient(conn, hostB)
	if err := tc.Handshake(); err == nil {
		t.Error("the handshake went well")
	}
	conn.Close()
	r.settle()
	f := r.flow()
	if f.Claimed != hostB || f.Decision != audit.Blocked || f.Error == "" {
		t.Errorf("flow %+v", f)
	}
}

func TestDistrustIsSaid(t *testing.T) {
	r := simple(t, false, func(http.ResponseWriter, *http.Request) { t.Error("asked") }, nil)
	conn, err := net.Dial("tcp", r.listeners[hostA])
	if err != nil {
		t.Fatal(err)
	}
	if err := tlsClientTrusting(conn, hostA, x509.NewCertPool()).Handshake(); err == nil {
		t.Error("the handshake went well")
	}
	conn.Close()
	r.settle()
	if f := r.flow(); !strings.Contains(f.Error, "SSL_CERT_FILE") {
		t.Errorf("flow %+v", f)
	}
}
