package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"proctor/audit"
	"proctor/bpf"
	"proctor/images"
	"proctor/netpolicy"
	"proctor/supervisor/box"
	"proctor/supervisor/limits"
	"proctor/supervisor/profile"
	"proctor/supervisor/room"
	"proctor/supervisor/turns"
)

// Options of New. Fields without a default are required.
type Options struct {
	StateDir string // what is kept: records
	RunDir   string // what lives until the next boot: network namespaces
	Runtime  box.Runtime
	Sensor   *bpf.Sensor
	Lock     *images.Lock
	// DefaultImages maps a language to the image that a run gets which names none. A
	// language that is not here gets the first image that has it.
	DefaultImages map[string]string
	Limits        LimitRange
	// Profiles says what runs may reach.
	Profiles    Profiles
	Network     Network
	RingBytes   int           // of each run's ring buffer, a power of two; default 8 MiB: making one costs 1.5 ms a MiB
	OnLoss      LossPolicy    // default kill
	StopTimeout time.Duration // how long runs may go on after Stop; default 10 s
	Runs        turns.Options // how many there may be, of all callers; default: no bound
	Alarms      Alarms        // default: nobody is told
	OnEnd       func(*Ended)  // of each run that had a record, before its caller has the verdict; default: none
	Places      []room.Place  // where there must be room for a new run; default: nowhere
	// MemoryReserve is how much of the host's memory must be available for a new run; with less
	// than half of it, running ones are ended. Default: it is not looked at.
	MemoryReserve int64 // bytes
	Logger        *slog.Logger
}

// LimitRange is what a run gets by default, and at most.
type LimitRange struct {
	Default box.Limits
	Ceiling box.Limits
}

// LossPolicy is an operator's.
type LossPolicy = limits.LossPolicy

// Supervisor takes runs. See the package's documentation for its life.
type Supervisor struct {
	runDir        string
	store         *audit.Store
	feed          audit.Feed
	runtime       box.Runtime
	sensor        *bpf.Sensor
	defaultImages map[string]string
	limits        LimitRange
	profiles      Profiles
	network       Network
	ringBytes     int
	onLoss        LossPolicy
	stopTimeout   time.Duration
	memoryReserve int64
	log           *slog.Logger
	since         time.Time

	ended    totals
	alarms   Alarms
	onEnd    func(*Ended)
	turns    *turns.Turns
	rooms    *room.Rooms
	unsealed unsealed
	tending  sync.WaitGroup
	untend   context.CancelFunc // nil before Start

	mu       sync.Mutex
	lock     *images.Lock
	stopping bool
	active   map[string]context.CancelCauseFunc
	boxes    map[string]box.Box // of runs that have one
	waiting  map[string]waiting
	runs     sync.WaitGroup // from admission to the last release
}

// New checks the options.
func New(o Options) (*Supervisor, error) {
	if err := o.Limits.Validate(); err != nil {
		return nil, err
	}
	store, err := audit.OpenStore(filepath.Join(o.StateDir, "runs"))
	if err != nil {
		return nil, err
	}
	s := &Supervisor{
		runDir: o.RunDir, store: store, runtime: o.Runtime, sensor: o.Sensor, lock: o.Lock,
		defaultImages: o.DefaultImages, limits: o.Limits, profiles: o.Profiles, network: o.Network, ringBytes: o.RingBytes,
		stopTimeout: o.StopTimeout, turns: turns.New(o.Runs), alarms: o.Alarms, onEnd: o.OnEnd, rooms: room.New(o.Logger, o.Places...), log: o.Logger,
		memoryReserve: o.MemoryReserve, boxes: map[string]box.Box{}, active: map[string]context.CancelCauseFunc{}, waiting: map[string]waiting{},
	}
	if s.alarms == nil {
		s.alarms = unheard{}
	}
	if s.ringBytes == 0 {
		s.ringBytes = 8 << 20
	}
	if s.onLoss = o.OnLoss; s.onLoss == "" {
		s.onLoss = limits.KillOnLoss
	}
	if s.stopTimeout == 0 {
		s.stopTimeout = 10 * time.Second
	}
	return s, nil
}

