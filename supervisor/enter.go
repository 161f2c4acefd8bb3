package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"proctor/audit"
	"proctor/supervisor/turns"
)

// A BusyError is a refusal for want of room: of the caller's, or of all callers' runs so many go
// on and so many wait that this one may not even wait.
type BusyError struct {
	Refusal
	Retry time.Duration // when another try may do better
}

func (e *BusyError) Unwrap() error { return &e.Refusal }

// waiting is a run that is not yet let in.
type waiting struct {
	caller audit.Caller
	cancel context.CancelCauseFunc
}

func (s *Supervisor) wait(id string, w waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id] = w
}

func (s *Supervisor) waitNoMore(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

// Waiting is who asked for the runs that are not yet let in. Nothing is recorded of them.
func (s *Supervisor) Waiting() map[string]audit.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	callers := map[string]audit.Caller{}
	for id, w := range s.waiting {
		callers[id] = w.caller
	}
	return callers
}

// enter makes the plan of a request and waits for its turn, which cancel ends. leave is to be
// called when all that the run held is released.
func (s *Supervisor) enter(ctx context.Context, id string, req *Request, telling *telling, cancel context.CancelCauseFunc) (p *plan, leave func(), err error) {
	if p, err = s.plan(req); err != nil {
		return nil, nil, err // at once, without a place in line
	}
	if err := errors.Join(s.rooms.Check(), s.roomInMemory()); err != nil {
		return nil, nil, err
	}
	waited := false
	leave, err = s.turns.Enter(ctx, req.Caller.UID, req.Access.Share, func(before int) {
		waited = true
		s.wait(id, waiting{req.Caller, cancel})
		telling.say(func() { telling.obs.Waits(id, before) })
	})
	s.waitNoMore(id)
	if full, ok := errors.AsType[*turns.FullError](err); ok {
		return nil, nil, &BusyError{Refusal{What: "too many runs: " + full.What, Fix: fmt.Sprintf("try again in about %s", full.Retry)}, full.Retry}
	}
	if errors.Is(err, errKilled) {
		return nil, nil, fmt.Errorf("ended before it was let in: %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	if waited {
		// What it was made of may have changed meanwhile.
		if p, err = s.plan(req); err == nil {
			err = s.rooms.Check()
		}
		if err != nil {
			leave()
			return nil, nil, err
		}
	}
	return p, leave, nil
}
