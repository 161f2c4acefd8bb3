package thread_test

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/thread"
)

func TestRunGivesTheError(t *testing.T) {
	want := errors.New("x")
	if err := thread.Run(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if err := thread.Run(func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// The thread is not the main one, also where that one is idle and the first to be found, and
// is gone afterwards.
func TestRunEndsItsThread(t *testing.T) {
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	for range 200 {
		var tid int
		if err := thread.Run(func() error { tid = unix.Gettid(); return nil }); err != nil {
			t.Fatal(err)
		}
		if tid == os.Getpid() {
			t.Fatal("it ran on the main thread")
		}
		task := "/proc/self/task/" + strconv.Itoa(tid)
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(task); errors.Is(err, os.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the thread goes on")
			}
		}
	}
}

// Held by Run itself, the main thread is given back.
func TestRunLeavesTheMainThread(t *testing.T) {
	seen := false
	for deadline := time.Now().Add(10 * time.Second); !seen && time.Now().Before(deadline); {
		if err := thread.Run(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		main := make(chan bool, 64)
		for range cap(main) {
			go func() {
				time.Sleep(time.Microsecond)
				main <- unix.Gettid() == os.Getpid()
			}()
		}
		for range cap(main) {
			seen = <-main || seen
		}
	}
	if !seen {
		t.Error("no goroutine runs on the main thread any more")
	}
}
