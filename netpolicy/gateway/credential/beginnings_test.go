package credential

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const aBeginning = "body (a beginning)"

// echoLines is a WebSocket server that answers each line with the line, without its end.
func echoLines(t *testing.T) http.HandlerFunc {
	return webSocket(t, func(rw *bufio.ReadWriter) {
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(rw, strings.TrimSpace(line))
			rw.Flush()
		}
	})
}

func TestGuessesByEchoEnd(t *testing.T) {
	r := simple(t, false, echoLines(t), func(o *runOptions) { o.websocket = true })
	for i := range maxBeginnings {
		conn := r.dial(hostA)
		fmt.Fprint(conn, upgradeRequest)
		rd := bufio.NewReader(conn)
		if res, err := http.ReadResponse(rd, nil); err != nil || res.StatusCode != 101 {
			t.Fatalf("%d: %v, %v", i, res, err)
		}
		// Four bytes may be a coincidence, and go on.
		fmt.Fprintf(conn, "zzzz%s\n", plainSecret[:maxReleased])
		want := "zzzz" + plainSecret[:maxReleased]
		got := make([]byte, len(want))
		if _, err := io.ReadFull(rd, got); err != nil || string(got) != want {
			t.Fatalf("%d: %q, %v", i, got, err)
		}
		fmt.Fprint(conn, "!\n")
		if b, err := rd.ReadByte(); err != nil || b != '!' {
			t.Fatalf("%d: then %q, %v", i, b, err)
		}
		fmt.Fprintf(conn, "zzzz%s\n", plainSecret[:maxReleased+1+i])
		rest, _ := io.ReadAll(rd)
		if s := string(rest); s != "zzzz" && s != "" {
			t.Errorf("%d: %q came", i, s)
		}
		conn.Close()
	}
	res, body := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil)
	if res.StatusCode != 403 || !strings.Contains(body, "credential key-of-"+hostA+" is not used any more") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	noSecret(t, "answer", body)
	r.end()
	if n := r.recorder.hits(aBeginning); n != maxBeginnings {
		t.Errorf("%d beginnings recorded", n)
	}
	for _, f := range r.recorder.flows[:maxBeginnings] {
		if !strings.Contains(f.Error, "secret") {
			t.Errorf("flow %+v", f)
		}
	}
}

// Code that has the server go on before the time is over sees what was held back as well.
func TestQuickGuessesCount(t *testing.T) {
	r := simple(t, false, echoLines(t), func(o *runOptions) {
		o.websocket = true
		o.change = func(o *Options) { o.Late = time.Minute }
	})
	conn := r.dial(hostA)
	fmt.Fprint(conn, upgradeRequest)
	rd := bufio.NewReader(conn)
	if res, err := http.ReadResponse(rd, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	for i := range maxBeginnings - 1 {
		for _, x := range []struct{ say, want string }{{"zzzz" + plainSecret[:6+i], "zzzz"}, {"!", plainSecret[:6+i] + "!"}} {
			fmt.Fprintln(conn, x.say)
			got := make([]byte, len(x.want))
			if _, err := io.ReadFull(rd, got); err != nil || string(got) != x.want {
				t.Fatalf("%d: %q, %v", i, got, err)
			}
		}
	}
	fmt.Fprintln(conn, "zzzz"+plainSecret[:9])
	if rest, _ := io.ReadAll(rd); len(rest) > 0 {
		t.Errorf("%q came", rest)
	}
	if res, _ := send(t, r.client(false), "GET", "https://"+hostA+"/", "", nil); res.StatusCode != 403 {
		t.Errorf("answer %d", res.StatusCode)
	}
	r.end()
	if n := r.recorder.hits(aBeginning); n != maxBeginnings {
		t.Errorf("%d beginnings recorded", n)
	}
}

func TestAnswerThatStopsInABeginningIsEnded(t *testing.T) {
	bothProtocols(t, func(t *testing.T, down, up bool) {
		r := simple(t, up, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "zzzz"+plainSecret[:9])
			http.NewResponseController(w).Flush()
			<-r.Context().Done() // the stream's end
		}, nil)
		res, err := r.client(down).Get("https://" + hostA + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != "zzzz" || err == nil {
			t.Errorf("%q, %v", body, err)
		}
		r.end()
		if n := r.recorder.hits(aBeginning); n != 1 {
			t.Errorf("%d beginnings recorded", n)
		}
	})
}

