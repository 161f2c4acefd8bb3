package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/netpolicy"
	"proctor/supervisor/box"
)

// Observer is told how a run goes while it goes. Its methods are called from several
// goroutines, and may take their time: the program does not wait for them.
type Observer interface {
	Admitted(run string)
	Stdout(p []byte) error
	Stderr(p []byte) error
}

// Run takes a request through its whole life and returns its verdict. A request that
// breaks a rule gives a *Refusal; any other error means that nothing ran and no record was
// begun. Once a record exists, whatever goes wrong is in the verdict.
//
// When ctx ends, so does the run. Run returns when the verdict is sealed; what is left of
// the box is removed in the background, which Stop waits for.
func (s *Supervisor) Run(ctx context.Context, req *Request, obs Observer) (*audit.Verdict, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	limits, err := req.Limits.within(s.limits.Default, s.limits.Ceiling)
	if err != nil {
		return nil, err
	}
	plan, err := s.plan(req)
	if err != nil {
		return nil, err
	}
	id := uuid.Must(uuid.NewV7()).String()
	ctx, cancel := context.WithCancelCause(ctx)
	if err := s.admit(id, cancel); err != nil {
		cancel(nil)
		return nil, err
	}
	r := &run{
		supervisor: s, id: id, req: req, plan: plan, limits: limits,
		net: network{policy: plan.policy},
		log: s.log.With("run", id), tally: newTally(), lineage: lineage{}, mainExited: make(chan struct{}),
		overtold: make(chan *bpf.LossError, 1), untold: map[audit.Kind]uint64{},
	}
	r.onRelease("leave the supervisor", func(context.Context) error { s.runs.Done(); return nil })
	defer r.passing.Wait() // last: a slow observer keeps no box
	defer s.release(r)
	// First: who ends it from now on comes too late, though its box may still be there.
	defer func() { s.forget(id); cancel(nil) }()

	if r.record, err = s.store.Create(id, req.Code); err != nil {
		return nil, err
	}
	obs.Admitted(id)
	v := r.do(ctx, obs)
	s.ended.add(v)
	if err := r.record.WriteVerdict(v); err != nil {
		// The caller must not be told of a success that the record does not hold.
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "the verdict could not be recorded: " + err.Error()
		r.log.Error("verdict not recorded", "error", err)
	}
	r.log.Info("run ended", "status", v.Status, "exit_code", v.ExitCode, "events", v.Audit.Events, "lost", v.Audit.Lost, "wall_ms", v.Usage.WallMS)
	return v, nil
}

// run is the state of one run.
type run struct {
	supervisor *Supervisor
	id         string
	req        *Request
	plan       *plan
	limits     box.Limits
	log        *slog.Logger

	record  *audit.Record
	request *audit.Request
	journal *audit.Journal
	noted   uint64 // events of the kernel's in the journal
	folded  uint64 // acts that these stand for beyond themselves
	raced   uint64 // of these, how many are in doubt
	box     box.Box
	net     network

	mu      sync.Mutex // of what both the kernel's and the gateway's events change: the journal and its counts, too
	watch   *bpf.Watch
	tally   *tally
	lineage lineage

	told     uint64                // what the gateway's events count for
	untold   map[audit.Kind]uint64 // those past the limit, which are not in the journal
	overtold chan *bpf.LossError   // gets one when they are too many
	mistold  sync.Once             // that one could not be written is logged once

	mainExited chan struct{} // closed when the kernel has said that the main process ended

	releases []release
	passing  sync.WaitGroup // of what is still being passed on to the observer
}

type release struct {
	what string
	f    func(context.Context) error
}

// onRelease registers how to give something back, right after it was acquired.
func (r *run) onRelease(what string, f func(context.Context) error) {
	r.releases = append(r.releases, release{what, f})
}

// do runs the request, whose record exists, and returns its verdict.
func (r *run) do(ctx context.Context, obs Observer) *audit.Verdict {
	v := &audit.Verdict{Run: r.id, Image: audit.ImageRef{Name: r.plan.name, Digest: r.plan.digest}}
	for _, step := range []struct {
		name string
		f    func(context.Context) error
	}{{"journal", r.begin}, {"prepare", r.prepare}, {"attach", r.attach}} {
		began := time.Now()
		err := step.f(ctx)
		r.log.Debug("phase", "name", step.name, "took", time.Since(began))
		if err != nil {
			r.failed(ctx, v, err)
			r.seal(v)
			return v
		}
	}
	r.launch(ctx, obs, v)
	r.seal(v)
	return v
}

