package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor/room"
)

// FullError is a refusal because there is no room on disk for a new run.
type FullError = room.FullError

// RetryFull is when another try may do better after a FullError: people have to make room.
const RetryFull = time.Minute

// noRoom reports whether an error says that a disk takes no more. containerd's errors come as
// text.
func noRoom(err error) bool {
	return err != nil && (audit.IsFull(err) ||
		strings.Contains(err.Error(), unix.ENOSPC.Error()) || strings.Contains(err.Error(), unix.EROFS.Error()))
}

// makeRoom is the remedy where there is no room.
func (s *Supervisor) makeRoom() string {
	return "the operator has to make room (" + s.rooms.Describe() + "); then new runs are taken by themselves"
}

// suspectDisk names in the verdict of a failed run the places where little is free: not every
// failure for want of room says so. runc, for one, can't write down what stopped it there.
func (s *Supervisor) suspectDisk(v *audit.Verdict) {
	if v.Status != audit.StatusError {
		return
	}
	scarce := s.rooms.Scarce()
	if scarce == "" || strings.Contains(v.Remedy, scarce) {
		return
	}
	if v.Remedy != "" {
		v.Remedy += "; "
	}
	v.Remedy += "there is little room on disk, which may be why (" + scarce + ")"
}

// Room is how it looks where the supervisor writes.
func (s *Supervisor) Room() []room.State { return s.rooms.States() }

// writeVerdict records how a run ended. The caller must not be told of a success that the record
// does not hold: what can't be recorded changes v.
func (s *Supervisor) writeVerdict(r *run, v *audit.Verdict) {
	if r.alarmed {
		// What has a verdict is not looked at again after a crash.
		s.alarms.Keep()
	}
	err := r.record.WriteVerdict(v)
	if err == nil {
		return
	}
	v.Status, v.ExitCode = audit.StatusError, CodeNotRun
	v.Reason, v.Remedy = "the verdict could not be recorded: "+err.Error(), ""
	if noRoom(err) {
		v.Remedy = s.makeRoom()
	}
	short := v.Abridged()
	if serr := r.record.WriteVerdict(short); serr != nil {
		s.unsealed.add(r.id, short)
	}
	r.log.Error("verdict not recorded whole", "error", err)
}

// unsealed are runs whose verdict is not on disk, for want of room. The verdict is nil where an
// earlier supervisor left the record, which is to be closed first.
type unsealed struct {
	mu       sync.Mutex
	verdicts map[string]*audit.Verdict
}

func (u *unsealed) add(run string, v *audit.Verdict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.verdicts == nil {
		u.verdicts = map[string]*audit.Verdict{}
	}
	u.verdicts[run] = v
}

func (u *unsealed) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.verdicts)
}

// take hands one over, oldest first, which stays until it is done.
func (u *unsealed) take() (run string, v *audit.Verdict, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.verdicts {
		if run == "" || id < run {
			run = id
		}
	}
	return run, u.verdicts[run], run != ""
}

func (u *unsealed) done(run string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.verdicts, run)
}

// tendEvery is how often it is looked whether there is room, with nobody asking.
const tendEvery = 2 * time.Second

// tend looks after the disk until ctx ends: what could not be written is, as soon as there is
// room.
func (s *Supervisor) tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.rooms.Check() == nil {
				s.sealLate()
			}
		}
	}
}

// sealLate writes the verdicts that could not be written. One that still can't be is tried again
// the next time.
func (s *Supervisor) sealLate() {
	for {
		id, v, ok := s.unsealed.take()
		if !ok {
			return
		}
		if err := s.sealOne(id, v); err != nil {
			if !noRoom(err) {
				s.log.Error("a run has no verdict on disk", "run", id, "error", err)
				s.unsealed.done(id)
				continue
			}
			return
		}
		s.unsealed.done(id)
		s.log.Info("verdict recorded, now that there is room", "run", id)
	}
}

// sealOne writes a verdict, and closes the record before it where v is nil.
func (s *Supervisor) sealOne(id string, v *audit.Verdict) error {
	r, err := s.store.Open(id)
	if err != nil {
		return err
	}
	if v == nil {
		if v, err = s.interrupted(r); err != nil {
			return fmt.Errorf("run %s: %w", id, err)
		}
		s.alarms.Keep()
	}
	return r.WriteVerdict(v)
}

// sealInterrupted gives a verdict to every record that has none. Those for which there is no
// room get theirs later: new runs are refused meanwhile, and everybody can see why.
func (s *Supervisor) sealInterrupted() error {
	runs, err := s.store.Runs()
	if err != nil {
		return err
	}
	var records []*audit.Record
	var verdicts []*audit.Verdict
	for _, id := range slices.Backward(runs) { // oldest first
		r, err := s.store.Open(id)
		if err != nil {
			return err
		}
		if has, err := r.HasVerdict(); has || err != nil {
			// One that cannot be read is left for people to look at.
			continue
		}
		switch v, err := s.interrupted(r); {
		case noRoom(err):
			s.unsealed.add(id, nil)
		case err != nil:
			return fmt.Errorf("run %s: %w", id, err)
		default:
			records, verdicts = append(records, r), append(verdicts, v)
		}
	}
	s.alarms.Keep() // of all of them: it is a write to the disk
	for n, r := range records {
		switch err := r.WriteVerdict(verdicts[n]); {
		case noRoom(err):
			s.unsealed.add(r.Run, nil)
		case err != nil:
			return err
		default:
			s.log.Warn("sealed a run that an earlier supervisor did not finish", "run", r.Run)
		}
	}
	if n := s.unsealed.count(); n > 0 {
		s.log.Error("runs that an earlier supervisor did not finish are sealed when there is room", "runs", n, "room", s.rooms.Describe())
	}
	return nil
}
