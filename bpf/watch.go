package bpf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proctor/audit"
)

// ErrWatched says that a cgroup has a Watch already.
var ErrWatched = errors.New("cgroup is watched already")

// A LossError says that a record can't become complete any more.
type LossError struct {
	audit.Counts
	Limit   uint64 // WatchOptions.Events
	Charged uint64 // of that
}

func (e *LossError) Error() string {
	switch {
	case e.Limited():
		return fmt.Sprintf("more than %d events", e.Limit)
	case e.Lost == 0:
		return fmt.Sprintf("%d of %d events may name the wrong file", e.Raced, e.Events)
	}
	return fmt.Sprintf("%d of %d events lost", e.Lost, e.Events)
}

// Limited reports whether what is lost was past the run's limit.
func (e *LossError) Limited() bool { return e.Limit > 0 && e.Charged > e.Limit }

const (
	defaultRing = 4 << 20
	// interval is how long events may lie in a ring that fills slowly.
	interval = 100 * time.Millisecond
	// batch is the most that one Read returns, in events.
	batch = 2048
)

// WatchOptions of [Sensor.Watch].
type WatchOptions struct {
	// Run is the id that events carry.
	Run string
	// CgroupID is the inode number of the run's cgroup directory, a direct child of the
	// Sensor's.
	CgroupID uint64
	// RingBytes is the room for events that are not read yet. It is rounded up to a power
	// of two of at least one page. Default: 4 MiB.
	RingBytes int
	// Events is how many events are recorded; what comes after them is counted as lost. One
	// whose record in the ring has more than a KiB counts for each that it begins. 0: all.
	Events uint64
	// Grants are what the run may reach besides its own addresses. Default: nothing.
	Grants []Grant
}

// A Watch is the kernel's eye on one run. Read and Drain are for one goroutine at a time;
// the other methods for any. Close comes after both, and before the Sensor's.
type Watch struct {
	run     string
	id      uint64
	logger  *slog.Logger
	runs    *ebpf.Map // the Sensor's, as are rings and arm
	rings   *ebpf.Map
	grants  *ebpf.Map // likewise, as is senders
	senders *ebpf.Map
	own     *ebpf.Map // senders of this run; nil where it is granted nothing
	arm     *ebpf.Program
	m       *ebpf.Map // the ring's
	ring    *ring
	order   order
	granted []kernGrantKey
	missed  func() (uint64, error) // the Sensor's: programs passed over, whoever was there to be seen
	before  uint64                 // missed's at the beginning

	decoder decoder
	limit   uint64
	told    bool // of a loss

	mu     sync.Mutex
	broken uint64 // records that could not be decoded
	unseen uint64 // how often a program was passed over, known once the Watch is drained
	final  *audit.Counts
}

// Watch makes a run known to the programs: its tasks may use their loopback from now on,
// and everything they are refused is recorded.
func (s *Sensor) Watch(opts WatchOptions) (_ *Watch, err error) {
	if opts.Run == "" || opts.CgroupID == 0 {
		return nil, errors.New("watch: Run and CgroupID must be given")
	}
	boot, err := bootTime()
	if err != nil {
		return nil, err
	}
	w := &Watch{
		decoder: decoder{run: opts.Run, boot: boot},

		run:     opts.Run,
		id:      opts.CgroupID,
		limit:   opts.Events,
		logger:  s.opts.Logger,
		runs:    s.coll.Maps[kernMapRuns],
		rings:   s.coll.Maps[kernMapRings],
		grants:  s.coll.Maps[kernMapGrants],
		senders: s.coll.Maps[kernMapSenders],
		arm:     s.coll.Programs[kernProgArm],
		missed:  s.missed,
	}
	if w.before, err = w.missed(); err != nil {
		return nil, err
	}
	spec := s.ring.Copy()
	spec.MaxEntries, err = ringSize(opts.RingBytes)
	if err != nil {
		return nil, err
	}
	if w.m, err = ebpf.NewMap(spec); err != nil {
		return nil, fmt.Errorf("make ring: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.m.Close())
		}
	}()
	if w.ring, err = openRing(w.m); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.ring.close())
		}
	}()
	// The ring and the grants first: a run that is known must have them.
	if err := w.rings.Update(w.id, w.m, ebpf.UpdateNoExist); err != nil {
		if errors.Is(err, ebpf.ErrKeyExist) {
			return nil, fmt.Errorf("cgroup %d: %w", w.id, ErrWatched)
		}
		return nil, fmt.Errorf("enter ring: %w", err)
	}
	if err := w.grant(opts.Grants, s.senders); err != nil {
		return nil, errors.Join(err, w.rings.Delete(w.id))
	}
	entry := kernRun{Watermark: spec.MaxEntries / 4, Limit: opts.Events}
	if err := w.runs.Update(w.id, &entry, ebpf.UpdateNoExist); err != nil {
		return nil, errors.Join(fmt.Errorf("enter run: %w", err), w.revoke(), w.rings.Delete(w.id))
	}
	return w, nil
}

