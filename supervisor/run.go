package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"proctor/audit"
	"proctor/bpf"
	"proctor/netpolicy"
	"proctor/supervisor/box"
)

// Observer is told how a run goes while it goes. Its methods are called from several
// goroutines, and may take their time: the program does not wait for them.
type Observer interface {
	Waits(run string, before int) // it is not yet let in, and at most so many are before it
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
	telling := &telling{obs: obs}
	defer telling.wait() // last: a slow observer keeps no box, and nobody else's place
	id := uuid.Must(uuid.NewV7()).String()
	ctx, cancel := context.WithCancelCause(ctx)
	came := time.Now()
	plan, leave, err := s.enter(ctx, id, req, telling, cancel)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if err := s.admit(id, cancel); err != nil {
		cancel(nil)
		leave()
		return nil, err
	}
	r := &run{
		supervisor: s, id: id, req: req, plan: plan, limits: plan.limits, onLoss: plan.onLoss,
		net: network{policy: plan.policy},
		log: s.log.With("run", id), tally: newTally(), lineage: lineage{}, mainExited: make(chan struct{}),
		overtold: make(chan *bpf.LossError, 1), mistold: make(chan error, 1), untold: map[audit.Kind]uint64{},
		phases: map[string]time.Duration{"wait": time.Since(came)},
	}
	s.alarms.Profile(plan.profile.Name, plan.profile.Alerts.Run.Over)
	r.onRelease("leave the supervisor", func(context.Context) error { s.runs.Done(); return nil })
	r.onRelease("leave room for another", func(context.Context) error { leave(); return nil })
	defer s.release(r)
	// First: who ends it from now on comes too late, though its box may still be there.
	defer func() { s.forget(id); cancel(nil) }()

	if err := r.begin(); err != nil {
		if noRoom(err) {
			return nil, &FullError{Problem: err.Error(), Fix: s.makeRoom()}
		}
		return nil, err
	}
	telling.say(func() { obs.Admitted(id) })
	v := r.do(ctx, telling)
	s.suspectDisk(v)
	r.phase("seal", func() { s.writeVerdict(r, v) })
	s.ended.add(v)
	if s.onEnd != nil {
		s.onEnd(&Ended{Profile: plan.profile.Name, Verdict: v, Phases: r.phases})
	}
	r.log.Info("run ended", "status", v.Status, "exit_code", v.ExitCode, "events", v.Audit.Events, "lost", v.Audit.Lost, "seal", v.Audit.Seal, "wall_ms", v.Usage.WallMS)
	return v, nil
}

// run is the state of one run.
type run struct {
	supervisor *Supervisor
	id         string
	req        *Request
	plan       *plan
	limits     box.Limits
	onLoss     LossPolicy
	log        *slog.Logger

	record  *audit.Record
	request *audit.Request
	journal *audit.Journal
	noted   uint64 // events of the kernel's in the journal
	folded  uint64 // acts that these stand for beyond themselves
	raced   uint64 // of these, how many are in doubt
	box     box.Box
	net     network
	reading *reading // nil: there was no box for inputs

	mu      sync.Mutex // of what both the kernel's and the gateway's events change: the journal and its counts, too
	watch   *bpf.Watch
	tally   *tally
	alarmed bool // somebody should hear of it
	lineage lineage

	told     uint64                // what the gateway's events count for
	untold   map[audit.Kind]uint64 // those past the limit, which are not in the journal
	overtold chan *bpf.LossError   // gets one when they are too many
	mistold  chan error            // gets the first that says that one could not be written
	unlooked int                   // how often in a row nobody could look at its box

	mainExited chan struct{} // closed when the kernel has said that the main process ended

	phases map[string]time.Duration

	releases []release
}

// phase has f done, and notes how long it took.
func (r *run) phase(name string, f func()) {
	began := time.Now()
	f()
	r.phases[name] = time.Since(began)
	r.log.Debug("phase", "name", name, "took", r.phases[name])
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
func (r *run) do(ctx context.Context, telling *telling) *audit.Verdict {
	v := &audit.Verdict{Run: r.id, Image: audit.ImageRef{Name: r.plan.name, Digest: r.plan.digest}}
	for _, step := range []struct {
		name string
		f    func(context.Context) error
	}{{"prepare", r.prepare}, {"attach", r.attach}} {
		var err error
		if r.phase(step.name, func() { err = step.f(ctx) }); err != nil {
			r.failed(ctx, v, err)
			if r.reading != nil {
				r.reading.stop() // nobody saw them
			}
			r.seal(v)
			return v
		}
	}
	r.phase("run", func() { r.launch(ctx, telling, v) })
	v.Inputs = r.reading.finish()
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
	if noRoom(err) {
		v.Remedy = "nothing of it ran; " + r.supervisor.makeRoom()
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		v.Reason, v.Remedy = refusal.What, refusal.Fix
	}
	r.log.Error("run not started", "error", err)
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
	forget := s.keepBox(r.id, r.box)
	r.onRelease("box among all", func(context.Context) error { forget(); return nil })

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
	if r.reading, err = readInputs(r.req.Inputs); err != nil {
		return err
	}
	q := r.request
	for i, in := range r.req.Inputs {
		how, err := r.box.AttachInput(ctx, in.Name, in.File)
		if err != nil {
			return err
		}
		r.reading.inputs[i].linked = how.How == box.Mounted
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
