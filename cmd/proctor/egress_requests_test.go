package main_test

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"proctor/audit"
)

func testRequests(t *testing.T, w *world, s *supervisor) {
	_, before := w.seen()
	v := s.verdict(t, "python", attempts+`
for what, data in {
    "another host": b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: api.example\r\nHost: other.example\r\n\r\n",
    "absolute": b"GET http://other.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "both lengths": b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no HTTP": b"SSH-2.0-x\r\n",
}.items():
    attempt(what, lambda: raw("api.example", data))
def pipelined():
    with socket.create_connection(("api.example", 80), 10) as s:
        s.sendall(b"GET /first HTTP/1.1\r\nHost: api.example\r\n\r\nGET /second HTTP/1.1\r\nHost: other.example\r\n\r\n")
        data = b""
        while part := s.recv(4096): data += part
        return [l.split(b"\r\n")[0].decode() for l in data.split(b"HTTP/1.1 ")[1:]]
attempt("pipelined", pipelined)
`, "--profile", "client")
	checkLines(t, v, "another host: HTTP/1.1 403 Forbidden", "two hosts: HTTP/1.1 400 Bad Request", "absolute: HTTP/1.1 403 Forbidden",
		"both lengths: HTTP/1.1 400 Bad Request", "no HTTP: …", "pipelined: ['200 OK', '403 Forbidden']")
	_, after := w.seen()
	if got := after[len(before):]; len(got) != 1 || !strings.Contains(got[0], "GET api.example/first") {
		t.Errorf("the outside saw %q", got)
	}
}

