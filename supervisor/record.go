package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/supervisor/limits"
)

// begin makes the record and writes the request down, so that also a run that gets no further
// says whose it was. On error there is no record.
func (r *run) begin() (err error) {
	if r.record, err = r.supervisor.store.Create(r.id, r.req.Code); err != nil {
		return err
	}
	if r.journal, err = audit.CreateJournal(r.record.Path("events.jsonl")); err != nil {
		return errors.Join(err, r.record.Discard())
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
		Agent:    audit.Text(r.req.Agent), Conversation: audit.Text(r.req.Conversation),
		Egress: describe(r.net.policy),
	}
	for _, a := range r.plan.argv {
		r.request.Argv = append(r.request.Argv, audit.Text(a))
	}
	if err = r.record.WriteRequest(r.request); err != nil {
		_, cerr := r.journal.Close()
		return errors.Join(err, cerr, r.record.Discard())
	}
	return nil
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
	if r.supervisor.alarms.Observe(events) {
		r.alarmed = true
	}
	r.supervisor.feed.Publish(r.id, events)
	return nil
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
			if r.onLoss == limits.KillOnLoss {
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
	held := 0
	if r.journal != nil {
		held = r.journal.Held()
	}
	err := write(events)
	written := events
	if err != nil && r.journal != nil {
		// Those before the error are in the record; of the others it can be said what they were.
		written = events[:r.journal.Held()-held]
		for i := range events[len(written):] {
			r.untold[events[len(written)+i].Kind]++
		}
	}
	for i := range written {
		if written[i].Seq != 0 {
			r.noted++
		}
	}
	return err
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
		v.Audit.Complete = err == nil && v.Audit.Counts == noted && r.raced == 0 && r.journal.Err() == nil
	}
	end := audit.Event{Run: r.id, Time: time.Now().UTC(), Kind: audit.KindEnd, End: &audit.End{
		Status: string(v.Status), Reason: v.Reason, Counts: v.Audit.Counts, Inputs: v.Inputs,
	}}
	err := r.journal.AppendEnd(end)
	if r.supervisor.alarms.Observe([]audit.Event{end}) {
		r.alarmed = true
	}
	if err == nil {
		r.supervisor.feed.Publish(r.id, []audit.Event{end})
	}
	seal, cerr := r.journal.Close()
	r.journal = nil
	v.Audit.Seal = seal
	if err = errors.Join(err, cerr); err != nil {
		r.log.Error("record not sealed", "error", err)
		v.Audit.Complete = false
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "the record could not be written: " + err.Error()
		if noRoom(err) {
			v.Remedy = r.supervisor.makeRoom()
		}
	}
}
