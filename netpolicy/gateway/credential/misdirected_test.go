package credential

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"proctor/audit"
)

// A request for another host ends the connection and is recorded at once, whatever was asked on
// the connection before, and though the code keeps its side open.
func TestMisdirectedIsRecordedAtOnce(t *testing.T) {
	r := simple(t, false, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }, nil)
	conn := r.dial(hostA)
	br := bufio.NewReader(conn)
	ask(t, conn, br, "GET", hostA, 200)
	ask(t, conn, br, "TRACE", hostA, 405) // what is refused before does not hide it
	ask(t, conn, br, "GET", hostB, 421)
	begin := time.Now()
	r.settle()
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("was recorded after %s", took)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
	}
	misdirected(t, r.flow())
}

func ask(t *testing.T, conn io.Writer, br *bufio.Reader, method, host string, status int) {
	t.Helper()
	fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: %s\r\n\r\n", method, host)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode != status {
		t.Fatalf("%s: %d, want %d", host, res.StatusCode, status)
	}
}

// misdirected checks the one flow of a connection of which a part went out.
func misdirected(t *testing.T, f audit.Flow) {
	t.Helper()
	if f.Decision != audit.Blocked || f.Name != hostA || f.Claimed != hostB || !strings.Contains(f.Rule, hostB) || f.Credential == "" || !f.Upstream.IsValid() || f.BytesUp == 0 {
		t.Errorf("flow %+v", f)
	}
}

// In HTTP/2 what else goes on has a moment to end, and can't put the record off.
func TestMisdirectedIsRecordedBesideAStream(t *testing.T) {
	going := make(chan struct{})
	r := simple(t, false, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		_ = http.NewResponseController(w).Flush()
		close(going)
		<-r.Context().Done()
	}, nil)
	c := r.client(true)
	ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
	defer stop()
	req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+hostA+"/", nil)
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	<-going
	other, _ := http.NewRequestWithContext(ctx, "GET", "https://"+hostA+"/", nil)
	other.Host = hostB
	begin := time.Now()
	if no, err := c.Do(other); err != nil || no.StatusCode != 421 {
		t.Fatalf("%v, %v", no, err)
	} else {
		no.Body.Close()
	}
	r.settle()
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("was recorded after %s", took)
	}
	misdirected(t, r.flow())
}
