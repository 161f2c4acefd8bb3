package main_test

import (
	"errors"
	"fmt"
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

// A steppedClock is what a process and its children are told of the time of day. The kernel asks
// this process for each answer (seccomp's notifications), once the process has no vDSO that
// would answer without the kernel.
type steppedClock struct {
	ahead atomic.Int64 // of the host's clock
	asked atomic.Int64
	done  sync.WaitGroup
}

// start starts cmd's program with this clock. It is called on a locked thread, which traces the
// program to its start.
func (c *steppedClock) start(s *supervisor) error {
	ours, err := listened(s, filterClock)
	if err != nil {
		return err
	}
	defer unix.Close(ours)
	s.cmd.SysProcAttr.Ptrace = true
	err = s.cmd.Start()
	closeAll(s.cmd.ExtraFiles)
	if err != nil {
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
	return takeListener(ours, &c.done, c.answer)
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

// answer says what time it is.
func (c *steppedClock) answer(q *notification) (errno unix.Errno) {
	c.asked.Add(1)
	now := unix.NsecToTimespec(time.Now().UnixNano() + c.ahead.Load())
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&now)), unsafe.Sizeof(now))
	_, err := unix.ProcessVMWritev(int(q.pid), []unix.Iovec{{Base: &bytes[0], Len: uint64(len(bytes))}}, []unix.RemoteIovec{{Base: uintptr(q.args[1]), Len: len(bytes)}}, 0)
	runtime.KeepAlive(&now)
	if err != nil {
		return unix.EFAULT
	}
	return 0
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