// failed fills in the verdict of a run whose program never started.
func (r *run) failed(ctx context.Context, v *audit.Verdict, err error) {
	if ctx.Err() != nil {
		v.Status, v.ExitCode = audit.StatusKilled, CodeKilled
		v.Reason = "ended before its program was started: " + context.Cause(ctx).Error()
		return
	}
	v.Status, v.ExitCode = audit.StatusError, CodeNotRun
	v.Reason = err.Error()
	v.Remedy = "nothing of it ran; `proctor doctor` and the supervisor's log say more"
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		v.Reason, v.Remedy = refusal.What, refusal.Fix
	}
	r.log.Error("run not started", "error", err)
}

// begin opens the record and writes the request down, so that also a run that gets no
// further says whose it was.
func (r *run) begin(context.Context) (err error) {
	if r.journal, err = audit.CreateJournal(r.record.Path("events.jsonl")); err != nil {
		return err
	}
	sum := sha256.Sum256(r.req.Code)
	r.request = &audit.Request{
		Run: r.id, Time: time.Now().UTC(), Caller: r.req.Caller,
		Image:    audit.ImageRef{Name: r.plan.name, Digest: r.plan.digest},
		Language: r.req.Language,
		Code:     audit.CodeRef{Name: r.req.Name, Bytes: int64(len(r.req.Code)), SHA256: hex.EncodeToString(sum[:])},
		Inputs:   []audit.InputRef{},
		Limits:   r.limits,
		Profile:  r.plan.profile.Name,
		Egress:   describe(r.net.policy),
	}
	for _, a := range r.plan.argv {
		r.request.Argv = append(r.request.Argv, audit.Text(a))
	}
	return r.record.WriteRequest(r.request)
}

// prepare makes a box, watched and waiting, that knows nothing of the code.
func (r *run) prepare(ctx context.Context) error {
	s := r.supervisor
	// Somebody may have taken the kernel's programs away since the last run.
	if err := s.sensor.Check(); err != nil {
		return fmt.Errorf("nothing is run unwatched: %w", err)
	}
	ns, err := netpolicy.NewNamespace(filepath.Join(s.runDir, "netns"), r.id)
	if err != nil {
		return err
	}
	r.onRelease("network namespace", func(context.Context) error { return ns.Close() })
	served, err := r.serve(ctx, ns)
	if err != nil {
		return err
	}
	err = r.prepareBox(ctx, ns)
	// Before the box's own processes are there.
	if err := errors.Join(err, served()); err != nil {
		return err
	}
	return r.box.Start(ctx)
}

// prepareBox makes the box and has it watched.
func (r *run) prepareBox(ctx context.Context, ns *netpolicy.Namespace) (err error) {
	s := r.supervisor
	r.box, err = s.runtime.Create(ctx, box.Spec{
		ID: r.id, Image: r.plan.ref, Limits: r.limits, NetNS: ns.Path(), Resolver: netpolicy.Resolver,
	})
	if err != nil {
		return err
	}
	r.onRelease("box", r.box.Destroy)

	watch, err := s.sensor.Watch(bpf.WatchOptions{
		Run: r.id, CgroupID: r.box.CgroupID(), RingBytes: s.ringBytes, Events: uint64(r.limits.AuditEvents),
		Grants: grants(r.net.policy),
	})
	if err != nil {
		return err
	}
	r.onRelease("watch", func(context.Context) error { return watch.Close() })
	r.mu.Lock()
	r.watch = watch
	r.mu.Unlock()
	return nil
}

