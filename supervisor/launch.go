package supervisor

import (
	"context"
	"errors"
	"sync"
	"time"

	"fmt"

	"proctor/audit"
	"proctor/bpf"
	"proctor/supervisor/box"
	"proctor/supervisor/limits"
)

// killTimeout bounds how long the kernel may take to end every process of a box.
const killTimeout = 10 * time.Second

// launch starts the program, follows it to its end, and fills in the verdict.
func (r *run) launch(ctx context.Context, telling *telling, v *audit.Verdict) {
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
	streams.follow(telling)
	if err != nil {
		e.unsent = err
	} else {
		r.untilEnd(ctx, e, deadline, blind, lossy)
	}
	wall := time.Since(started)
	e.orphaned = r.box.Orphaned()

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
		case e.blind = <-r.mistold:
		default:
		}
	}
	if err := errors.Join(r.drain(), r.reconcile()); err != nil && e.blind == nil {
		e.blind = err
	}
	if e.loss == nil && r.onLoss == limits.KillOnLoss {
		// Found only now: the program's end was faster.
		if e.loss = r.watch.Loss(); e.loss == nil {
			select {
			case e.loss = <-r.overtold:
			default:
			}
		}
	}
	r.conclude(e, v, streams, wall)
}

// untilEnd waits for the first of what ends a run, and notes it.
func (r *run) untilEnd(ctx context.Context, e *ending, deadline *time.Timer, blind <-chan error, lossy <-chan *bpf.LossError) {
	spent, grace := r.cpuTimer(), make(<-chan time.Time)
	defer spent.Stop()
	look := time.NewTicker(unchargedEvery)
	defer look.Stop()
	for going := true; going; {
		going = false
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
			if r.limits.Grace > 0 {
				if err := r.box.Terminate(); err != nil {
					r.log.Warn("a run was not asked to end", "error", err)
				}
				grace, going = time.After(r.limits.Grace), true
			}
		case <-grace:
		case <-spent.C:
			left, err := r.cpuLeft(spent)
			going, e.blind, e.cpuTime = left, err, !left && err == nil
		case <-look.C:
			e.uncharged, e.blind = r.uncharged()
			going = e.uncharged == nil && e.blind == nil
		case err := <-blind:
			e.blind = err
		case e.loss = <-lossy:
		case e.loss = <-r.overtold:
		case e.blind = <-r.mistold:
		case e.gateway = <-r.net.gateway.Failed():
		case <-ctx.Done():
			e.canceled = context.Cause(ctx)
		}
	}
}

// conclude fills in the verdict, once everything of the run is dead and written down.
func (r *run) conclude(e *ending, v *audit.Verdict, streams *streams, wall time.Duration) {
	usage, err := r.box.Usage()
	if err != nil {
		r.log.Warn("usage not known", "error", err)
	}
	outputs, err := collectOutputs(r.box.Outputs(), r.record.Path("outputs"), collectFrom(r.limits))
	if err != nil {
		r.log.Error("outputs not collected", "error", err)
		e.blind = errors.Join(e.blind, err)
	}
	e.unkept, e.unkeptWhy = outputs.unkept, outputs.full
	if noRoom(e.blind) || e.unkept > 0 {
		e.makeRoom = r.supervisor.makeRoom()
	}
	if e.lost, err = r.watch.LostByKind(); err != nil {
		r.log.Error("the kernel's counts are not known", "error", err)
	}
	e.lost = r.withUntold(e.lost)
	if loss := r.watch.Loss(); loss != nil {
		e.pastLimit = loss.Limited()
	}
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

// cpuTimer fires when the run can have had all of its processor time at the soonest.
func (r *run) cpuTimer() *time.Timer {
	return time.NewTimer(time.Duration(float64(r.limits.CPUTime) / r.limits.CPUs))
}

// cpuLeft reports whether there is processor time left, and sets the timer for when it can be
// gone.
func (r *run) cpuLeft(timer *time.Timer) (bool, error) {
	used, err := r.box.Usage()
	if noDescriptors(err) {
		timer.Reset(unchargedEvery) // uncharged has a bound for it
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("how much processor time it had is not known: %w", err)
	}
	left := r.limits.CPUTime - used.CPU
	if left <= 0 {
		return false, nil
	}
	// Not without end in ever smaller steps.
	timer.Reset(max(time.Duration(float64(left)/r.limits.CPUs), 5*time.Millisecond))
	return true, nil
}
