package bpf_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/supervisor/container"
	"proctor/testenv"
)

// A prober asks a process in a box, again and again, to connect away.
type prober struct {
	t   *testing.T
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Scanner
}

func newProber(t *testing.T, b *box) *prober {
	t.Helper()
	cmd := b.actCommand(t, "connect", away4)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &prober{t, in, bufio.NewScanner(out)}
}

// probe returns what a connect came to. Without programs it is "network is
// unreachable": the netns has no route.
func (p *prober) probe() string {
	if _, err := p.in.Write([]byte("\n")); err != nil || !p.out.Scan() {
		return fmt.Sprintf("no answer (%v, %v)", err, p.out.Err())
	}
	return p.out.Text()
}

func (p *prober) refused(when string) {
	p.t.Helper()
	if got := p.probe(); !strings.Contains(got, "operation not permitted") {
		p.t.Errorf("%s: %s", when, got)
	}
}

func TestEnforcementOutlivesTheProcess(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "alive", 0)
	p := newProber(t, b)
	p.refused("watched")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	p.refused("sensor closed")

	// A loop that never stops, over takeovers.
	stop, done := make(chan bool), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
				p.refused("taken over")
				n++
			}
		}
	}()
	for range 3 {
		h.open(t)
		if err := h.Check(); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	t.Logf("%d connects, all refused", <-done)

	h.open(t)
	w, err := h.Watch(bpf.WatchOptions{Run: "again", CgroupID: b.id})
	if err != nil {
		t.Fatal(err)
	}
	p.refused("watched again")
	events, err := w.Drain()
	if err != nil || len(events) != 1 || events[0].Run != "again" {
		t.Errorf("%v%s", err, describe(events))
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	p.refused("not watched any more")
}

// What a process has that is killed without a word: the run's own entry still stands.
func TestEnforcementOutlivesAWatch(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "alive", 0)
	p := newProber(t, b)
	b.orphan = true
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	p.refused("sensor gone")
	h.open(t)
	p.refused("taken over")
}

