package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// swaps are the ways in which a second thread can put a benign file, open at own, where
// another's open has just put the real one, at fd.
var swaps = map[string]func(own, fd int, benign string){
	"dup3": func(own, fd int, _ string) { unix.Dup3(own, fd, 0) },
	"dup3 and close": func(own, fd int, benign string) {
		fresh, err := unix.Open(benign, unix.O_PATH, 0)
		if err == nil {
			unix.Dup3(fresh, fd, 0)
			unix.Close(fresh)
		}
	},
	"close and dup": func(own, fd int, _ string) {
		unix.Close(fd)
		unix.FcntlInt(uintptr(own), unix.F_DUPFD, fd)
	},
	"close, dup and close": func(_, fd int, benign string) {
		fresh, err := unix.Open(benign, unix.O_PATH, 0)
		if err == nil && fresh != fd {
			unix.Close(fd)
			unix.FcntlInt(uintptr(fresh), unix.F_DUPFD, fd)
			unix.Close(fresh)
		}
	},
	"close and receive": func(own, fd int, _ string) {
		ends := swapSockets()
		if unix.Sendmsg(ends[0], []byte{0}, unix.UnixRights(own), nil, 0) == nil {
			unix.Close(fd)
			unix.Recvmsg(ends[1], make([]byte, 1), make([]byte, 64), 0)
		}
	},
	"close and new": func(_, fd int, _ string) {
		if unix.Close(fd) == nil {
			unix.Eventfd(0, 0)
		}
	},
	"close and open": func(_, fd int, benign string) {
		if unix.Close(fd) == nil {
			unix.Open(benign, unix.O_RDONLY, 0)
		}
	},
}

// swapSockets are the ends of a connection by which a descriptor is sent. Their numbers are far from
// those that are exchanged.
var swapSockets = sync.OnceValue(func() (ends [2]int) {
	near, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	for i := range ends {
		if err == nil {
			ends[i], err = unix.FcntlInt(uintptr(near[i]), unix.F_DUPFD, 200)
			unix.Close(near[i])
		}
	}
	if err != nil {
		panic(err)
	}
	return ends
})

// eachTurn has a second thread call exchange some moment after each number that is stored, at ever
// another one, until stop.
func eachTurn(exchange func()) (turn *atomic.Int64, stop func()) {
	turn = &atomic.Int64{}
	var swapper sync.WaitGroup
	swapper.Go(func() {
		runtime.LockOSThread()
		for seen := int64(0); ; {
			now := turn.Load()
			switch {
			case now < 0:
				return
			case now != seen: // a call is under way
				seen = now
				for range int(now % 1500) {
					_ = turn.Load()
				}
				exchange()
			}
		}
	})
	return turn, func() { turn.Store(-1); swapper.Wait() }
}

// actSwap opens a file n times, while a second thread exchanges the descriptor.
func actSwap(args []string) error {
	how, real, benign := swaps[args[0]], args[1], args[2]
	var n int
	if _, err := fmt.Sscan(args[3], &n); err != nil {
		return err
	}
	own, err := unix.Open(benign, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	// Far from the Go runtime's own descriptors.
	if own, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD, 200); err != nil {
		return err
	}
	swapSockets()
	for fd := range 100 { // so that the next is always the same
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			if _, err := unix.FcntlInt(uintptr(own), unix.F_DUPFD, fd); err != nil {
				return err
			}
		}
	}
	const fd = 100
	turn, stop := eachTurn(func() { how(own, fd, benign) })
	for i := range n {
		turn.Store(int64(i + 1))
		if _, err := unix.Open(real, unix.O_RDONLY, 0); err != nil {
			return err
		}
		for fd := fd; fd < fd+4; fd++ {
			if unix.Close(fd) != nil {
				break
			}
		}
	}
	stop()
	return nil
}

// Every open of the real file is in the record by its name, or something in the record is
// marked as in doubt for it.
func TestSwappedDescriptorIsNamedOrDoubted(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Fatal("with one processor there is nothing to race")
	}
	h := newHost(t)
	dir := testenv.Dir(t)
	for _, name := range []string{"real", "benign"} {
		if err := os.MkdirAll(dir+"/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name+"/file", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const (
		n      = 20_000 // opens in a turn
		enough = 10     // of them in doubt: the exchange hit the instant so often
		turns  = 60
	)
	for how := range swaps {
		t.Run(how, func(t *testing.T) {
			for turn, hits := 0, uint64(0); hits < enough; turn++ {
				if turn == turns {
					t.Fatalf("%d of %d opens are in doubt: nothing was tried", hits, turns*n)
				}
				named, doubts := h.swap(t, fmt.Sprintf("swap-%s-%d", strings.ReplaceAll(how, " ", "-"), turn), how, dir, n)
				t.Logf("%d named, %d in doubt", named, doubts)
				if named+doubts < n {
					t.Errorf("%d of %d opens are neither named (%d) nor in doubt (%d)", n-named-doubts, n, named, doubts)
				}
				hits += doubts
			}
		})
	}
}

