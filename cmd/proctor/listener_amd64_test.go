package main_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filteredEnv has this binary become a program under a filter of [filters], both of which it names: the
// calls that the filter stops, of the program and all its children, are answered by the test.
const filteredEnv = "PROCTOR_FILTERED"

const (
	filterClock  = "clock"  // questions for the time of day
	filterMarked = "marked" // calls with callMark in the sixth argument
	callMark     = 0x50524f43
)

var filters = map[string][]unix.SockFilter{
	filterClock: {
		loadWord(0), unlessWord(unix.SYS_CLOCK_GETTIME, 3), loadWord(16), unlessWord(unix.CLOCK_REALTIME, 1),
		returns(unix.SECCOMP_RET_USER_NOTIF), returns(unix.SECCOMP_RET_ALLOW),
	},
	filterMarked: {
		loadWord(16 + 5*8), unlessWord(callMark, 1),
		returns(unix.SECCOMP_RET_USER_NOTIF), returns(unix.SECCOMP_RET_ALLOW),
	},
}

// The steps of a filter. What they load is of struct seccomp_data.
func loadWord(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func unlessWord(value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
}

func returns(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func init() {
	what, ok := os.LookupEnv(filteredEnv)
	if !ok {
		return
	}
	// Before anything else runs, and on the thread that may be traced.
	runtime.LockOSThread()
	os.Unsetenv(filteredEnv)
	filter, program, _ := strings.Cut(what, ":")
	fmt.Fprintln(os.Stderr, becomeFiltered(filters[filter], program))
	os.Exit(1)
}

// becomeFiltered makes the filter, hands its listener over at descriptor 3, and starts the program in
// this process's place.
func becomeFiltered(filter []unix.SockFilter, program string) error {
	p := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	unix.Close(int(fd))
	unix.Close(3)
	return unix.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
}

// listened has cmd start its program under a filter. It returns where the listener comes, for
// takeListener, which is the caller's to close; so are cmd's extra files once it was started.
func listened(s *supervisor, filter string) (ours int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	s.cmd.Env = append(s.cmd.Env, filteredEnv+"="+filter+":"+s.cmd.Path)
	s.cmd.Path, s.cmd.ExtraFiles = self, []*os.File{os.NewFile(uintptr(pair[1]), "listener")}
	return pair[0], nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// takeListener receives the listener and answers what it tells, in the background, until nobody is
// left to ask.
func takeListener(from int, done *sync.WaitGroup, answer func(*notification) unix.Errno) error {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(from, make([]byte, 1), oob, 0)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("no listener: %v", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	done.Go(func() { listen(fds[0], answer) })
	return nil
}

// A notification is the kernel's struct seccomp_notif.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

func listen(listener int, answer func(*notification) unix.Errno) {
	const receive, send = 0xc0502100, 0xc0182101 // SECCOMP_IOCTL_NOTIF_RECV, _SEND
	type response struct {
		id    uint64
		val   int64
		errno int32
		flags uint32
	}
	defer unix.Close(listener)
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents&unix.POLLHUP != 0 {
				return
			}
			continue
		}
		var q notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), receive, uintptr(unsafe.Pointer(&q))); errno != 0 {
			continue // who asked is gone
		}
		a := response{id: q.id, errno: -int32(answer(&q))}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), send, uintptr(unsafe.Pointer(&a)))
	}
}