// The explicit proxy follows the same rules, and opens nothing else: what it could reach of
// this host are servers on loopback and whatever the tests' own machine has.
func testProxy(t *testing.T, w *world, s *supervisor) {
	var canary net.Listener
	w.within(func() (err error) {
		canary, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	defer canary.Close()
	touched := make(chan string, 100)
	go func() {
		for {
			c, err := canary.Accept()
			if err != nil {
				return
			}
			touched <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	port := canary.Addr().(*net.TCPAddr).Port
	v := s.verdict(t, "python", attempts+fmt.Sprintf(`
os.environ["http_proxy"] = os.environ["https_proxy"] = os.environ["PROCTOR_PROXY"]
attempt("https", lambda: get("https://api.example/p"))
attempt("http", lambda: get("http://api.example/p"))
attempt("not granted", lambda: get("https://other.example/"))
address = os.environ["PROCTOR_PROXY"].removeprefix("http://").split(":")
def connect(target):
    with socket.create_connection((address[0], int(address[1])), 10) as s:
        s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return s.recv(4096).split(b"\r\n")[0].decode()
for host in "127.0.0.1", "localhost", "localhost.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "169.254.169.254", "192.0.2.1", "api.example@127.0.0.1":
    attempt(host, lambda: connect(f"{host}:%d"))
attempt("granted, another port", lambda: connect("api.example:22"))
attempt("itself", lambda: connect(":".join(address)))
attempt("relative", lambda: raw(address[0], b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", int(address[1])))
`, port), "--profile", "client")
	want := []string{"https: hello from api.example", "http: hello from api.example", "not granted: URLError <urlopen error Tunnel connection failed: 403 Forbidden>"}
	for _, host := range []string{"127.0.0.1", "localhost", "localhost.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "169.254.169.254", "192.0.2.1"} {
		want = append(want, host+": HTTP/1.1 403 Forbidden")
	}
	want = append(want, "api.example@127.0.0.1: HTTP/1.1 4…", "granted, another port: HTTP/1.1 403 Forbidden", "itself: HTTP/1.1 403 Forbidden", "relative: HTTP/1.1 4…")
	checkLines(t, v, want...)
	select {
	case from := <-touched:
		t.Errorf("the canary was reached from %s", from)
	default:
	}
	for _, e := range s.events(t, v.Run) {
		if e.Finding != nil {
			t.Errorf("finding %+v", *e.Finding)
		}
	}
}

func testOffline(t *testing.T, w *world, s *supervisor) {
	asked, _ := w.seen()
	v := s.verdict(t, "python", attempts+`
attempt("name", lambda: socket.getaddrinfo("files.pythonhosted.org", 443))
attempt("granted elsewhere", lambda: get("https://api.example/"))
def ask(server, proto):
    q = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\3www\4evil\7example\0\0\20\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if proto == "udp" else socket.SOCK_STREAM) as s:
        s.settimeout(5)
        s.connect((server, 53))
        if proto == "tcp": q = len(q).to_bytes(2, "big") + q
        s.send(q)
        a = s.recv(512)
        return (a[2:] if proto == "tcp" else a)[3] & 15
for proto in "udp", "tcp":
    for server in "192.0.2.53", "198.51.100.8":
        attempt(f"{proto} {server}", lambda: ask(server, proto))
attempt("DNS over TLS", lambda: socket.create_connection(("198.51.100.8", 853), 5))
attempt("proxy", lambda: socket.create_connection(("198.18.0.3", 3128), 5))
print(os.environ.get("PROCTOR_PROXY"), os.environ.get("SSL_CERT_FILE"))
`)
	const refused = "PermissionError [Errno 1] Operation not permitted"
	checkLines(t, v, "name: gaierror [Errno -2] Name or service not known", "granted elsewhere: URLError <urlopen error [Errno -2] Name or service not known>",
		"udp 192.0.2.53: 3", "udp 198.51.100.8: "+refused, "tcp 192.0.2.53: 3", "tcp 198.51.100.8: "+refused, "DNS over TLS: "+refused, "proxy: "+refused, "None None")
	if now, _ := w.seen(); len(now) != len(asked) {
		t.Errorf("the resolver of the host was asked for %q", now[len(asked):])
	}
	if !strings.Contains(v.Remedy, "packages come with the image") {
		t.Errorf("remedy %q", v.Remedy)
	}
	n := 0
	for _, e := range s.events(t, v.Run) {
		if e.Query != nil && e.Query.Name == "www.evil.example" && e.Query.Type == "TXT" && e.Query.Decision == audit.Blocked {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d questions are recorded, want 2", n)
	}
}

// testProtocols is HTTP/2 and WebSockets, through the explicit proxy and without it, to a host
// whose TLS ends at the gateway and to one whose TLS is passed on.
func testProtocols(t *testing.T, w *world, s *supervisor) {
	_, before := w.seen()
	v := s.verdict(t, "python", attempts+`
proxy = os.environ["PROCTOR_PROXY"].removeprefix("http://").split(":")
def secure(host, protocol, by_proxy):
    s = socket.create_connection((proxy[0], int(proxy[1])) if by_proxy else (host, 443), 10)
    if by_proxy:
        s.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"): head += s.recv(1)
        assert head.split()[1] == b"200", head
    context = ssl.create_default_context()
    context.set_alpn_protocols([protocol])
    return context.wrap_socket(s, server_hostname=host)
def whole(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part: raise EOFError(data)
        data += part
    return data
def http2(host, path, by_proxy):
    def field(name, value): return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    def frame(kind, flags, stream, data): return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data
    head = field(b":method", b"GET") + field(b":scheme", b"https") + field(b":authority", host.encode()) + field(b":path", path)
    with secure(host, "h2", by_proxy) as s:
        if s.selected_alpn_protocol() != "h2": return s.selected_alpn_protocol()
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 5, 1, head))
        body = b""
        while True:
            h = whole(s, 9)
            data = whole(s, int.from_bytes(h[:3], "big"))
            if h[3] == 0: body += data
            if h[3] in (3, 7): return h, data
            if h[3] in (0, 1) and h[4] & 1: return body.decode()
def websocket(host, by_proxy):
    with secure(host, "http/1.1", by_proxy) as s:
        s.sendall(f"GET /v1/socket HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"): head += whole(s, 1)
        if head.split()[1] != b"101": return head.split(b"\r\n")[0].decode()
        s.sendall(b"\x82\x85\0\0\0\0hello")
        back = whole(s, 11)
        h = whole(s, 2)
        return back[6:].decode(), whole(s, h[1])
for by_proxy in False, True:
    attempt(f"h2 {by_proxy}", lambda: http2("api.example", b"/v1/two", by_proxy))
    attempt(f"h2 path {by_proxy}", lambda: http2("api.example", b"/admin", by_proxy))
    attempt(f"h2 passed on {by_proxy}", lambda: http2("other.example", b"/two", by_proxy))
    attempt(f"websocket {by_proxy}", lambda: websocket("api.example", by_proxy))
    attempt(f"websocket passed on {by_proxy}", lambda: websocket("other.example", by_proxy))
`, "--profile", "key")
	var want []string
	for _, by := range []string{"False", "True"} {
		want = append(want, "h2 "+by+": hello from api.example",
			"h2 path "+by+`: proctor: credential key allows methods GET, POST and paths /v1/*, /echo, /redirect: path "/admin" is not among them`, "", "h2 passed on "+by+": hello from other.example",
			"websocket "+by+`: ('hello', b'auth Bearer [redacted]…`, "websocket passed on "+by+": ('hello', b'auth ')")
	}
	checkLines(t, v, want...)
	_, after := w.seen()
	credited := 0
	for _, r := range after[len(before):] {
		if strings.HasPrefix(r, "api.example: ") != strings.Contains(r, theSecret) {
			t.Errorf("the outside saw %s", r)
		} else if strings.Contains(r, theSecret) {
			credited++
		}
	}
	if credited != 4 {
		t.Errorf("%d requests had the secret, want 4: %q", credited, after[len(before):])
	}
	proxied := 0
	for _, e := range s.events(t, v.Run) {
		if e.Finding != nil {
			t.Errorf("finding %+v", *e.Finding)
		}
		if e.Flow != nil && e.Flow.Proxy {
			proxied++
		}
	}
	if proxied != 5 {
		t.Errorf("%d connections by the proxy are recorded, want 5", proxied)
	}
	checkNoSecret(t, s)
}

// echoSocket becomes a WebSocket that sends back the first frame as it came, and then one with
// what stood in Authorization.
func echoSocket(rw http.ResponseWriter, r *http.Request) {
	conn, both, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455
	fmt.Fprintf(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(accept[:]))
	both.Flush()
	frame := make([]byte, 11)
	if _, err := io.ReadFull(both, frame); err != nil {
		return
	}
	text := "auth " + r.Header.Get("Authorization")
	both.Write(frame)
	both.Write(append([]byte{0x81, byte(len(text))}, text...))
	both.Flush()
	_, _ = io.Copy(io.Discard, both)
}