func ringSize(bytes int) (uint32, error) {
	const most = 1 << 30
	if bytes == 0 {
		bytes = defaultRing
	}
	if bytes < 0 || bytes > most {
		return 0, fmt.Errorf("watch: RingBytes %d is not between 0 and %d", bytes, most)
	}
	bytes = max(bytes, os.Getpagesize())
	return 1 << bits.Len(uint(bytes-1)), nil
}

// bootTime returns the wall time at which the boot clock stood at zero.
func bootTime() (time.Time, error) {
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, fmt.Errorf("boot clock: %w", err)
	}
	return time.Now().UTC().Round(0).Add(-time.Duration(boot.Nano())), nil
}

// Arm starts the record of everything that the run does.
func (w *Watch) Arm() error {
	known, err := w.arm.Run(&ebpf.RunOptions{Context: &kernArmArgs{Id: w.id}})
	if err != nil {
		return fmt.Errorf("arm run %s: %w", w.run, err)
	}
	if known != 1 {
		return fmt.Errorf("arm run %s: not in the map", w.run)
	}
	return nil
}

// Read returns the next events, in the order of their numbers but for one that is found
// more than two intervals late. It waits for the first; the error is ctx's when that ends
// before there is one. Once, when the first loss is found, it is a [*LossError], with what
// events there are; reading may go on.
func (w *Watch) Read(ctx context.Context) ([]audit.Event, error) {
	for {
		if w.ring.waiting() < w.ring.size()/4 {
			if err := w.ring.wait(ctx, interval); err != nil {
				return nil, err
			}
		}
		err := errors.Join(w.take(batch), w.loss())
		if events := w.order.ready(); len(events) > 0 || err != nil {
			return events, err
		}
	}
}

// loss is the first loss, once.
func (w *Watch) loss() error {
	if w.told {
		return nil
	}
	if loss := w.Loss(); loss != nil {
		w.told = true
		return loss
	}
	return nil
}

// Loss says by how much the record is incomplete, or nil. What can't be asked of the kernel
// is found by who asks for Counts.
func (w *Watch) Loss() *LossError {
	counts, err := w.Counts()
	if err != nil || counts.Lost+counts.Raced == 0 {
		return nil
	}
	loss := &LossError{Counts: counts, Limit: w.limit}
	var entry kernRun
	if w.runs.Lookup(w.id, &entry) == nil {
		loss.Charged = entry.Charged
	}
	return loss
}

// Drain returns everything that is left. It is meant for a run whose tasks are all dead:
// what others still write is left in the ring. Programs that the kernel passed over meanwhile
// count as lost events from then on: nobody knows whose they were.
func (w *Watch) Drain() ([]audit.Event, error) {
	missed, err := w.missed()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.unseen = missed - w.before
	w.mu.Unlock()
	for {
		before := w.ring.waiting()
		if err := w.take(int(w.ring.size())); err != nil {
			return w.order.all(), err
		}
		if after := w.ring.waiting(); after == 0 || after >= before {
			return w.order.all(), nil
		}
	}
}

// take moves up to max records from the ring to the order.
func (w *Watch) take(max int) error {
	var broken uint64
	_, err := w.ring.read(max, func(raw []byte) {
		event, err := w.decoder.decode(raw)
		if err != nil {
			if broken++; broken == 1 { // the count has the others
				w.logger.Error("record can't be decoded", "run", w.run, "err", err)
			}
			return
		}
		w.order.add(event)
	})
	w.mu.Lock()
	w.broken += broken
	w.mu.Unlock()
	if err != nil {
		return fmt.Errorf("run %s: %w", w.run, err)
	}
	return nil
}

