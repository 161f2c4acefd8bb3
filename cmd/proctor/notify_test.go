package main_test

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"proctor/testenv"
)

// TestServiceManager stands in for systemd: it is told when the supervisor is ready, that it is
// well, and when it stops.
func TestServiceManager(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	path := filepath.Join(testenv.Dir(t), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1000)
		for {
			n, err := manager.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			said = append(said, string(buf[:n]))
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { manager.Close(); <-done })

	dir := testenv.Dir(t)
	s := describe(t, dir, pickImages(t, dir, "shell"))
	s.env = []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=300000"}
	t.Cleanup(func() { s.unmountAll(t) })
	s.showLog(t)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	told := func(what string, times int) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for _, m := range said {
				if m == what {
					n++
				}
			}
			if n < times {
				return fmt.Errorf("%s was told %d times, not %d: %q", what, n, times, said)
			}
			return nil
		})
	}
	told("WATCHDOG=1", 5)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	told("STOPPING=1", 1)
	mu.Lock()
	defer mu.Unlock()
	alive := 0
	for _, m := range said {
		if m == "WATCHDOG=1" {
			alive++
		}
	}
	if said[0] != "READY=1" || alive < 5 || slices.Index(said, "STOPPING=1") < 6 || len(said) != alive+2 {
		t.Errorf("the service manager was told %q", said)
	}
}
