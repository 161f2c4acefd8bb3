package bpf_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/testenv"
)

// actMeasure answers each line, the name of a loop, with the median time of one turn
// in nanoseconds. The median is of short stretches: what the scheduler takes away in
// between is not in most of them.
func actMeasure([]string) error {
	turn := 0
	loops := map[string]func() error{
		"getppid": func() error {
			_, _, errno := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		},
		"never-twice": func() error {
			turn++
			fd, err := unix.Open("/etc/passwd", neverTwice(turn), 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		},
		"open": func() error {
			fd, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		},
		"connect-refused":        func() error { return connectFails(unix.EPERM) },
		"connect-refused-alone":  connectsFail(unix.EPERM),
		"connect-unrouted-alone": connectsFail(unix.ENETUNREACH),
		"connect-unrouted":       func() error { return connectFails(unix.ENETUNREACH) },
	}
	const stretches = 401
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		turns := 200
		if strings.HasPrefix(in.Text(), "connect") {
			turns = 20 // each takes longer
		}
		loop, known := loops[in.Text()]
		if !known {
			return fmt.Errorf("no loop %q", in.Text())
		}
		times := make([]time.Duration, stretches)
		for i := range times {
			start := time.Now()
			for range turns {
				if err := loop(); err != nil {
					return err
				}
			}
			times[i] = time.Since(start)
		}
		slices.Sort(times)
		fmt.Println(float64(times[len(times)/2].Nanoseconds()) / float64(turns))
	}
	return nil
}

// A meter is a process that measures.
type meter struct {
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Scanner
}

func newMeter(b *testing.B, cmd *exec.Cmd) *meter {
	b.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := testenv.Start(cmd); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &meter{in, bufio.NewScanner(out)}
}

func (m *meter) measure(b *testing.B, loop string) (ns float64) {
	b.Helper()
	fmt.Fprintln(m.in, loop)
	if !m.out.Scan() {
		b.Fatal(errors.Join(errors.New("no answer"), m.out.Err()))
	}
	if _, err := fmt.Sscan(m.out.Text(), &ns); err != nil {
		b.Fatal(err)
	}
	return ns
}

// BenchmarkSensor compares the same loops in the same processes with the programs
// attached and not, in turns. Another Sensor on the host would spoil the comparison.
//
//   - outside-*: a process that belongs to no run;
//   - inside-open: a process of a run, every open of which is recorded and read.
//
// Both forms of the programs at exits of calls are measured: each at its own call, and one at all.
func BenchmarkSensor(b *testing.B) {
	for name, all := range map[string]bool{"own exits": false, "all exits": true} {
		b.Run(name, func(b *testing.B) { benchmarkSensor(b, all) })
	}
}

func benchmarkSensor(b *testing.B, allExits bool) {
	testenv.Root(b)
	programs := testenv.Programs(b)
	h := newHost(b)
	h.opts.AllExits = allExits
	outside, in := h.unwatched(b, "unused"), h.unwatched(b, "run")
	cmd := outside.actCommand(b, "measure")
	cmd.SysProcAttr = nil
	out := newMeter(b, cmd)
	inside := newMeter(b, in.actCommand(b, "measure"))

	with, without := map[string][]float64{}, map[string][]float64{}
	sample := func(into map[string][]float64) {
		for name, m := range map[string]*meter{"outside": out, "inside": inside} {
			for _, loop := range []string{"getppid", "open", "never-twice"} {
				into[name+"-"+loop] = append(into[name+"-"+loop], m.measure(b, loop))
			}
		}
	}
	var events, lost uint64
	rounds := 0
	for b.Loop() {
		if err := h.Remove(); err != nil {
			b.Fatal(err)
		}
		testenv.WaitPrograms(b, programs)
		sample(without)
		h.open(b)
		w, err := h.Watch(bpf.WatchOptions{Run: "run", CgroupID: in.id})
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Arm(); err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				if _, err := w.Read(b.Context()); err != nil {
					return
				}
				if n, err := w.Counts(); err != nil || n.Events >= uint64(401*200) {
					return
				}
			}
		}()
		sample(with)
		<-done
		counts, err := w.Counts()
		if err != nil {
			b.Fatal(err)
		}
		events += counts.Events
		lost += counts.Lost
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		rounds++
	}
	for name, times := range with {
		on, off := median(times), median(without[name])
		b.ReportMetric(on, name+"-ns")
		b.ReportMetric(on/off, name+"-ratio")
	}
	b.ReportMetric(float64(lost)/float64(events), "lost/event")
	b.ReportMetric(float64(rounds), "rounds")
}

