package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/supervisor/container"
	"proctor/testenv"
)

// allExitsVariable has the tests in this package use that form of the programs, whatever the
// kernel needs.
const allExitsVariable = "PROCTOR_BPF_ALL_EXITS"

// What holds of the programs at their tracepoints holds of the same ones at all exits.
func TestAllExits(t *testing.T) {
	testenv.Root(t)
	if os.Getenv(allExitsVariable) != "" {
		return // it is this one's
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.v", "-test.timeout=15m", "-test.skip=^(Benchmark|Fuzz|TestDecode)")
	cmd.Env = append(os.Environ(), allExitsVariable+"=1")
	out := output(t, cmd)
	const tests = 40 // there are more
	if passed := strings.Count(out, "\n--- PASS"); passed < tests {
		t.Errorf("%d tests passed:\n%s", passed, out)
	}
}

// onFirst keeps the calling thread on the first processor.
func onFirst() error {
	var set unix.CPUSet
	set.Set(0)
	return unix.SchedSetaffinity(0, &set)
}

// actNap opens n files that are not there, one after each short sleep.
func actNap(args []string) error {
	var n int
	if _, err := fmt.Sscan(args[0], &n); err != nil {
		return err
	}
	if err := onFirst(); err != nil {
		return err
	}
	nap := unix.Timespec{Nsec: 50_000}
	for i := range n {
		unix.Nanosleep(&nap, nil)
		if _, err := unix.Open(fmt.Sprintf("/nap/%d", i), unix.O_RDONLY, 0); !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("open of nothing: %w", err)
		}
	}
	return nil
}

// Whatever a task does that comes in the middle of another's bpf(2) call is seen, on kernels that
// can preempt themselves as well.
func TestPreemptedCallHidesNothing(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "nap", 8<<20)
	const size = 1 << 20 // of a value: while it is copied, the kernel passes programs over
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var done atomic.Bool
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		value := make([]byte, size)
		err := onFirst()
		for err == nil && !done.Load() {
			err = m.Lookup(uint32(0), unsafe.Pointer(&value[0]))
		}
		ended <- err
	}()
	const n = 1000
	b.act(t, "nap", fmt.Sprint(n))
	done.Store(true)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range b.record(t) {
		if e.Kind == audit.KindOpen && strings.HasPrefix(string(e.Open.Path), "/nap/") {
			seen[string(e.Open.Path)] = true
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d opens are on the record", len(seen), n)
	}
}

// A call whose number is not known is taken for one that no box may make.
func TestPermittedCallsHaveNumbers(t *testing.T) {
	for _, call := range container.Permitted() {
		if !bpf.Numbered(call) {
			t.Errorf("%s has none", call)
		}
	}
}

// The kernel says whether it can preempt itself, as it was told at boot, and the programs are such as
// it needs.
func TestKernelIsAsked(t *testing.T) {
	h := newHost(t)
	can, known, err := h.Preemption()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("it can: %v", can)
	if !known {
		t.Error("it does not say whether it can preempt itself")
	}
	told, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, arg := range strings.Fields(string(told)) {
		if mode, ok := strings.CutPrefix(arg, "preempt="); ok && can == (mode == "none" || mode == "voluntary") {
			t.Errorf("it can: %v, and was booted with %s", can, arg)
		}
	}
	if fits := h.WhenPreemptible(); fits != (can || os.Getenv(allExitsVariable) != "") {
		t.Errorf("programs for preemption: %v", fits)
	}
}

// A host that begins to preempt its kernel while a Sensor has programs that can't bear it is not
// trusted any more.
func TestCheckAsksForPreemption(t *testing.T) {
	h := newHost(t)
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	if fits := h.WhenPreemptible(); fits {
		return // whatever the kernel does
	}
	if err := h.Check(); !errors.Is(err, bpf.ErrPreemptible) {
		t.Errorf("with preemption: %v", err)
	}
}

// What the kernel says it passed over is missing in the record of every run that it can have been
// done in.
func TestPassedOverIsLost(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "unseen", 0)
	b.act(t, "open", "/etc/passwd", "5")
	b.Miss(3)
	events, counts := b.drained(t)
	if counts.Lost != 3 || counts.Events != uint64(len(events))+3 {
		t.Errorf("counts are %+v of %d events", counts, len(events))
	}
	if loss := b.Loss(); loss == nil || loss.Lost != 3 {
		t.Errorf("loss is %v", loss)
	}
	lost, err := b.LostByKind()
	if err != nil {
		t.Fatal(err)
	}
	if len(lost) != 1 || lost[audit.KindUnseen] != 3 {
		t.Errorf("lost by kind: %v", lost)
	}
}
