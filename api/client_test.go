package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"proctor/testenv"
)

func TestClientExplains(t *testing.T) {
	dir := testenv.Dir(t)
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "stale"), Net: "unix"})
	must(t, err)
	stale.SetUnlinkOnClose(false)
	stale.Close()
	for _, test := range []struct{ socket, says string }{
		{filepath.Join(dir, "none"), "none is running at " + dir},
		{filepath.Join(dir, "stale"), "sudo proctor serve"},
		{filepath.Join(dir, "file"), "none is running"},
		{filepath.Join(dir, strings.Repeat("s", 200)), "at most 107 bytes"},
	} {
		_, err := (&Client{Socket: test.socket}).Status(t.Context())
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.socket, err)
		}
	}
	if os.Geteuid() != 0 {
		closed, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "closed"), Net: "unix"})
		must(t, err)
		defer closed.Close()
		must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
		if _, err := (&Client{Socket: filepath.Join(dir, "closed")}).Status(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "group "+Group) {
			t.Errorf("without the right: %v", err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := (&Client{Socket: filepath.Join(dir, "none")}).Status(ctx); err == nil || err.Error() != "enough" {
		t.Errorf("with nobody waiting: %v", err)
	}
}

// answering is a server that says the given bytes to whoever calls, and hangs up.
func answering(t *testing.T, answer string) *Client {
	t.Helper()
	path := filepath.Join(testenv.Dir(t), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = c.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(c, answer)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return &Client{Socket: path}
}

func TestClientOfSomethingElse(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
	for _, test := range []struct{ answer, says string }{
		{"", "broke the call off"},
		{"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached"},
		{"HTTP/1.1 404 Not Found\r\n\r\nno such page", "is something else listening"},
		{"HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n", "is something else listening"},
		{ok, "the supervisor went away during the run"},
		{ok + `{"run":"` + myRun + `"}` + "\n" + `{"stdout":"eA=`, "the supervisor went away during the run"},
		{ok + "nonsense\n", "the supervisor went away during the run"},
		{ok + `{"error":{"message":"late","fix":"none"}}` + "\n", "late: none"},
	} {
		_, err := answering(t, test.answer).Run(t.Context(), runRequest(), nil, (&told{}).handler())
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v", test.answer, err)
		}
	}
	if _, err := answering(t, ok+"{").Status(t.Context()); err == nil || !strings.Contains(err.Error(), "answer of the supervisor") {
		t.Errorf("an answer that is cut off: %v", err)
	}
}

// Its messages are what the documentation of the API shows.
func TestMessages(t *testing.T) {
	for want, m := range map[string]Message{
		`{"run":"x"}`:               {Run: "x"},
		`{"stdout":"/w=="}`:         {Stdout: []byte{0xff}},
		`{"stderr":"YQ=="}`:         {Stderr: []byte("a")},
		`{"error":{"message":"m"}}`: {Error: &Error{Code: 500, Message: "m"}},
		`{"error":{"refused":true,"message":"m","fix":"f"}}`: {Error: &Error{Refused: true, Message: "m", Fix: "f"}},
	} {
		if got, err := json.Marshal(m); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

func TestLineWriter(t *testing.T) {
	var b bytes.Buffer
	l := &lineWriter{w: &b}
	for _, step := range []struct{ in, out string }{
		{"a", ""}, {"b\nc", "ab\n"}, {"", "ab\n"}, {"\n\nd\n", "ab\nc\n\nd\n"}, {"rest", "ab\nc\n\nd\n"},
	} {
		if n, err := l.Write([]byte(step.in)); n != len(step.in) || err != nil {
			t.Errorf("%q: %d, %v", step.in, n, err)
		}
		if b.String() != step.out {
			t.Errorf("after %q: %q, want %q", step.in, b.String(), step.out)
		}
	}
}