// Start removes what an earlier supervisor left, and seals its runs as interrupted, or will when
// there is room for that. It goes on to look after the disk until Stop.
func (s *Supervisor) Start(ctx context.Context) error {
	if _, err := s.runtime.Sweep(ctx); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	dir := filepath.Join(s.runDir, "netns")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, e := range entries {
		if err := netpolicy.RemoveNamespace(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	if err := s.sealInterrupted(); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	s.since = time.Now()
	_ = s.rooms.Check() // has it logged, if there is none
	ctx, s.untend = context.WithCancel(context.WithoutCancel(ctx))
	s.tending.Go(func() { s.tend(ctx) })
	if s.memoryReserve > 0 {
		s.tending.Go(func() { s.relieve(ctx) })
	}
	return nil
}

// interrupted closes the record that a run left, and judges it by what that holds. Of alarms in it
// that were raised, but not told to anybody yet, the supervisor's alarms hear.
func (s *Supervisor) interrupted(r *audit.Record) (*audit.Verdict, error) {
	v := &audit.Verdict{
		Run: r.Run, Status: audit.StatusInterrupted, ExitCode: CodeNotRun,
		Reason: "the supervisor ended while it ran; its record stops there",
		Remedy: "run it again",
	}
	// Without it, the run was never given its code; damaged, it has nothing to say.
	if q, err := r.Request(); err == nil {
		v.Image = q.Image
		if p, err := profile.Find(s.profiles.Dir, q.Profile); err == nil {
			s.alarms.Profile(p.Name, p.Alerts.Run.Over)
		}
	}
	t, alarm := newTally(), s.alarms.Left()
	end, sum, err := audit.FinishJournal(r.Path("events.jsonl"), r.Run,
		audit.End{Status: string(v.Status), Reason: v.Reason}, func(e *audit.Event) { t.add(e); alarm(e) })
	if err != nil {
		return nil, err
	}
	if end.Status == string(v.Status) {
		alarm(&audit.Event{Run: r.Run, Time: time.Now().UTC(), Kind: audit.KindEnd, End: &end})
	}
	if end.Status != string(v.Status) {
		v.Reason = fmt.Sprintf("the supervisor ended before it could give this run's verdict; its record is whole, and ends with %q: %s", end.Status, end.Reason)
	}
	v.Audit, v.Egress, v.Files, v.Usage.OOMKills = sum, t.destinations(), t.files, t.oom
	return v, nil
}

// ErrStopping is given to who comes, or still is there, while the supervisor stops.
var ErrStopping = errors.New("the supervisor is stopping")

// Stop takes no more runs, gives those there are the configured time, ends what is left,
// and returns when everything is released.
func (s *Supervisor) Stop(ctx context.Context) {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.turns.Close(ErrStopping)

	defer func() {
		if s.untend != nil {
			s.untend()
			s.tending.Wait()
		}
	}()

	idle := make(chan struct{})
	go func() { s.runs.Wait(); close(idle) }()
	timer := time.NewTimer(s.stopTimeout)
	defer timer.Stop()
	select {
	case <-idle:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	for _, cancel := range s.active {
		cancel(ErrStopping)
	}
	s.mu.Unlock()
	<-idle
}

// admit lets a run in, to be ended by cancel. Whoever is let in calls forget, and s.runs.Done
// when everything of it is released.
func (s *Supervisor) admit(id string, cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return ErrStopping
	}
	s.runs.Add(1)
	s.active[id] = cancel
	return nil
}

func (s *Supervisor) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, id)
}

// end cancels a run that is going on.
func (s *Supervisor) end(id string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.active[id]; ok {
		cancel(why)
	}
}

// errKilled is the cause of a run that Kill ended.
var errKilled = errors.New("somebody asked for it with `proctor kill`")

// Kill ends a run that is going on, or waits. It returns at once; the run's own caller gets the verdict.
func (s *Supervisor) Kill(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel, ok := s.active[id]
	if w, waits := s.waiting[id]; waits {
		cancel, ok = w.cancel, true
	}
	if !ok {
		return fmt.Errorf("run %s: %w, or it has ended: see `proctor audit list`", id, audit.ErrNoRun)
	}
	cancel(errKilled)
	return nil
}

// releaseTimeout bounds each step of taking a run apart.
const releaseTimeout = 30 * time.Second

// release gives back what the run holds, in reverse order, in the background.
func (s *Supervisor) release(r *run) {
	go func() {
		for _, rel := range slices.Backward(r.releases) {
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
			if err := rel.f(ctx); err != nil {
				r.log.Error("not released", "what", rel.what, "error", err)
			}
			cancel()
		}
	}()
}

// Records is where runs are written down.
func (s *Supervisor) Records() *audit.Store { return s.store }

// Feed is what all runs do, live.
func (s *Supervisor) Feed() *audit.Feed { return &s.feed }

// Counters returns how much was recorded and refused since this supervisor began, by names
// that fit metrics: the sums over all runs that ended, and what the kernel's programs could
// not do.
func (s *Supervisor) Counters() (map[string]uint64, error) {
	all, err := s.sensor.Counters()
	if err != nil {
		return nil, err
	}
	s.ended.addTo(all)
	all["goroutines"] = uint64(runtime.NumGoroutine())
	return all, nil
}

// Active lists the runs that are going on, oldest first.
func (s *Supervisor) Active() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.active))
	for id := range s.active {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Check says what keeps runs from being watched, such as that somebody detached the kernel's programs.
func (s *Supervisor) Check() error { return s.sensor.Check() }

// Since is when Start was done.
func (s *Supervisor) Since() time.Time { return s.since }

// Image is one that runs may use.
type Image = images.Image

// Images lists what runs may use.
func (s *Supervisor) Images() []Image { return s.currentLock().All() }

func (s *Supervisor) currentLock() *images.Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock
}

// UseLock replaces the lock, for the runs that come after.
func (s *Supervisor) UseLock(l *images.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock = l
}
