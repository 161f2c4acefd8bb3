package relay

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// smuggled are requests that two programs may read in two ways, or that are for somebody else.
// They are sent to one.test.
var smuggled = []struct{ name, head, rule string }{
	{"length and chunked", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "together"},
	{"chunked and length", "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "together"},
	{"other coding", "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "exactly chunked"},
	{"xchunked", "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: xchunked\r\n\r\n", "exactly chunked"},
	{"identity", "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: identity\r\n\r\n", "exactly chunked"},
	{"chunked twice", "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "exactly chunked"},
	{"chunked with vertical tab", "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", "control"},
	{"chunked in 1.0", "POST / HTTP/1.0\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"},
	{"two hosts", "GET / HTTP/1.1\r\nHost: one.test\r\nHost: other.test\r\n\r\n", "more than one Host"},
	{"the same host twice", "GET / HTTP/1.1\r\nHost: one.test\r\nhost: one.test\r\n\r\n", "more than one Host"},
	{"no host", "GET / HTTP/1.1\r\nAccept: */*\r\n\r\n", "without Host"},
	{"no host in 1.0", "GET / HTTP/1.0\r\n\r\n", "without Host"},
	{"other host", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "another host"},
	{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "another host"},
	{"other port", "GET / HTTP/1.1\r\nHost: one.test:8080\r\n\r\n", "another host"},
	{"list of hosts", "GET / HTTP/1.1\r\nHost: one.test, other.test\r\n\r\n", "another host"},
	{"user in host", "GET / HTTP/1.1\r\nHost: one.test@other.test\r\n\r\n", "another host"},
	{"address as host", "GET / HTTP/1.1\r\nHost: 198.18.0.1\r\n\r\n", "another host"},
	{"lengths differ", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "more than one Content-Length"},
	{"list of lengths", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 5, 5\r\n\r\n", "no number"},
	{"length with sign", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: +5\r\n\r\n", "no number"},
	{"negative length", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: -5\r\n\r\n", "no number"},
	{"hexadecimal length", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 0x5\r\n\r\n", "no number"},
	{"empty length", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length:\r\n\r\n", "no number"},
	{"huge length", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 18446744073709551621\r\n\r\n", "no number"},
	{"folded", "GET / HTTP/1.1\r\nHost: one.test\r\nX: a\r\n Host: other.test\r\n\r\n", "folded"},
	{"folded first", "GET / HTTP/1.1\r\n Host: other.test\r\nHost: one.test\r\n\r\n", "folded"},
	{"bare LF", "GET / HTTP/1.1\nHost: one.test\r\n\r\n", "CR LF"},
	{"bare LF in the middle", "GET / HTTP/1.1\r\nX: a\nHost: other.test\r\nHost: one.test\r\n\r\n", "CR LF"},
	{"bare CR", "GET / HTTP/1.1\r\nX: a\rHost: other.test\r\nHost: one.test\r\n\r\n", "control"},
	{"NUL", "GET / HTTP/1.1\r\nHost: one.test\x00.other.test\r\n\r\n", "control"},
	{"NUL in name", "GET / HTTP/1.1\r\nHost\x00: one.test\r\n\r\n", "token"},
	{"space before colon", "GET / HTTP/1.1\r\nHost : one.test\r\n\r\n", "whitespace before"},
	{"tab before colon", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length\t: 5\r\n\r\n", "whitespace before"},
	{"no colon", "GET / HTTP/1.1\r\nHost: one.test\r\nX\r\n\r\n", "colon"},
	{"no name", "GET / HTTP/1.1\r\nHost: one.test\r\n: x\r\n\r\n", "token"},
	{"absolute, other authority", "GET http://other.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n", "another host"},
	{"absolute, other host", "GET http://one.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", "another host"},
	{"absolute, other port", "GET http://one.test:81/ HTTP/1.1\r\nHost: one.test\r\n\r\n", "another host"},
	{"absolute, user", "GET http://one.test@other.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n", "another host"},
	{"absolute, https", "GET https://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n", "no path"},
	{"authority", "GET one.test HTTP/1.1\r\nHost: one.test\r\n\r\n", "no path"},
	{"star", "GET * HTTP/1.1\r\nHost: one.test\r\n\r\n", "no path"},
	{"fragment", "GET /#a HTTP/1.1\r\nHost: one.test\r\n\r\n", "backslash"},
	{"CONNECT", "CONNECT other.test:443 HTTP/1.1\r\nHost: one.test\r\n\r\n", "CONNECT"},
	{"spaces", "GET /  HTTP/1.1\r\nHost: one.test\r\n\r\n", "request line"},
	{"tab", "GET\t/ HTTP/1.1\r\nHost: one.test\r\n\r\n", "request line"},
	{"four words", "GET / x HTTP/1.1\r\nHost: one.test\r\n\r\n", "request line"},
	{"0.9", "GET /\r\nHost: one.test\r\n\r\n", "request line"},
	{"version", "GET / HTTP/1.2\r\nHost: one.test\r\n\r\n", "version"},
	{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"},
	{"empty line first", "\r\nGET / HTTP/1.1\r\nHost: one.test\r\n\r\n", "no request line"},
	{"websocket", "GET / HTTP/1.1\r\nHost: one.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "websocket: true"},
	{"another protocol", "GET / HTTP/1.1\r\nHost: one.test\r\nConnection: Upgrade\r\nUpgrade: irc\r\n\r\n", "another protocol"},
	{"expectation", "POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 5\r\nExpect: 100-continue, x\r\n\r\n", "Expect"},
	{"many fields", "GET / HTTP/1.1\r\nHost: one.test\r\n" + strings.Repeat("X: y\r\n", maxFields) + "\r\n", "fields"},
	{"long head", "GET / HTTP/1.1\r\nHost: one.test\r\nX: " + strings.Repeat("y", maxHead) + "\r\n\r\n", "longer than"},
}

// check does with a head what a connection to one.test on port 80 does.
func check(head string) *refusal {
	h := &httpConn{s: new(session), t: target{name: "one.test", port: 80}}
	br := bufio.NewReaderSize(strings.NewReader(head), maxHead+4096)
	raw, err := readHead(br)
	if err != nil {
		return bad(err.Error())
	}
	_, wrong := h.check(raw)
	return wrong
}

func TestHeadRefused(t *testing.T) {
	for _, c := range smuggled {
		t.Run(c.name, func(t *testing.T) {
			wrong := check(c.head)
			if wrong == nil || !strings.Contains(wrong.rule, c.rule) {
				t.Errorf("%+v; it should be refused with %q", wrong, c.rule)
			}
		})
	}
}

func TestHeadTaken(t *testing.T) {
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: ONE.test.:80\r\n\r\n",
		"get /a%20b?c=d HTTP/1.0\r\nhost:one.test\r\nX:\tcaf\xc3\xa9\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: one.test\r\n\r\n",
		"GET HTTP://one.test HTTP/1.1\r\nHost: one.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: Chunked\r\nExpect: 100-Continue\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: one.test\r\nContent-Length: 0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: one.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
	} {
		if wrong := check(head); wrong != nil {
			t.Errorf("%q is refused: %+v", head, wrong)
		}
	}
}

// What is let through is read by net/http as it was read here, to the byte.
func FuzzHead(f *testing.F) {
	for _, c := range smuggled {
		f.Add([]byte(c.head))
	}
	f.Add([]byte("POST http://one.test/a?b HTTP/1.1\r\nHost: one.test\r\nContent-Length: 5\r\n\r\nhello"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(stream), maxHead+4096)
		raw, err := readHead(br)
		if err != nil {
			return
		}
		size := len(raw)
		h, wrong := checkHead(raw)
		if wrong != nil {
			return
		}
		if h.hosts > 1 || bytes.Contains(raw[:size-4], []byte("\r\n\r\n")) {
			t.Fatal("one head, and one Host")
		}
		if k := classify(raw); k != kindHTTP {
			t.Fatalf("a request is taken for %d", k)
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			return // is refused, too
		}
		if left, _ := io.ReadAll(br); len(left) != len(stream)-size {
			t.Fatalf("the head ends after %d bytes, and for net/http %d are left of %d", size, len(left), len(stream))
		}
		if req.Method != h.method || req.RequestURI != h.uri || req.ProtoMinor != h.minor {
			t.Fatalf("%+v, and for net/http %s %s", h, req.Method, req.RequestURI)
		}
		if req.URL.Host == "" && req.Method != "CONNECT" && req.Host != h.host {
			t.Fatalf("Host is %q, and for net/http %q", h.host, req.Host)
		}
		if chunked := len(req.TransferEncoding) > 0; chunked != h.chunked {
			t.Fatalf("chunked: %t, and for net/http %v", h.chunked, req.TransferEncoding)
		}
		if n, _ := strconv.ParseInt(h.length, 10, 64); !h.chunked && n != req.ContentLength {
			t.Fatalf("length %q, and for net/http %d", h.length, req.ContentLength)
		}
	})
}