// A whole secret in pieces is taken out as ever, however often.
func TestSecretsInPiecesAreNoGuesses(t *testing.T) {
	r := simple(t, true, func(w http.ResponseWriter, r *http.Request) {
		for range 2 * maxBeginnings {
			for _, s := range []string{"a" + plainSecret[:9], plainSecret[9:] + "b"} {
				fmt.Fprint(w, s)
				http.NewResponseController(w).Flush()
			}
		}
	}, func(o *runOptions) { o.change = func(o *Options) { o.Late = time.Minute } })
	for range 2 {
		if _, body := send(t, r.client(true), "GET", "https://"+hostA+"/", "", nil); body != strings.Repeat("a[redacted]b", 2*maxBeginnings) {
			t.Errorf("%q", body)
		}
	}
	r.end()
	if n := r.recorder.hits(aBeginning); n != 0 {
		t.Errorf("%d beginnings recorded", n)
	}
}

// The host of another credential is no way to guess on.
func TestGuessesByAnotherHost(t *testing.T) {
	b := beginnings{seen: map[beginningOf]int{}}
	for range maxBeginnings {
		if err := b.refuses("a"); err != nil {
			t.Fatal(err)
		}
		b.add(beginningOf{"a", "a"}, 1)
	}
	if b.refuses("a") == nil || b.refuses("b") != nil {
		t.Error("not a alone is refused")
	}
	b.add(beginningOf{"a", "b"}, 1)
	if b.refuses("b") == nil || b.refuses("c") != nil {
		t.Error("not a and b alone are refused")
	}
}

func TestDecodersHaveABound(t *testing.T) {
	wait := make(chan bool)
	r := simple(t, true, func(w http.ResponseWriter, r *http.Request) {
		with := []string{"br", "br", "br"}
		if r.URL.Path == "/zstd" {
			with = []string{"zstd"}
		}
		w.Header().Set("Content-Encoding", strings.Join(with, ", "))
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		if r.URL.Path == "/wait" {
			<-wait
		}
		w.Write(encoded([]byte("text"), with...))
	}, nil)
	r.term.decoderWait = 50 * time.Millisecond
	c := r.client(true)
	var open []*http.Response
	for range 2 {
		res, err := c.Get("https://" + hostA + "/wait")
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		defer res.Body.Close()
		open = append(open, res)
	}
	for _, path := range []string{"/", "/zstd"} {
		if res, body := send(t, c, "GET", "https://"+hostA+path, "", nil); res.StatusCode != 503 || !strings.Contains(body, "96 MiB") {
			t.Errorf("%s: %d %q", path, res.StatusCode, body)
		}
	}
	close(wait)
	for _, res := range open {
		if body, err := io.ReadAll(res.Body); string(body) != "text" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
	}
	r.term.decoderWait = 10 * time.Second // until those have ended
	for range 5 {
		if res, body := send(t, c, "GET", "https://"+hostA+"/", "", nil); res.StatusCode != 200 || body != "text" {
			t.Errorf("later: %d %q", res.StatusCode, body)
		}
	}
}

func TestUpstreamConnectionsHaveABound(t *testing.T) {
	for _, known := range []bool{false, true} { // that it speaks HTTP/1.1: by the transport, or without
		const most, requests = 2, 12
		r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(20 * time.Millisecond)
			fmt.Fprint(w, "ok")
		}, func(o *runOptions) { o.change = func(o *Options) { o.Connections = most } })
		c := r.client(true)
		done := make(chan string, requests)
		for range requests {
			go func() {
				req, _ := http.NewRequest("GET", "https://"+hostA+"/", nil)
				if !known {
					req.Method, req.Body, req.ContentLength = "POST", io.NopCloser(strings.NewReader("x")), -1 // not for direct
				}
				res, err := c.Do(req)
				if err != nil {
					done <- err.Error()
					return
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				done <- string(body)
			}()
		}
		for range requests {
			if s := <-done; s != "ok" {
				t.Errorf("answer %q", s)
			}
		}
		if n := r.dialer.conns.Load(); n > most {
			t.Errorf("%d connections, not %d", n, most)
		}
	}
}