// attach gives the box its code and inputs, and begins the record.
func (r *run) attach(ctx context.Context) error {
	if err := r.box.AttachCode(r.req.Name, r.req.Code); err != nil {
		return err
	}
	env, err := r.trust()
	if err != nil {
		return err
	}
	r.plan.env = append(r.plan.env, env...)
	q := r.request
	for _, in := range r.req.Inputs {
		how, err := r.box.AttachInput(ctx, in.Name, in.File)
		if err != nil {
			return err
		}
		info, err := in.File.Stat()
		if err != nil {
			return fmt.Errorf("input %q: %w", in.Name, err)
		}
		q.Inputs = append(q.Inputs, audit.InputRef{Name: audit.Text(in.Name), Bytes: info.Size(), How: how.How, Why: how.Reason})
	}
	if len(q.Inputs) > 0 {
		if err := r.record.WriteRequest(q); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write([]audit.Event{{Run: r.id, Time: q.Time, Kind: audit.KindStart, Start: q}})
}

var errSealed = errors.New("the record is sealed")

// write appends to the record and the live feed. It is called with the lock.
func (r *run) write(events []audit.Event) error {
	if r.journal == nil {
		return errSealed // a gateway that did not end when it was told to
	}
	if err := r.journal.Append(events...); err != nil {
		return err
	}
	r.supervisor.feed.Publish(r.id, events)
	return nil
}

// killTimeout bounds how long the kernel may take to end every process of a box.
const killTimeout = 10 * time.Second

// launch starts the program, follows it to its end, and fills in the verdict.
func (r *run) launch(ctx context.Context, obs Observer, v *audit.Verdict) {
	e := &ending{limits: r.limits}
	streams, err := newStreams(r.limits.OutputBytes)
	if err != nil {
		e.blind = err
		e.judge(v)
		return
	}
	defer streams.close()

	var watching sync.WaitGroup
	blind, lossy := make(chan error, 1), make(chan *bpf.LossError, 1)
	if err := r.watch.Arm(); err != nil {
		e.blind = err
		e.judge(v)
		return
	}
	watchCtx, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	watching.Go(func() {
		if err := r.follow(watchCtx, lossy); err != nil {
			blind <- err
		}
	})

	started := time.Now()
	deadline := time.NewTimer(r.limits.Timeout)
	defer deadline.Stop()
	err = r.box.Go(ctx, box.Program{Argv: r.plan.argv, Env: r.plan.env, Dir: "/scratch", Stdio: streams.inside})
	streams.closeInside()
	streams.follow(obs, &r.passing)
	if err != nil {
		e.unsent = err
	} else {
		select {
		case exit, ok := <-r.box.Exited():
			if ok {
				e.box = &exit
			}
		case <-r.mainExited:
			// The kernel's word, where the code keeps init from saying it: it has the same
			// user, and can take its processor time away.
		case <-deadline.C:
			e.deadline = true
		case err := <-blind:
			e.blind = err
		case e.loss = <-lossy:
		case e.loss = <-r.overtold:
		case e.gateway = <-r.net.gateway.Failed():
		case <-ctx.Done():
			e.canceled = context.Cause(ctx)
		}
	}
	wall := time.Since(started)

	// From here nothing waits for the caller, whose context may be over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if err := r.box.Kill(ctx); err != nil {
		r.log.Error("a run's processes did not end", "error", err)
		e.blind = errors.Join(e.blind, err)
		streams.closeOutside()
	}
	// Both words can come at once. Init's has more: why a program could not be started. With
	// init dead, it is there or will not come.
	if e.box == nil && e.unsent == nil {
		select {
		case exit, ok := <-r.box.Exited():
			if ok {
				e.box = &exit
			}
		case <-ctx.Done():
		}
	}
	// Every process is dead: the streams end, and no more events come.
	streams.wait()
	stopWatching()
	watching.Wait()
	if e.gateway == nil {
		e.gateway = r.net.gateway.Finish(ctx)
	}
	if e.gateway != nil {
		// Whatever it is doing, it tells no more: what it told is summed up now.
		if err := r.net.gateway.Close(); err != nil {
			r.log.Error("the gateway did not end", "error", err)
		}
	}
	if e.blind == nil {
		select {
		case e.blind = <-blind:
		default:
		}
	}
	if err := errors.Join(r.drain(), r.reconcile()); err != nil && e.blind == nil {
		e.blind = err
	}
	if e.loss == nil && r.supervisor.onLoss == KillOnLoss {
		// Found only now: the program's end was faster.
		if e.loss = r.watch.Loss(); e.loss == nil {
			select {
			case e.loss = <-r.overtold:
			default:
			}
		}
	}

	usage, err := r.box.Usage()
	if err != nil {
		r.log.Warn("usage not known", "error", err)
	}
	outputs, err := collectOutputs(r.box.Outputs(), r.record.Path("outputs"), collectFrom(r.limits))
	if err != nil {
		r.log.Error("outputs not collected", "error", err)
		e.blind = errors.Join(e.blind, err)
	}
	if e.lost, err = r.watch.LostByKind(); err != nil {
		r.log.Error("the kernel's counts are not known", "error", err)
	}
	e.lost = r.withUntold(e.lost)
	e.raced = r.raced
	oom := max(r.tally.oom, usage.OOMKills) // the kernel's own count has those whose event was lost
	e.kernel, e.oom, e.mainOOM, e.pidsHit = r.tally.exit, oom, r.tally.mainOOM, usage.PIDsHit
	v.Egress = r.tally.destinations()
	e.blocked, e.blockedMore = v.Egress.Blocked, v.Egress.BlockedMore
	e.granted, e.profile = len(r.net.policy.Allow) > 0, r.plan.profile.Name
	e.refused, e.foreign = r.tally.refusals(), r.tally.foreign
	e.judge(v)
	v.Stdout, v.Stderr = streams.stdout.output(), streams.stderr.output()
	v.Outputs, v.Skipped, v.SkippedMore = outputs.files, outputs.skipped, outputs.more
	v.Files = r.tally.files
	v.Refused, v.RefusedMore = r.tally.refusals(), r.tally.refusedMore
	v.Audit.LostByKind = e.lost
	v.Usage = audit.Usage{
		WallMS: milliseconds(wall), CPUMS: milliseconds(usage.CPU),
		MemoryPeak: usage.MemoryPeak, ProcessesPeak: usage.ProcessesPeak, OOMKills: oom,
	}
}

