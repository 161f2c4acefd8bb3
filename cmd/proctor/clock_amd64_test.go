package main_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// steppedEnv has this binary become the program that it names, with a clock that a test steps.
const steppedEnv = "PROCTOR_STEPPED"

// A steppedClock is what a process and its children are told of the time of day. The kernel asks
// this process for each answer (seccomp's notifications), once the process has no vDSO that
// would answer without the kernel.
type steppedClock struct {
	ahead  atomic.Int64 // of the host's clock
	asked  atomic.Int64
	listen int
	done   sync.WaitGroup
}

func init() {
	program, ok := os.LookupEnv(steppedEnv)
	if !ok {
		return
	}
	// Before anything else runs, and on the thread that is traced.
	runtime.LockOSThread()
	os.Unsetenv(steppedEnv)
	fmt.Fprintln(os.Stderr, becomeStepped(program))
	os.Exit(1)
}

// becomeStepped is the helper's part: the filter is made, its listener handed over at descriptor
// 3, and the program started in this process's place, where the tracer takes its vDSO away.
func becomeStepped(program string) error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	filter := []unix.SockFilter{
		load(0), unless(unix.SYS_CLOCK_GETTIME, 3), load(16), unless(unix.CLOCK_REALTIME, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
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

// start starts cmd's program with this clock. It is called on a locked thread, which traces the
// program to its start.
func (c *steppedClock) start(s *supervisor) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "listener")
	defer theirs.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.cmd.Env = append(s.cmd.Env, steppedEnv+"="+s.cmd.Path)
	s.cmd.Path, s.cmd.ExtraFiles = self, []*os.File{theirs}
	s.cmd.SysProcAttr.Ptrace = true
	if err := s.cmd.Start(); err != nil {
		return err
	}
	pid := s.cmd.Process.Pid
	next := func() error { // to the next program's start
		var ws unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
				return err
			}
			switch {
			case !ws.Stopped():
				return fmt.Errorf("the helper ended: %x", ws)
			case ws.StopSignal() == unix.SIGTRAP:
				return nil
			}
			if err := unix.PtraceCont(pid, int(ws.StopSignal())); err != nil { // the Go runtime's own signals
				return err
			}
		}
	}
	err = errors.Join(next(), unix.PtraceCont(pid, 0), next(), hideVDSO(pid), unix.PtraceDetach(pid))
	if err != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		return err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, 0)
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
	c.listen = fds[0]
	c.done.Go(c.answer)
	return nil
}

// hideVDSO takes it out of what the kernel put on the stack of a program that is about to start:
// argc, arguments, a zero, the environment, a zero, then pairs.
func hideVDSO(pid int) error {
	const sysinfoEHDR, ignore = 33, 1
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	at := uintptr(regs.Rsp)
	word := func() (uint64, error) {
		var b [8]byte
		_, err := unix.PtracePeekData(pid, at, b[:])
		at += 8
		return *(*uint64)(unsafe.Pointer(&b)), err
	}
	if _, err := word(); err != nil { // argc
		return err
	}
	for zeros := 0; zeros < 2; {
		w, err := word()
		if err != nil {
			return err
		}
		if w == 0 {
			zeros++
		}
	}
	for {
		tag, err := word()
		if err != nil || tag == 0 {
			return errors.Join(err, errors.New("a program without vDSO"))
		}
		if tag == sysinfoEHDR {
			_, err := unix.PtracePokeData(pid, at-8, []byte{ignore, 0, 0, 0, 0, 0, 0, 0})
			return err
		}
		at += 8
	}
}

// answer says what time it is until nobody is left to ask.
func (c *steppedClock) answer() {
	const receive, send = 0xc0502100, 0xc0182101 // SECCOMP_IOCTL_NOTIF_RECV, _SEND
	type request struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	type response struct {
		id    uint64
		val   int64
		errno int32
		flags uint32
	}
	defer unix.Close(c.listen)
	for {
		poll := []unix.PollFd{{Fd: int32(c.listen), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents&unix.POLLHUP != 0 {
				return
			}
			continue
		}
		var q request
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.listen), receive, uintptr(unsafe.Pointer(&q))); errno != 0 {
			continue // who asked is gone
		}
		c.asked.Add(1)
		now := unix.NsecToTimespec(time.Now().UnixNano() + c.ahead.Load())
		bytes := unsafe.Slice((*byte)(unsafe.Pointer(&now)), unsafe.Sizeof(now))
		a := response{id: q.id}
		_, err := unix.ProcessVMWritev(int(q.pid), []unix.Iovec{{Base: &bytes[0], Len: uint64(len(bytes))}}, []unix.RemoteIovec{{Base: uintptr(q.args[1]), Len: len(bytes)}}, 0)
		if err != nil {
			a.errno = -int32(unix.EFAULT)
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(c.listen), send, uintptr(unsafe.Pointer(&a)))
		runtime.KeepAlive(&now)
	}
}

// Steps of the clock, by an administrator or NTP, move no deadline, in either direction.
func TestClockSteps(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	clock := &steppedClock{}
	s := prepareSupervisor(t)
	s.startWith = clock.start
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		clock.done.Wait()
	})
	for _, step := range []time.Duration{2 * time.Hour, -4 * time.Hour, 2 * time.Hour} {
		run := s.background(t, busy, "--timeout", "5s")
		began := time.Now()
		clock.ahead.Add(int64(step))
		v := run.wait(t)
		if took := time.Since(began); v.Status != audit.StatusTimeout || took > 30*time.Second || v.Usage.WallMS < 5000 || v.Usage.WallMS > 15_000 {
			t.Errorf("a step of %s: %s after %s, said to be %d ms: %s", step, v.Status, took, v.Usage.WallMS, v.Reason)
		}
		// The step was seen.
		events := s.events(t, v.Run)
		first, last := events[0].Time, events[len(events)-1].Time
		if d := last.Sub(first) - step; d < time.Second || d > 40*time.Second {
			t.Errorf("a step of %s: the record goes from %s to %s", step, first, last)
		}
	}
	if clock.asked.Load() == 0 {
		t.Error("nobody asked for the time")
	}
}