// Counts returns how many events the run had, and how many of them were lost: no room in
// the ring, past the limit, a record that can't be decoded, or (after Drain) a program that was
// passed over. It stays valid after Close.
func (w *Watch) Counts() (audit.Counts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.final != nil {
		return *w.final, nil
	}
	var entry kernRun
	if err := w.runs.Lookup(w.id, &entry); err != nil {
		return audit.Counts{}, fmt.Errorf("counts of run %s: %w", w.run, err)
	}
	counts := audit.Counts{Events: entry.Seq + w.unseen, Lost: w.broken + w.unseen, Folded: entry.Folded, Raced: entry.Raced}
	for _, n := range entry.Lost {
		counts.Lost += n
	}
	return counts, nil
}

// lostKinds are the record's names for what the programs count losses by.
var lostKinds = map[kernEventKind]audit.Kind{
	kernEventKindEVENT_OPEN: audit.KindOpen, kernEventKindEVENT_EXEC: audit.KindExec, kernEventKindEVENT_FORK: audit.KindFork,
	kernEventKindEVENT_EXIT: audit.KindExit, kernEventKindEVENT_CONNECT: audit.KindConnect, kernEventKindEVENT_SEND: audit.KindSend,
	kernEventKindEVENT_DROP: audit.KindSend, kernEventKindEVENT_OOM: audit.KindOOM, kernEventKindEVENT_CHANGE: audit.KindChange,
	kernEventKindEVENT_BIND: audit.KindBind, kernEventKindEVENT_LISTEN: audit.KindListen,
	kernEventKindEVENT_REFUSED: audit.KindRefused, kernEventKindEVENT_RACED: audit.KindRaced,
}

// LostByKind returns what found no room in the ring or was not seen, by kind; nil if nothing is
// lost. It is for before Close.
func (w *Watch) LostByKind() (map[audit.Kind]uint64, error) {
	var entry kernRun
	if err := w.runs.Lookup(w.id, &entry); err != nil {
		return nil, fmt.Errorf("losses of run %s: %w", w.run, err)
	}
	var lost map[audit.Kind]uint64
	for kind, n := range entry.Lost {
		if n == 0 {
			continue
		}
		if lost == nil {
			lost = map[audit.Kind]uint64{}
		}
		lost[lostKinds[kernEventKind(kind)]] += n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unseen > 0 {
		if lost == nil {
			lost = map[audit.Kind]uint64{}
		}
		lost[audit.KindUnseen] = w.unseen
	}
	return lost, nil
}

// Close makes the run unknown to the programs, which from then on refuse its cgroup
// everything, and frees the ring. A second Close does nothing.
func (w *Watch) Close() error {
	counts, err := w.Counts()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.final != nil {
		return nil
	}
	w.final = &counts
	return errors.Join(err,
		w.runs.Delete(w.id),
		w.revoke(),
		w.rings.Delete(w.id),
		w.ring.close(),
		w.m.Close())
}

// An order puts events into the order of their numbers. Two CPUs can reach the ring the
// other way round than they were numbered; and the number of a lost event never comes.
type order struct {
	pending []audit.Event
	passed  uint64 // the highest number given out
	seen    uint64 // the highest number there was at the last look
}

func (o *order) add(e audit.Event) { o.pending = append(o.pending, e) }

// ready returns the events up to the first gap that is new. One that was there at the
// last look is taken for a loss.
func (o *order) ready() []audit.Event {
	for i := 1; i < len(o.pending); i++ {
		if o.pending[i].Seq < o.pending[i-1].Seq { // rare
			slices.SortFunc(o.pending, func(a, b audit.Event) int { return cmp.Compare(a.Seq, b.Seq) })
			break
		}
	}
	n := 0
	for n < len(o.pending) {
		seq := o.pending[n].Seq
		if seq > o.passed+1 && seq > o.seen {
			break
		}
		o.passed = max(o.passed, seq)
		n++
	}
	if len(o.pending) > 0 {
		o.seen = max(o.seen, o.pending[len(o.pending)-1].Seq)
	}
	out := o.pending[:n:n]
	o.pending = append(make([]audit.Event, 0, n), o.pending[n:]...)
	return out
}

// all returns what is left, past every gap.
func (o *order) all() []audit.Event {
	return append(o.ready(), o.ready()...)
}
