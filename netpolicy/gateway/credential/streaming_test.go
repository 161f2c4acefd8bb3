package credential

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

func TestBodiesStreamBothWays(t *testing.T) {
	bothProtocols(t, func(t *testing.T, down, up bool) {
		r := simple(t, up, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			buf := make([]byte, 100)
			for {
				n, err := r.Body.Read(buf)
				if n > 0 {
					fmt.Fprintf(w, "got %s", buf[:n])
					http.NewResponseController(w).Flush()
				}
				if err != nil {
					break
				}
			}
			w.Header().Set("X-Sum", "sum of "+r.Trailer.Get("X-Up")+r.Trailer.Get("Authorization"))
			w.Header().Set(http.TrailerPrefix+"X-Late", "late")
		}, nil)
		pr, pw := io.Pipe()
		req, _ := http.NewRequest("POST", "https://"+hostA+"/", pr)
		req.Trailer = http.Header{"X-Up": nil}
		if !down { // over HTTP/2 the server itself refuses it
			req.Trailer["Authorization"] = nil
		}
		res, err := r.client(down).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		buf := make([]byte, 100)
		for i := range 5 {
			// Each answer comes before the next part is sent; each ends with what may begin a secret.
			fmt.Fprintf(pw, "part %d s", i)
			want := fmt.Sprintf("got part %d s", i)
			for got := ""; got != want; {
				n, err := res.Body.Read(buf)
				if err != nil {
					t.Fatalf("after %q: %v", got, err)
				}
				got += string(buf[:n])
			}
		}
		req.Trailer.Set("X-Up", "up")
		if !down {
			req.Trailer.Set("Authorization", "own")
		}
		pw.Close()
		if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != 0 {
			t.Fatalf("rest %q, %v", rest, err)
		}
		if got := res.Trailer.Get("X-Sum"); got != "sum of up" {
			t.Errorf("trailer %q", got)
		}
		if got := res.Trailer.Get("X-Late"); got != "late" {
			t.Errorf("trailer that was not announced: %q", got)
		}
	})
}

func TestInformationalAnswers(t *testing.T) {
	bothProtocols(t, func(t *testing.T, down, up bool) {
		r := simple(t, up, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</x>; a="+plainSecret)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s", body)
		}, nil)
		var hints []string
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 {
				hints = append(hints, h.Get("Link"))
			}
			return nil
		}})
		req, _ := http.NewRequestWithContext(ctx, "POST", "https://"+hostA+"/", strings.NewReader("expected"))
		req.Header.Set("Expect", "100-continue")
		res, err := r.client(down).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != "expected" || res.Header.Get("Link") != "" {
			t.Errorf("answer %q %v", body, res.Header)
		}
		if len(hints) != 1 || hints[0] != "</x>; a=[redacted]" {
			t.Errorf("hints %q", hints)
		}
	})
}

func TestRefusedBodyIsNotAskedFor(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusExpectationFailed) }, nil)
	r.term.transport.ExpectContinueTimeout = time.Minute // after which the body is sent without being asked for
	conn := r.dial(hostA)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", hostA)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 417 {
		t.Errorf("%v, %v", res, err)
	}
}

func TestCaps(t *testing.T) {
	m := &meter{}
	m.up.Store(100_000)
	m.down.Store(100_000)
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Method == "GET" {
			w.Write(allBytes(1 << 20))
		}
	}, func(o *runOptions) { o.change = func(o *Options) { o.Meter = m } })
	res, err := r.client(false).Post("https://"+hostA+"/", "text/plain", strings.NewReader(string(allBytes(200_000))))
	if err == nil {
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 403 || !strings.Contains(string(body), "cap on bytes to the outside") {
			t.Errorf("answer %d %q", res.StatusCode, body)
		}
		res.Body.Close()
	}
	m.up.Store(1 << 20)
	res, err = r.client(false).Get("https://" + hostA + "/") // another connection, and flow
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err == nil || len(body) > 100_000 {
		t.Errorf("%d bytes of a body over the cap, error %v", len(body), err)
	}
	r.end()
	all := fmt.Sprint(r.recorder.flows)
	if !strings.Contains(all, "cap on bytes to the outside") || !strings.Contains(all, "cap on bytes from the outside") {
		t.Errorf("flows %s", all)
	}
}

func TestSilentConnectionIsClosed(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(o *runOptions) { o.change = func(o *Options) { o.Idle = 2 * time.Second } })
	start := time.Now()
	res, err := r.client(false).Get("https://" + hostA + "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("a body that never ended ended well")
	}
	res.Body.Close()
	if d := time.Since(start); d > 15*time.Second {
		t.Errorf("closed after %v", d)
	}
}

func TestLargeHeaderIsRefused(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X", string(allBytes(80_000))) }, nil)
	if res, _ := send(t, r.client(false), "GET", "https://"+hostA+"/", "", http.Header{"X": {strings.Repeat("x", 80_000)}}); res.StatusCode != 431 {
		t.Errorf("a request with a large header: %d", res.StatusCode)
	}
	if res, _ := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil); res.StatusCode != 502 {
		t.Errorf("an answer with a large header: %d", res.StatusCode)
	}
}