// readerNice puts those who write down before those who act.
const readerNice = -10

// follow writes down events as they come, until ctx ends. A loss goes to lossy, where the
// policy does not let the run go on after one.
func (r *run) follow(ctx context.Context, lossy chan<- *bpf.LossError) error {
	// A run must not lose events because the host is busy. The thread is not given back: it
	// ends with this goroutine.
	runtime.LockOSThread()
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), readerNice); err != nil {
		r.log.Debug("the reader of events has no priority", "error", err)
	}
	for {
		events, err := r.watch.Read(ctx)
		if werr := r.take(events); werr != nil {
			return werr
		}
		var loss *bpf.LossError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &loss):
			r.log.Warn("the record is incomplete", "why", loss)
			if r.supervisor.onLoss == KillOnLoss {
				lossy <- loss
			}
		case err != nil:
			return err
		}
	}
}

// drain writes down what the kernel still holds.
func (r *run) drain() error {
	events, err := r.watch.Drain()
	return errors.Join(r.take(events), err)
}

func (r *run) take(events []audit.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeLocked(events, r.write)
}

// takeLocked sums up events and has them written.
func (r *run) takeLocked(events []audit.Event, write func([]audit.Event) error) error {
	ended := r.tally.exit != nil
	for i := range events {
		e := &events[i]
		r.lineage.add(e)
		if e.Net != nil {
			r.explain(e.Net)
		}
		r.tally.add(e)
		if e.Repeat != nil {
			r.folded += e.Repeat.Count
		}
		if e.Doubtful() {
			r.raced++
		}
	}
	if !ended && r.tally.exit != nil {
		close(r.mainExited)
	}
	if err := write(events); err != nil {
		return err
	}
	for i := range events {
		if events[i].Seq != 0 {
			r.noted++
		}
	}
	return nil
}

// seal closes the record. After it, nothing of the run is written but its verdict.
func (r *run) seal(v *audit.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.journal == nil {
		return
	}
	if r.watch != nil {
		counts, err := r.watch.Counts()
		if err != nil {
			r.log.Error("the kernel's counts are not known", "error", err)
		}
		v.Audit.Counts = counts
		for _, n := range r.untold {
			v.Audit.Lost += n
		}
		noted := audit.Counts{Events: r.noted, Folded: r.folded}
		v.Audit.Complete = err == nil && v.Audit.Counts == noted && r.raced == 0
	}
	end := audit.Event{Run: r.id, Time: time.Now().UTC(), Kind: audit.KindEnd, End: &audit.End{
		Status: string(v.Status), Reason: v.Reason, Counts: v.Audit.Counts,
	}}
	err := r.write([]audit.Event{end})
	seal, cerr := r.journal.Close()
	r.journal = nil
	v.Audit.Seal = seal
	if err = errors.Join(err, cerr); err != nil {
		r.log.Error("record not sealed", "error", err)
		v.Audit.Complete = false
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "the record could not be written: " + err.Error()
	}
}
