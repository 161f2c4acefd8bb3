package bpf_test

import (
	"errors"
	"fmt"
	"os"
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
