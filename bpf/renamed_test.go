package bpf_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// actRename opens a file n times by the directory that it is in, while that is renamed to and fro
// between two names, of which each is below a directory of its own.
func actRename(args []string) error {
	names := args[:2]
	var n int
	if _, err := fmt.Sscan(args[2], &n); err != nil {
		return err
	}
	dir, err := unix.Open(names[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	var done atomic.Bool
	var renamer sync.WaitGroup
	var renameErr error
	renamer.Go(func() {
		runtime.LockOSThread()
		for i := 0; !done.Load() && renameErr == nil; i++ {
			renameErr = unix.Rename(names[i%2], names[(i+1)%2])
		}
	})
	for i := range n {
		fd, err := unix.Openat(dir, "f", neverTwice(i), 0)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	done.Store(true)
	renamer.Wait()
	return renameErr
}

// A path is one that the file had, whatever is renamed meanwhile, or it is in doubt; and nothing else
// of the kernel's memory is in it.
func TestRenamedMeanwhile(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Fatal("with one processor there is nothing to race")
	}
	h := newHost(t)
	const n = 100_000
	for name, last := range map[string][2]string{"lengths": {"a/s", "a/" + strings.Repeat("l", 250)}, "parents": {"a/tA", "b/tC"}} {
		t.Run(name, func(t *testing.T) {
			dir := testenv.Dir(t)
			for _, d := range []string{"a", "b", last[0]} {
				if err := os.MkdirAll(dir+"/"+d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(dir+"/"+last[0]+"/f", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			b := h.box(t, "renamed-"+name, 128<<20)
			b.act(t, "rename", dir+"/"+last[0], dir+"/"+last[1], fmt.Sprint(n))
			var named, doubts uint64
			wrong := map[string]uint64{}
			for _, e := range b.record(t) {
				switch {
				case e.Kind != audit.KindOpen || !strings.HasPrefix(string(e.Open.Path), dir+"/") && e.Open.Path != "":
				case e.Doubtful():
					doubts += e.Acts()
				case string(e.Open.Path) == dir+"/"+last[0]+"/f", string(e.Open.Path) == dir+"/"+last[1]+"/f":
					named += e.Acts()
				case strings.Contains(string(e.Open.Path), "/f"), !strings.HasSuffix(string(e.Open.Path), "/"+last[0]):
					wrong[e.Open.Path.Printable()] += e.Acts()
				}
			}
			t.Logf("%d named, %d in doubt", named, doubts)
			for path, times := range wrong {
				t.Errorf("%s, which never was, %d times", path, times)
			}
			if named+doubts != n {
				t.Errorf("%d named, %d in doubt of %d", named, doubts, n)
			}
		})
	}
}