// actFlood opens a file for as long as its argument says, never twice the same way in a row,
// and prints how often it did.
func actFlood(args []string) error {
	hold, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	path, err := unix.BytePtrFromString("/etc/passwd")
	if err != nil {
		return err
	}
	const kept = 256        // descriptors closed by one call
	for fd := 0; fd < 64; { // what is free among the runtime's own stays taken
		if fd, err = unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			return err
		}
	}
	opens := 0
	for began := time.Now(); time.Since(began) < hold; {
		first := ^uintptr(0)
		for range kept {
			fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(unix.AT_FDCWD&0xffffffff),
				uintptr(unsafe.Pointer(path)), uintptr(neverTwice(opens)), 0, 0, 0)
			if errno != 0 {
				return errno
			}
			first = min(first, fd)
			opens++
		}
		if err := unix.CloseRange(uint(first), uint(first)+kept-1, 0); err != nil {
			return err
		}
	}
	fmt.Println(opens)
	return nil
}

// BenchmarkOpensToDisk has two processes of a run open a file as often as they can, on all
// processors that the reader leaves them, and writes it down as JSON.
func BenchmarkOpensToDisk(b *testing.B) {
	testenv.Root(b)
	const processes = 2
	var opens, noted, lost uint64
	var took time.Duration
	for b.Loop() {
		h := newHost(b)
		box := h.box(b, "flood", 16<<20)
		journal, err := audit.CreateJournal(testenv.Dir(b) + "/events.jsonl")
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		made := make(chan uint64, processes)
		began := time.Now()
		for range processes {
			cmd := box.actCommand(b, "flood", "10s")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, os.Stderr
			go func() {
				err := testenv.Run(cmd)
				var n uint64
				if _, scan := fmt.Sscan(out.String(), &n); err != nil || scan != nil {
					b.Errorf("%v, %v: %s", err, scan, out.Bytes())
				}
				made <- n
			}()
		}
		var here uint64
		go func() {
			for range processes {
				here += <-made
			}
			took += time.Since(began)
			cancel()
		}()
		n, err := writeDown(ctx, box, journal)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := journal.Close(); err != nil {
			b.Fatal(err)
		}
		counts, err := box.Counts()
		if err != nil {
			b.Fatal(err)
		}
		if counts.Events != n+counts.Lost || counts.Events < here {
			b.Errorf("%d opens, counted %+v, and %d are written down", here, counts, n)
		}
		opens, noted, lost = opens+here, noted+n, lost+counts.Lost
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(opens)/took.Seconds(), "opens/s")
	b.ReportMetric(float64(noted)/took.Seconds(), "to-disk/s")
	b.ReportMetric(float64(lost), "lost")
}

// writeDown is what the supervisor does with a run's events until ctx ends, and how many
// there were.
func writeDown(ctx context.Context, box *box, journal *audit.Journal) (n uint64, err error) {
	runtime.LockOSThread()
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10); err != nil {
		return 0, err
	}
	for ctx.Err() == nil {
		events, err := box.Read(ctx)
		if err := journal.Append(events...); err != nil {
			return n, err
		}
		n += uint64(len(events))
		if loss := (*bpf.LossError)(nil); err != nil && ctx.Err() == nil && !errors.As(err, &loss) {
			return n, err
		}
	}
	rest, err := box.Drain()
	if loss := (*bpf.LossError)(nil); errors.As(err, &loss) {
		err = nil
	}
	return n + uint64(len(rest)), errors.Join(err, journal.Append(rest...))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