func TestSeveredLinkIsFoundAndRepaired(t *testing.T) {
	h := newHost(t)
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.opts.Cgroup); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(); err == nil {
		t.Error("Check finds nothing wrong with a cgroup that is gone")
	}
	if err := os.Mkdir(h.opts.Cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(); !errors.Is(err, bpf.ErrSevered) {
		t.Errorf("Check says %v of a cgroup that was made again", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	h.open(t)
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	newProber(t, h.box(t, "repaired", 0)).refused("repaired")
}

func TestRemoveLeavesNothing(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	opts := bpf.Options{Cgroup: parentCgroup(t), Dir: testenv.Dir(t), Permitted: container.Permitted()}
	s, err := bpf.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Sensor: s, opts: opts}
	p := newProber(t, h.unwatched(t, "left"))
	p.refused("attached")

	var ids []link.ID
	pins, err := filepath.Glob(filepath.Join(opts.Dir, "bpf", "links", "*"))
	if err != nil || len(pins) < 10 {
		t.Fatalf("pins are %v, %v", pins, err)
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := l.Info()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
		l.Close()
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if got := p.probe(); !strings.Contains(got, "unreachable") {
		t.Errorf("after Remove: %s", got)
	}
	deadline := time.Now().Add(time.Minute) // the last references go with a delay
	for i, id := range ids {
		for {
			l, err := link.NewFromID(id)
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err == nil {
				l.Close()
			}
			if time.Now().After(deadline) {
				t.Errorf("link of %s is still there", pins[i])
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if left, err := os.ReadDir(opts.Dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v is left", left, err)
	}
}

// neverTwice are flags for an open of which no thread remembers the last one that had them.
func neverTwice(i int) int {
	flags := unix.O_RDONLY
	for bit, flag := range []int{unix.O_NONBLOCK, unix.O_DSYNC, unix.O_NOATIME} {
		if i>>bit&1 != 0 {
			flags |= flag
		}
	}
	return flags
}

// actOpen opens a file n times, never twice the same way: nothing can be folded.
func actOpen(args []string) error {
	var n int
	if _, err := fmt.Sscan(args[1], &n); err != nil {
		return err
	}
	for i := range n {
		fd, err := unix.Open(args[0], neverTwice(i), 0)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

func opensOf(events []audit.Event, path string) int {
	return len(matching(events, func(e audit.Event) bool {
		return e.Kind == audit.KindOpen && string(e.Open.Path) == path
	}))
}

func TestRunsDoNotMix(t *testing.T) {
	h := newHost(t)
	const n = 5000
	paths := []string{"/etc/passwd", "/etc/group"}
	results := make(chan error)
	boxes := make([]*box, len(paths))
	for i, path := range paths {
		boxes[i] = h.box(t, fmt.Sprintf("run%d", i), 0)
		cmd := boxes[i].actCommand(t, "open", path, fmt.Sprint(n))
		go func() { results <- testenv.Run(cmd) }()
	}
	for range paths {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range boxes {
		events := b.record(t)
		if got := opensOf(events, paths[i]); got != n {
			t.Errorf("run %d opened its file %d times, want %d", i, got, n)
		}
		if got := opensOf(events, paths[1-i]); got != 0 {
			t.Errorf("run %d has %d events of the other", i, got)
		}
		for _, e := range events {
			if e.Run != fmt.Sprintf("run%d", i) {
				t.Fatalf("event of %s", e.Run)
			}
		}
	}
}

func TestLossIsCountedExactly(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "loss", 1) // rounded up to a page: some forty events
	quiet := h.box(t, "quiet", 0)
	const n = 2000
	b.act(t, "open", "/etc/passwd", fmt.Sprint(n))
	quiet.act(t, "open", "/etc/passwd", "10")

	events, counts := b.drained(t)
	if counts.Events < n || counts.Lost == 0 || counts.Events != counts.Lost+uint64(len(events)) {
		t.Errorf("%+v with %d events read", counts, len(events))
	}
	if got := h.counters(t)["ring_full"]; got != counts.Lost {
		t.Errorf("ring_full is %d, lost %d", got, counts.Lost)
	}
	quiet.record(t) // fails the test if it lost one

	// What comes after a loss is recorded again, with the gap in its number.
	b.act(t, "open", "/etc/group", "1")
	later, err := b.Drain()
	if err != nil || len(later) == 0 || later[0].Seq != counts.Events+1 {
		t.Errorf("%v, %d events, of which the first is %+v", err, len(later), later[:min(1, len(later))])
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := b.Counts(); err != nil || after.Lost < counts.Lost {
		t.Errorf("after Close: %+v, %v", after, err)
	}
}

func TestReadWhileItHappens(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "live", 1<<20)
	const n = 100_000
	cmd := b.actCommand(t, "open", "/etc/passwd", fmt.Sprint(n))
	if err := testenv.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		cancel()
	}()
	var events []audit.Event
	for {
		batch, err := b.Read(ctx)
		events = append(events, batch...)
		if errors.Is(err, context.Canceled) {
			break
		}
		if loss := (*bpf.LossError)(nil); err != nil && !errors.As(err, &loss) {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	rest, err := b.Drain()
	if err != nil {
		t.Fatal(err)
	}
	events = append(events, rest...)
	counts, err := b.Counts()
	if err != nil {
		t.Fatal(err)
	}
	if counts.Events != counts.Lost+uint64(len(events)) {
		t.Errorf("%+v with %d events read", counts, len(events))
	}
	if counts.Lost == 0 && opensOf(events, "/etc/passwd") != n {
		t.Errorf("%d opens, want %d", opensOf(events, "/etc/passwd"), n)
	}
	late := 0
	for i := range events[1:] {
		if events[i+1].Seq <= events[i].Seq {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d of %d events out of order", late, len(events))
	}
	t.Logf("%+v", counts)
}

func TestTimesAreWallTimes(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "time", 0)
	before := time.Now()
	b.act(t, "open", "/etc/passwd", "1")
	after := time.Now()
	const slack = 100 * time.Millisecond // between the clocks' readings
	for _, e := range b.record(t) {
		if e.Time.Before(before.Add(-slack)) || e.Time.After(after.Add(slack)) || e.Time.Location() != time.UTC {
			t.Errorf("event at %v, not between %v and %v", e.Time, before, after)
		}
	}
}

func TestWatchRefusesNonsense(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "once", 0)
	if _, err := h.Watch(bpf.WatchOptions{Run: "twice", CgroupID: b.id}); !errors.Is(err, bpf.ErrWatched) {
		t.Errorf("a second Watch: %v", err)
	}
	for _, o := range []bpf.WatchOptions{{Run: "r"}, {CgroupID: 1}, {Run: "r", CgroupID: 1, RingBytes: -1}, {Run: "r", CgroupID: 1, RingBytes: 1 << 40}} {
		if w, err := h.Watch(o); err == nil {
			w.Close()
			t.Errorf("Watch(%+v) works", o)
		}
	}
}

func TestOpenRefusesNonsense(t *testing.T) {
	testenv.Root(t)
	for _, o := range []bpf.Options{
		{},
		{Cgroup: parentCgroup(t), Dir: testenv.Dir(t)},
		{Cgroup: "/sys/fs/cgroup/proctor-test-missing", Dir: testenv.Dir(t), Permitted: container.Permitted()},
		{Cgroup: "/tmp", Dir: testenv.Dir(t), Permitted: container.Permitted()},
	} {
		if s, err := bpf.Open(o); err == nil {
			t.Errorf("Open(%+v) works", o)
			s.Remove()
		}
	}
}

func TestVariantForOlderKernelsLoads(t *testing.T) {
	testenv.Root(t)
	if err := bpf.LoadForOlderKernel(); err != nil {
		t.Error(err)
	}
}
