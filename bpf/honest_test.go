package bpf_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// actThreads opens files from many threads at once, as honest programs do.
func actThreads(args []string) error {
	var threads sync.WaitGroup
	for i := range 8 {
		threads.Go(func() {
			runtime.LockOSThread()
			for range 500 {
				for _, path := range args {
					fd, err := unix.Open(path, unix.O_RDONLY, 0)
					if err != nil {
						continue
					}
					copied, _ := unix.Dup(fd)
					unix.Close(fd)
					unix.Close(copied)
				}
				if i == 0 {
					unix.Dup3(1, 250, 0)
					unix.Close(250)
				}
			}
		})
	}
	threads.Wait()
	return nil
}

// noDoubt fails the test where anything that the box did is in doubt.
func noDoubt(t *testing.T, b *box) {
	t.Helper()
	doubts := matching(b.record(t), func(e audit.Event) bool { return e.Doubtful() })
	if len(doubts) > 0 {
		t.Errorf("%d in doubt:%s", len(doubts), describe(doubts[:min(5, len(doubts))]))
	}
}

// noDoubtOfFile has a box do the act with a file, of which nothing is to be in doubt.
func noDoubtOfFile(t *testing.T, act string) {
	t.Helper()
	h := newHost(t)
	file := testenv.Dir(t) + "/f"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, act, 0)
	b.act(t, act, file)
	noDoubt(t, b)
}

func TestHonestThreadsAreNotDoubted(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "threads", 64<<20)
	b.act(t, "threads", dir+"/link", dir+"/missing", "/etc/passwd")
	noDoubt(t, b)
}

// actForks opens a file by a relative name, and by a link, while another thread starts processes:
// each has for a moment what this one has open.
func actForks(args []string) error {
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	var done atomic.Bool
	var opener sync.WaitGroup
	var openErr error
	opener.Go(func() {
		runtime.LockOSThread()
		for !done.Load() && openErr == nil {
			for _, name := range []string{"f", "link"} {
				fd, err := unix.Open(name, unix.O_RDONLY, 0)
				if err != nil {
					openErr = err
				}
				unix.Close(fd)
			}
		}
	})
	for range 200 {
		if err := exec.Command("/bin/true").Run(); err != nil {
			return err
		}
	}
	done.Store(true)
	opener.Wait()
	return openErr
}

func TestForksRaiseNoDoubt(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "forks", 64<<20)
	b.act(t, "forks", dir)
	noDoubt(t, b)
}

// actIdle replaces what is at a descriptor and closes it, before a thread that was idle meanwhile opens the
// same file by the same number.
func actIdle(args []string) error {
	wake, opened := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // ends with the process
		here := onFirst()
		for range wake {
			fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
			err = errors.Join(err, here)
			unix.Close(fd)
			opened <- err
		}
	}()
	runtime.LockOSThread()
	if err := onFirst(); err != nil { // where memory that was given back is taken first
		return err
	}
	for range 50 {
		var fds [2]int
		for i := range fds {
			fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			fds[i] = fd
		}
		if err := unix.Dup3(fds[1], fds[0], 0); err != nil {
			return err
		}
		unix.Close(fds[1])
		unix.Close(fds[0])
		wake <- struct{}{}
		if err := <-opened; err != nil {
			return err
		}
	}
	return nil
}

func TestIdleThreadsAreNotDoubted(t *testing.T) { noDoubtOfFile(t, "idle") }

// actNonsense makes calls that take a name with arguments that none can have.
func actNonsense([]string) error {
	nowhere := []uintptr{^uintptr(0), 0, 1 << 46, 1 << 60}
	for _, call := range []uintptr{
		unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_MEMFD_CREATE, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_MKDIRAT, unix.SYS_MKNODAT,
		unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT, unix.SYS_TRUNCATE, unix.SYS_SETXATTR,
		unix.SYS_FREMOVEXATTR, unix.SYS_EXECVEAT, unix.SYS_BIND,
	} {
		for _, arg := range nowhere {
			unix.RawSyscall6(call, arg, arg, arg, arg, arg, arg)
			unix.RawSyscall6(call, uintptr(unix.AT_FDCWD&0xffffffff), arg, arg, arg, arg, arg)
		}
	}
	return nil
}

func TestNonsenseRaisesNoDoubt(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "nonsense", 0)
	b.act(t, "nonsense")
	noDoubt(t, b)
}

// actHandOver opens a file, keeps it at another number alone, and has another thread bring it back to the
// first, which no open has been at since.
func actHandOver(args []string) error {
	on := func(f func() (int, error)) (fd int, err error) { // another thread each time
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // ends with the goroutine
			fd, err = f()
		}()
		<-done
		return fd, err
	}
	for range 50 {
		kept, err := on(func() (int, error) {
			fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
			if err != nil {
				return 0, err
			}
			defer unix.Close(fd)
			return unix.Dup(fd)
		})
		if err != nil {
			return err
		}
		again, err := on(func() (int, error) { return unix.Dup(kept) })
		if err != nil {
			return err
		}
		unix.Close(kept)
		unix.Close(again)
	}
	return nil
}

func TestHandedOverIsNotDoubted(t *testing.T) { noDoubtOfFile(t, "handover") }

// actTakeTurns does what honest threads do to numbers that others had before.
func actTakeTurns(args []string) error {
	file, link := args[0], args[1]
	on := func(f func() error) error { // another thread each time
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // ends with the goroutine
			done <- f()
		}()
		return <-done
	}
	for range 50 {
		err := on(func() error { // as freopen does
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			other, err := unix.Dup(fd)
			if err != nil {
				return err
			}
			if err := unix.Dup3(fd, other, 0); err != nil {
				return err
			}
			unix.Close(other)
			unix.Close(fd)
			return nil
		})
		if err != nil {
			return err
		}
		for _, path := range []string{link, file, "/etc/passwd"} {
			err := on(func() error {
				fd, err := unix.Open(path, unix.O_RDONLY, 0)
				if err != nil {
					return err
				}
				return unix.Close(fd)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func TestTurnsAreNotDoubted(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "turns", 0)
	b.act(t, "turns", dir+"/f", dir+"/link")
	noDoubt(t, b)
}