// swap has a box open a file n times, while a second thread exchanges it. It returns how many opens the
// record has by the file's name, and how many are in doubt.
func (h *host) swap(t *testing.T, name, how, dir string, n int) (named, doubts uint64) {
	t.Helper()
	b := h.box(t, name, 64<<20)
	b.act(t, "swap", how, dir+"/real/file", dir+"/benign/file", fmt.Sprint(n))
	for _, e := range b.record(t) {
		switch {
		case e.Doubtful():
			doubts += e.Acts()
		case e.Open != nil && string(e.Open.Path) == dir+"/real/file":
			named += e.Acts()
		}
	}
	counts, err := b.Counts()
	if err != nil || (counts.Raced > 0) != (doubts > 0) {
		t.Errorf("%+v, %v", counts, err)
	}
	return named, doubts
}

// actSwapBind binds n sockets, or has them listen, by a descriptor that a second thread meanwhile puts
// a bound netlink socket at, or closes. It writes down how many there were.
func actSwapBind(args []string) error {
	call, how, result := args[0], args[1], args[2]
	var n int
	if _, err := fmt.Sscan(args[3], &n); err != nil {
		return err
	}
	other, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	if err := unix.Bind(other, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	const fd = 100
	turn, stop := eachTurn(func() {
		if how == "dup3" {
			unix.Dup3(other, fd, 0)
		} else {
			unix.Close(fd)
		}
	})
	runtime.LockOSThread()
	done := 0
	for i := range n {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Dup3(s, fd, 0); err != nil {
			return err
		}
		turn.Store(int64(i + 1))
		if call == "bind" {
			_ = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
			if name, err := unix.Getsockname(s); err == nil && name.(*unix.SockaddrInet4).Port != 0 {
				done++
			}
		} else {
			_ = unix.Listen(fd, 1)
			if on, err := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && on == 1 {
				done++
			}
		}
		unix.Close(s)
	}
	stop()
	return os.WriteFile(result, fmt.Append(nil, done), 0o600)
}

// A socket that was bound, or listens, is in the record, or is counted as missing there, whatever a
// second thread does to its descriptor.
func TestSwappedSocketIsNamedOrLost(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Fatal("with one processor there is nothing to race")
	}
	h := newHost(t)
	result := testenv.Dir(t) + "/done"
	for _, call := range []string{"bind", "listen"} {
		for _, how := range []string{"dup3", "close"} {
			t.Run(call+" and "+how, func(t *testing.T) {
				b := h.box(t, "swap-"+call+"-"+how, 64<<20)
				b.act(t, "swapbind", call, how, result, "20000")
				data, err := os.ReadFile(result)
				if err != nil {
					t.Fatal(err)
				}
				var done uint64
				if _, err := fmt.Sscan(string(data), &done); err != nil {
					t.Fatal(err)
				}
				events, err := b.Drain()
				if err != nil {
					t.Fatal(err)
				}
				var named uint64
				for _, e := range events {
					if e.Kind == audit.Kind(call) && e.Net.Errno == "" && e.Net.Protocol == "tcp" {
						named += e.Acts()
					}
				}
				lost, err := b.LostByKind()
				if err != nil {
					t.Fatal(err)
				}
				missing := lost[audit.Kind(call)]
				t.Logf("%d done, %d named, %d missing", done, named, missing)
				if done == 0 || named+missing < done {
					t.Errorf("%d were done, %d are named and %d missing", done, named, missing)
				}
			})
		}
	}
}

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

func TestIdleThreadsAreNotDoubted(t *testing.T) {
	h := newHost(t)
	file := testenv.Dir(t) + "/f"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "idle", 0)
	b.act(t, "idle", file)
	noDoubt(t, b)
}

// actUnmap waits in an open for a writer while another thread takes the memory away that its name is
// in, and then interrupts it.
func actUnmap(args []string) error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	copy(page, args[0])
	name := unsafe.Pointer(&page[0])
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGUSR1)
	opener, opened := make(chan int, 1), make(chan error, 1)
	var host string // its place in /proc, by the host's numbers
	go func() {
		runtime.LockOSThread()
		host, _ = os.Readlink("/proc/thread-self")
		opener <- unix.Gettid()
		_, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(unix.AT_FDCWD&0xffffffff), uintptr(name), unix.O_RDONLY, 0, 0, 0)
		opened <- errno
	}()
	thread := <-opener
	for range 1000 { // until it waits in the kernel
		call, err := os.ReadFile("/proc/" + host + "/syscall")
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(call), fmt.Sprint(unix.SYS_OPENAT, " ")) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := unix.Munmap(page); err != nil {
		return err
	}
	if err := unix.Tgkill(unix.Getpid(), thread, unix.SIGUSR1); err != nil {
		return err
	}
	if err := <-opened; errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

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

// A failed open whose name can't be read any more is in doubt.
func TestNameThatIsGone(t *testing.T) {
	h := newHost(t)
	fifo := testenv.Dir(t) + "/fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "gone", 0)
	b.act(t, "unmap", fifo)
	doubts := matching(b.record(t), func(e audit.Event) bool { return e.Open != nil && e.Open.Raced && e.Open.Truncated })
	counts, err := b.Counts()
	if err != nil {
		t.Fatal(err)
	}
	if len(doubts) == 0 || counts.Raced == 0 {
		t.Errorf("%d in doubt, %d counted", len(doubts), counts.Raced)
	}
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

func TestHandedOverIsNotDoubted(t *testing.T) {
	h := newHost(t)
	file := testenv.Dir(t) + "/f"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "handover", 0)
	b.act(t, "handover", file)
	noDoubt(t, b)
}

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
