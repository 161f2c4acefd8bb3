package bpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor/container"
)

// A flood is a kernel program that sends records of opens to a run's ring, as the open
// programs do but for what these look at: how many a second the way behind them takes, no
// process on this machine could make.
type flood struct {
	prog   *ebpf.Program
	record *ebpf.Map
}

const floodStride = 1024 // records sent by one call of the program

func newFlood(t testing.TB, w *Watch) *flood {
	t.Helper()
	raw := record(kernOpenEvent{Head: headOf(kernEventKindEVENT_OPEN), Path: part(0, floodPath)}, floodPath)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(raw)+7) &^ 7, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Put(uint32(0), append(raw, make([]byte, (8-len(raw)%8)%8)...)); err != nil {
		t.Fatal(err)
	}
	const runKey, zero = -8, -16
	lost := int16(unsafe.Offsetof(kernRun{}.Lost)) + 8*int16(kernEventKindEVENT_OPEN)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Syscall, License: "GPL", Flags: 1 << 4 /* BPF_F_SLEEPABLE */, Instructions: asm.Instructions{
		asm.LoadImm(asm.R1, int64(w.id), asm.DWord),
		asm.StoreMem(asm.RFP, runKey, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, zero, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, w.runs.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, runKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Reg(asm.R6, asm.R0), // the run
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, zero),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Reg(asm.R7, asm.R0), // the record
		asm.Mov.Imm(asm.R8, 0),
		asm.LoadMem(asm.R1, asm.R6, int16(unsafe.Offsetof(kernRun{}.Seq)), asm.DWord).WithSymbol("again"),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R6, int16(unsafe.Offsetof(kernRun{}.Seq)), asm.R1, asm.DWord),
		asm.StoreMem(asm.R7, 0, asm.R1, asm.DWord),
		asm.FnKtimeGetBootNs.Call(),
		asm.StoreMem(asm.R7, 8, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, w.m.FD()),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Imm(asm.R3, int32(len(raw))),
		asm.Mov.Imm(asm.R4, unix.BPF_RB_NO_WAKEUP),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "sent"),
		asm.LoadMem(asm.R1, asm.R6, lost, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R6, lost, asm.R1, asm.DWord),
		asm.Add.Imm(asm.R8, 1).WithSymbol("sent"),
		asm.JLT.Imm(asm.R8, floodStride, "again"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("flood: %+v", err)
	}
	t.Cleanup(func() { prog.Close() })
	return &flood{prog, m}
}

const floodPath = "/usr/lib/python3/dist-packages/pandas/core/frame.py"

// send sends records until ctx ends, at most perSecond where that is not 0.
func (f *flood) send(ctx context.Context, perSecond int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	for n := 0; ctx.Err() == nil; n += floodStride {
		if perSecond > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))))
		}
		if _, err := f.prog.Run(&ebpf.RunOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// sensorForBench is a Sensor on a cgroup of its own. It is here twice, because a test inside
// the package can't use what imports it.
func sensorForBench(b *testing.B) (*Sensor, uint64) {
	b.Helper()
	if os.Getenv("PROCTOR_ROOT_TESTS") != "1" {
		b.Skip("needs root: make bench")
	}
	parent := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			parent = filepath.Join(dir, fmt.Sprintf("proctor-bench-%d", os.Getpid()))
		}
	}
	run := filepath.Join(parent, "run")
	if err := os.MkdirAll(run, 0o755); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(os.Remove(run), os.Remove(parent)); err != nil {
			b.Error(err)
		}
	})
	s, err := Open(Options{Cgroup: parent, Dir: b.TempDir(), Permitted: container.Permitted()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Remove(); err != nil {
			b.Error(err)
		}
	})
	id, err := CgroupID(run)
	if err != nil {
		b.Fatal(err)
	}
	return s, id
}

// resident is this process's memory, without files.
func resident(b *testing.B) int64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	var kb int64
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			fmt.Sscan(rest, &kb)
		}
	}
	return kb << 10
}

// BenchmarkRingToDisk sends records from the kernel at several rates and writes them down as
// JSON. What is not written is counted in the kernel, exactly: that is checked at each rate.
// PROCTOR_FLOOD_TIME is how long each rate is held; default 3s.
func BenchmarkRingToDisk(b *testing.B) {
	hold := 3 * time.Second
	if text := os.Getenv("PROCTOR_FLOOD_TIME"); text != "" {
		var err error
		if hold, err = time.ParseDuration(text); err != nil {
			b.Fatal(err)
		}
	}
	dir := os.Getenv("PROCTOR_FLOOD_DIR") // on a disk; default: where temporary files are
	s, id := sensorForBench(b)
	rates := []int{150_000, 300_000, 500_000, 750_000, 1_000_000, 0}
	if text := os.Getenv("PROCTOR_FLOOD_RATE"); text != "" {
		rates = rates[:1]
		fmt.Sscan(text, &rates[0])
	}
	for _, rate := range rates {
		name := fmt.Sprint(rate)
		if rate == 0 {
			name = "unbounded"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.flooded(b, id, dir, rate, hold)
			}
		})
	}
}

func (s *Sensor) flooded(b *testing.B, id uint64, dir string, rate int, hold time.Duration) {
	w, err := s.Watch(WatchOptions{Run: "01a2283e-682d-77ff-8a6d-3f2c4faf599d", CgroupID: id, RingBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	f := newFlood(b, w)
	temp, err := os.MkdirTemp(dir, "flood")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(temp)
	journal, err := audit.CreateJournal(temp + "/events.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), hold)
	defer cancel()
	sent := make(chan error, 1)
	began := time.Now()
	go func() { sent <- f.send(ctx, rate) }()
	var noted uint64
	var before, most int64
	for {
		events, err := w.Read(ctx)
		if werr := journal.Append(events...); werr != nil {
			b.Fatal(werr)
		}
		noted += uint64(len(events))
		if now := resident(b); before == 0 && time.Since(began) > hold/10 {
			before = now // warmed up
		} else {
			most = max(most, now)
		}
		if ctx.Err() != nil {
			break
		}
		if loss := (*LossError)(nil); err != nil && !errors.As(err, &loss) {
			b.Fatal(err)
		}
	}
	took := time.Since(began)
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
	rest, err := w.Drain()
	if err != nil {
		b.Fatal(err)
	}
	if err := journal.Append(rest...); err != nil {
		b.Fatal(err)
	}
	noted += uint64(len(rest))
	if _, err := journal.Close(); err != nil {
		b.Fatal(err)
	}
	counts, err := w.Counts()
	if err != nil {
		b.Fatal(err)
	}
	if counts.Events != noted+counts.Lost {
		b.Errorf("%+v, and %d are written down", counts, noted)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(counts.Events)/took.Seconds(), "counted/s")
	b.ReportMetric(float64(noted)/took.Seconds(), "to-disk/s")
	b.ReportMetric(float64(counts.Lost), "lost")
	b.ReportMetric(float64(most-before)/(1<<20), "MiB-growth")
}
