package credential

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"proctor/audit"
)

// encoders are the real ones.
var encoders = map[string]func(w io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"raw":     func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 5); return f },
	"br":      func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd":    func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)); return z },
}

func encoded(data []byte, names ...string) []byte {
	for _, n := range names {
		var b bytes.Buffer
		w := encoders[n](&b)
		w.Write(data)
		w.Close()
		data = b.Bytes()
	}
	return data
}

func TestEchoIsRedacted(t *testing.T) { // P11
	bothProtocols(t, func(t *testing.T, down, up bool) {
		echo := func(r *http.Request) string { return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") }
		big := string(allBytes(300_000))
		// What may begin a secret is held back, however late the rest of it comes.
		late := func(o *runOptions) { o.change = func(o *Options) { o.Late = time.Minute } }
		for _, x := range []struct {
			name, want string
			h          http.HandlerFunc
			hits       map[string]int64
		}{
			{"header", "ok", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Echo", "it is "+echo(r))
				w.Header().Set("X-"+echo(r), "name")
				w.Header().Add("Set-Cookie", "a="+base64.StdEncoding.EncodeToString([]byte("u:"+echo(r))))
				fmt.Fprint(w, "ok")
			}, map[string]int64{"header": 3}},
			{"body", "<[redacted]>", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "<%s>", echo(r)) }, map[string]int64{"body": 1}},
			{"body with its whole field", "<[redacted]>", func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "<%s>", base64.StdEncoding.EncodeToString([]byte(r.Header.Get("Authorization"))))
			}, map[string]int64{"body": 1}},
			{"large body", big + "[redacted]" + big + "[redacted]", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(2*len(big)+2*len(echo(r))))
				fmt.Fprint(w, big, echo(r), big, echo(r))
			}, map[string]int64{"body": 2}},
			{"split in pieces", "a[redacted]b", func(w http.ResponseWriter, r *http.Request) {
				for _, c := range "a" + echo(r) + "b" {
					fmt.Fprintf(w, "%c", c)
					http.NewResponseController(w).Flush()
				}
			}, map[string]int64{"body": 1}},
			{"trailer", "ok", func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "ok")
				http.NewResponseController(w).Flush() // or HTTP/1.1 sends a length, and no trailers
				w.Header().Set(http.TrailerPrefix+"X-Tail", echo(r))
			}, map[string]int64{"trailer": 1}},
			{"error page", "no: [redacted]\n", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no: "+echo(r), 500) }, map[string]int64{"body": 1}},
		} {
			r := simple(t, up, x.h, late)
			res, body := send(t, r.client(down), "GET", "https://"+hostA+"/", "", nil)
			if body != x.want {
				t.Errorf("%s: body %.200q", x.name, body)
			}
			noSecret(t, x.name, fmt.Sprint(res.Status, res.Header, res.Trailer))
			for name := range res.Header {
				if strings.Contains(strings.ToLower(name), strings.ToLower(plainSecret)) {
					t.Errorf("%s: a field is named %s", x.name, name)
				}
			}
			r.end()
			for _, where := range []string{"header", "body", "trailer"} {
				if n := r.recorder.hits(where); n != x.hits[where] {
					t.Errorf("%s: %d hits in %s, not %d", x.name, n, where, x.hits[where])
				}
			}
			for _, s := range r.recorder.scrubs {
				if s.Credential != "key-of-"+hostA || s.Name != hostA {
					t.Errorf("%s: recorded %+v", x.name, s)
				}
			}
		}
	})
}

