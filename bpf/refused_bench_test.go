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

// BenchmarkRefusedConnect compares socket, connect and close in a run, where the programs refuse
// the connect, with the same where nothing is attached and the network has no route. Both are in
// an empty network namespace. In the run every attempt is recorded, but repeats fold into one
// record; "idle" is the same process without a route while the programs are there for others.
func BenchmarkRefusedConnect(b *testing.B) {
	testenv.Root(b)
	programs := testenv.Programs(b)
	h := newHost(b)
	in := h.unwatched(b, "run")
	refused := newMeter(b, in.actCommand(b, "measure"))
	outside := in.actCommand(b, "measure")
	outside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	unrouted := newMeter(b, outside)

	var with, idle, without []float64
	var events, lost uint64
	for b.Loop() {
		if err := h.Remove(); err != nil {
			b.Fatal(err)
		}
		testenv.WaitPrograms(b, programs)
		without = append(without, unrouted.measure(b, "connect-unrouted"))
		h.open(b)
		w, err := h.Watch(bpf.WatchOptions{Run: "run", CgroupID: in.id})
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Arm(); err != nil {
			b.Fatal(err)
		}
		for range 3 {
			with = append(with, refused.measure(b, "connect-refused"))
			idle = append(idle, unrouted.measure(b, "connect-unrouted"))
		}
		counts, err := w.Counts()
		if err != nil {
			b.Fatal(err)
		}
		events, lost = events+counts.Events, lost+counts.Lost
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(with), "refused-ns")
	b.ReportMetric(median(without), "unrouted-ns")
	b.ReportMetric(median(idle), "idle-ns")
	b.ReportMetric(median(with)-median(without), "more-ns")
	b.ReportMetric(float64(events), "records")
	b.ReportMetric(float64(lost), "lost")
}
