package bpf_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/bpf"
	"proctor/testenv"
)

// connectFails makes a socket, tries to connect it to an address that nobody has, and closes
// it.
func connectFails(with error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 1}, Port: 443})
	if !errors.Is(err, with) {
		return fmt.Errorf("connect: %w, want %w", err, with)
	}
	return unix.Close(fd)
}

// connectsFail is the connect alone, again and again on one socket.
func connectsFail(with error) func() error {
	fd := -1
	to := &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 1}, Port: 443}
	return func() (err error) {
		if fd < 0 {
			if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
		}
		if err := unix.Connect(fd, to); !errors.Is(err, with) {
			return fmt.Errorf("connect: %w, want %w", err, with)
		}
		return nil
	}
}

// BenchmarkRefusedConnect compares a connect in a run, which the programs refuse, with one in a
// process that belongs to no run and has no route: each in an empty network namespace, in turns,
// and again with nothing attached; and the same with the making and closing of the socket, of
// which they note who made it. In the run every attempt is written down, but repeats fold.
func BenchmarkRefusedConnect(b *testing.B) {
	testenv.Root(b)
	programs := testenv.Programs(b)
	h := newHost(b)
	in := h.unwatched(b, "run")
	refused := newMeter(b, in.actCommand(b, "measure"))
	cmd := in.actCommand(b, "measure")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	unrouted := newMeter(b, cmd)

	var with, outside, bare, more, alone, aloneMore []float64
	var records, lost uint64
	for b.Loop() {
		if err := h.Remove(); err != nil {
			b.Fatal(err)
		}
		testenv.WaitPrograms(b, programs)
		for range 5 {
			bare = append(bare, unrouted.measure(b, "connect-unrouted"))
		}
		h.open(b)
		w, err := h.Watch(bpf.WatchOptions{Run: "run", CgroupID: in.id})
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Arm(); err != nil {
			b.Fatal(err)
		}
		for range 5 {
			one, other := refused.measure(b, "connect-refused"), unrouted.measure(b, "connect-unrouted")
			with, outside, more = append(with, one), append(outside, other), append(more, one-other)
			one = refused.measure(b, "connect-refused-alone")
			alone, aloneMore = append(alone, one), append(aloneMore, one-unrouted.measure(b, "connect-unrouted-alone"))
		}
		counts, err := w.Counts()
		if err != nil {
			b.Fatal(err)
		}
		records, lost = records+counts.Events, lost+counts.Lost
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(alone), "connect-refused-ns")
	b.ReportMetric(median(aloneMore), "connect-more-ns")
	b.ReportMetric(median(with), "refused-ns")
	b.ReportMetric(median(outside), "outside-ns")
	b.ReportMetric(median(bare), "bare-ns")
	b.ReportMetric(median(more), "more-ns")
	b.ReportMetric(median(with)-median(bare), "more-than-bare-ns")
	b.ReportMetric(float64(records), "records")
	b.ReportMetric(float64(lost), "lost")
	b.ReportMetric(0, "ns/op")
}