func TestEncodedBodies(t *testing.T) {
	long := strings.Repeat("filler ", 20_000)
	for _, x := range []struct {
		header string
		with   []string
	}{
		{"gzip", []string{"gzip"}}, {"X-GZIP", []string{"gzip"}}, {"deflate", []string{"deflate"}}, {"deflate", []string{"raw"}},
		{"br", []string{"br"}}, {"zstd", []string{"zstd"}}, {"identity", nil}, {"gzip, br", []string{"gzip", "br"}}, {"zstd,gzip,deflate", []string{"zstd", "gzip", "deflate"}},
	} {
		for _, text := range []string{"a " + plainSecret + " b", long + plainSecret + long, ""} {
			accept := ""
			r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
				accept = r.Header.Get("Accept-Encoding")
				w.Header().Set("Content-Encoding", x.header)
				w.Header().Set("ETag", `"1"`)
				w.Header().Set("Content-MD5", "x")
				if text != "" {
					w.Write(encoded([]byte(text), x.with...))
				}
			}, nil)
			res, body := send(t, r.client(false), "GET", "https://"+hostA+"/", "", http.Header{"Accept-Encoding": {"gzip, compress, br"}, "Range": {"bytes=3-9"}})
			if want := strings.ReplaceAll(text, plainSecret, Redacted); body != want {
				t.Errorf("%s: %d bytes, not %d: %.100q", x.header, len(body), len(want), body)
			}
			if e := res.Header.Get("Content-Encoding"); e != "" && x.with != nil {
				t.Errorf("%s: Content-Encoding %q is left", x.header, e)
			}
			if tag := res.Header.Get("ETag"); (tag == `W/"1"`) != (x.with != nil) {
				t.Errorf("%s: ETag %s", x.header, tag)
			}
			if res.Header.Get("Content-Md5") != "" {
				t.Error("a digest of another body is left")
			}
			if accept != acceptEncoding {
				t.Errorf("upstream may answer in %q", accept)
			}
			r.end()
			if n := r.recorder.hits("body"); (n == 1) != (text != "") {
				t.Errorf("%s: %d hits", x.header, n)
			}
		}
	}
}

func TestConnectionCannotHideAnEncoding(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		body := encoded([]byte(plainSecret), "gzip")
		fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nConnection: Content-Encoding, X-Gone\r\nX-Gone: 1\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		rw.Flush()
	}, nil)
	if res, body := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil); body != Redacted || res.Header.Get("X-Gone") != "" {
		t.Errorf("body %q, header %v", body, res.Header)
	}
}

func TestWhatCannotBeDecodedIsBlocked(t *testing.T) {
	for _, e := range []string{"compress", "gzip, aes128gcm", "gzip,gzip,gzip,gzip", "\"x\""} {
		r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", e)
			fmt.Fprint(w, plainSecret)
		}, nil)
		res, body := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil)
		if res.StatusCode != 502 || !strings.Contains(body, "encod") && !strings.Contains(body, "Encod") {
			t.Errorf("%s: %d %q", e, res.StatusCode, body)
		}
		noSecret(t, "answer", body)
		if f := r.flow(); f.Error == "" {
			t.Errorf("%s: flow %+v", e, f)
		}
	}
}

func TestBrokenBodiesEndBadly(t *testing.T) {
	whole := encoded([]byte(strings.Repeat("some text ", 100)), "gzip")
	for name, h := range map[string]http.HandlerFunc{
		"cut gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(whole[:len(whole)-9])
		},
		"no gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, plainSecret)
		},
		"data behind": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			w.Write(append(encoded([]byte("x"), "br"), allBytes(100_000)...))
		},
		"short length": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "short")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		r := simple(t, false, h, nil)
		res, err := r.client(false).Get("https://" + hostA + "/")
		if err == nil {
			var body []byte
			body, err = io.ReadAll(res.Body)
			res.Body.Close()
			noSecret(t, name, string(body))
		}
		if err == nil {
			t.Errorf("%s: the answer ended well", name)
		}
		r.end()
		if f := r.recorder.flows[0]; f.Error == "" {
			t.Errorf("%s: flow %+v", name, f)
		}
	}
}

func TestBombIsCountedAsItGoesOff(t *testing.T) {
	bomb := encoded(make([]byte, 50<<20), "zstd")
	m := &meter{}
	m.up.Store(1 << 20)
	m.down.Store(2 << 20)
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		w.Write(bomb)
	}, func(o *runOptions) { o.change = func(o *Options) { o.Meter = m } })
	res, err := r.client(false).Get("https://" + hostA + "/")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if err == nil || n > 2<<20 {
		t.Errorf("%d bytes from %d, error %v", n, len(bomb), err)
	}
}

