package main_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"proctor/testenv"
)

// TestStopsWhateverCallersDo has callers that neither finish what they ask nor read what they are
// told. The supervisor ends in time all the same, and leaves nothing.
func TestStopsWhateverCallersDo(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	s := newSupervisor(t)
	for _, said := range []string{
		"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 56\r\n\r\n" + `{"language":"sh","name":"x","code":"eWVzCg=="}          `, // yes(1)
	} {
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, func() error {
		if len(s.records(t)) == 0 {
			return errors.New("no run")
		}
		return nil
	})
	// What runs have from the supervisor on SIGTERM is theirs: 10 s.
	began := time.Now()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}