func TestEventsAreNotLate(t *testing.T) {
	for _, encoding := range []string{"", "gzip", "br", "zstd", "deflate"} {
		next := make(chan bool)
		r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			var to io.Writer = w
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
				to = encoders[encoding](w)
			}
			for range 3 {
				fmt.Fprintf(to, "data: %s\n\n", plainSecret)
				if f, ok := to.(interface{ Flush() error }); ok {
					f.Flush()
				}
				http.NewResponseController(w).Flush()
				<-next
			}
		}, nil)
		res, err := r.client(false).Get("https://" + hostA + "/")
		if err != nil {
			t.Fatal(err)
		}
		rd := bufio.NewReader(res.Body)
		for range 3 {
			timer := time.AfterFunc(10*time.Second, func() { res.Body.Close() })
			line, err := rd.ReadString('\n')
			rd.ReadString('\n')
			timer.Stop()
			if line != "data: [redacted]\n" {
				t.Errorf("%s: event %q, %v", encoding, line, err)
			}
			next <- true
		}
		res.Body.Close()
		r.end()
		if len(r.recorder.scrubs) > 2 || r.recorder.hits("body") != 3 {
			t.Errorf("%s: recorded %+v", encoding, r.recorder.scrubs)
		}
	}
}

func TestAnswersWithoutBody(t *testing.T) {
	bothProtocols(t, func(t *testing.T, down, up bool) {
		r := simple(t, up, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				w.WriteHeader(204)
			case "/304":
				w.Header().Set("ETag", `"x"`)
				w.WriteHeader(304)
			case "/head":
				w.Header().Set("Content-Length", "12345")
			}
		}, nil)
		c := r.client(down)
		for path, want := range map[string]int{"/204": 204, "/304": 304, "/empty": 200} {
			if res, body := send(t, c, "GET", "https://"+hostA+path, "", nil); res.StatusCode != want || body != "" || res.Header.Get("Content-Type") != "" {
				t.Errorf("%s: %d %q %v", path, res.StatusCode, body, res.Header)
			}
		}
		if res, _ := send(t, c, "HEAD", "https://"+hostA+"/head", "", nil); res.ContentLength != 12345 {
			t.Errorf("HEAD: length %d", res.ContentLength)
		}
	})
}

// webSocket is a server that speaks after the switch without frames.
func webSocket(t *testing.T, talk func(rw *bufio.ReadWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Extensions") != "" || r.Header.Get("Authorization") != "Bearer "+plainSecret {
			t.Errorf("upstream got %v", r.Header)
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Echo: "+plainSecret+"\r\n\r\n")
		rw.Flush()
		talk(rw)
	}
}

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: " + hostA + "\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"

func TestWebSocket(t *testing.T) {
	r := simple(t, true, webSocket(t, func(rw *bufio.ReadWriter) {
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintf(rw, "%s %s s", strings.TrimSpace(line), plainSecret)
			rw.Flush()
		}
	}), func(o *runOptions) { o.websocket = true })
	conn := r.dial(hostA)
	fmt.Fprint(conn, upgradeRequest)
	rd := bufio.NewReader(conn)
	res, err := http.ReadResponse(rd, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("X-Echo") != Redacted {
		t.Fatalf("%v, %v", res, err)
	}
	for i := range 3 {
		fmt.Fprintf(conn, "hello %d\n", i)
		// As long as what was sent, and its last byte is not kept back.
		want := fmt.Sprintf("hello %d [redacted]%s s", i, strings.Repeat("*", len(plainSecret)-len(Redacted)))
		got := make([]byte, len(want))
		if _, err := io.ReadFull(rd, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	conn.Close()
	r.settle()
	if f := r.flow(); f.Requests != 1 || f.Credential == "" || f.BytesDown < 100 || f.Decision != audit.Allowed {
		t.Errorf("flow %+v", f)
	}
	if n := r.recorder.hits("body"); n != 3 {
		t.Errorf("%d hits", n)
	}
}

func TestWebSocketNeedsTheGrant(t *testing.T) {
	r := simple(t, false, func(http.ResponseWriter, *http.Request) { t.Error("asked") }, nil)
	conn := r.dial(hostA)
	fmt.Fprint(conn, upgradeRequest)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 403 {
		t.Fatalf("%v, %v", res, err)
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, res.ContentLength))
	if !strings.Contains(string(body), "websocket: true") {
		t.Errorf("answer %q", body)
	}
}

func TestSwitchThatNobodyAskedFor(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+plainSecret)
		rw.Flush()
	}, func(o *runOptions) { o.websocket = true })
	conn := r.dial(hostA)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", hostA)
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != 502 {
		t.Errorf("%v, %v", res, err)
	}
}
