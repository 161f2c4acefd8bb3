// Package turns lets runs in: so many at a time, and where there are more, callers by turns, so
// that one who asks for a thousand keeps nobody else waiting for more than his turn.
package turns

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Options of New. Zero is no bound.
type Options struct {
	AtOnce int // runs of all callers
	Queue  int // runs that wait, of all callers
}

// A Share is what one caller may have. Zero is no bound of its own, but for Queue.
type Share struct {
	AtOnce int
	Queue  int     // runs that wait; 0: none waits
	Rate   float64 // runs a minute; as many may begin at once after a minute without any
}

// A FullError is a run that may not even wait.
type FullError struct {
	What  string        // the limit, and how much there is of it
	Retry time.Duration // when it may be worth another try; whole seconds
}

func (e *FullError) Error() string { return e.What }

// Turns has everybody's place. It is safe for use by many goroutines.
type Turns struct {
	options Options

	mu      sync.Mutex
	closed  error
	closing chan struct{} // closed with closed set
	running int
	waiting int
	callers map[uint32]*caller
	order   []*caller     // those with somebody in line, the next one first
	took    time.Duration // by a run, about
}

type caller struct {
	share   Share
	rate    *rate.Limiter // nil: no bound
	running int
	waiting int // in line, and those that are not yet because of the rate
	line    []*place
}

// A place is one in line.
type place struct {
	ready chan struct{} // closed with the run's beginning, or with err
	err   error
}

// New has nobody in it.
func New(o Options) *Turns {
	return &Turns{options: o, closing: make(chan struct{}), callers: map[uint32]*caller{}, took: time.Second}
}

// Enter waits until a run of this caller may begin. leave is to be called when it has ended.
// waits is called once if the run has to wait, with how many are before it at the most.
//
// The error is a [FullError], or that of ctx or [Turns.Close].
func (t *Turns) Enter(ctx context.Context, who uint32, share Share, waits func(before int)) (leave func(), err error) {
	t.mu.Lock()
	if t.closed != nil {
		t.mu.Unlock()
		return nil, t.closed
	}
	c := t.caller(who, share)
	delay, giveBack := c.reserve()
	if delay > 0 || !t.room(c) || len(c.line) > 0 {
		if full := t.full(c, delay); full != nil {
			giveBack()
			t.mu.Unlock()
			return nil, full
		}
	}
	before := t.waiting
	t.waiting++
	c.waiting++
	p := &place{ready: make(chan struct{})}
	if delay > 0 {
		t.mu.Unlock()
		waits(before)
		waits = func(int) {}
		if err := t.sleep(ctx, delay); err != nil {
			giveBack()
			t.mu.Lock()
			t.gone(c)
			t.mu.Unlock()
			return nil, err
		}
		t.mu.Lock()
		if t.closed != nil {
			t.gone(c)
			t.mu.Unlock()
			return nil, t.closed
		}
	}
	if c.line = append(c.line, p); len(c.line) == 1 {
		t.order = append(t.order, c)
	}
	t.begin()
	t.mu.Unlock()

	select {
	case <-p.ready:
	default:
		waits(before)
		select {
		case <-p.ready:
		case <-ctx.Done():
			t.mu.Lock()
			defer t.mu.Unlock()
			if i := slices.Index(c.line, p); i >= 0 {
				c.line = slices.Delete(c.line, i, i+1)
				t.gone(c)
				if len(c.line) == 0 {
					t.order = slices.DeleteFunc(t.order, func(o *caller) bool { return o == c })
				}
				return nil, context.Cause(ctx)
			}
			// Its turn came at the same moment.
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	began := time.Now()
	return sync.OnceFunc(func() { t.leave(c, time.Since(began)) }), nil
}

// sleep waits, until there is nothing to wait for any more.
func (t *Turns) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.closing:
		return t.closed // not written again
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// caller is who asks, with the share that holds now.
func (t *Turns) caller(who uint32, share Share) *caller {
	c := t.callers[who]
	if c == nil {
		c = &caller{}
		t.callers[who] = c
	}
	if c.share.Rate != share.Rate || c.rate == nil {
		c.rate = nil
		if share.Rate > 0 {
			c.rate = rate.NewLimiter(rate.Limit(share.Rate/60), max(1, int(share.Rate)))
		}
	}
	c.share = share
	return c
}

// reserve takes one of what the rate allows, which may be one that comes later.
func (c *caller) reserve() (delay time.Duration, giveBack func()) {
	if c.rate == nil {
		return 0, func() {}
	}
	r := c.rate.Reserve()
	return r.Delay(), r.Cancel
}

// room reports whether one more of a caller's may begin now.
func (t *Turns) room(c *caller) bool {
	return (t.options.AtOnce == 0 || t.running < t.options.AtOnce) && (c.share.AtOnce == 0 || c.running < c.share.AtOnce)
}

// full says why one that would have to wait may not, or nil.
func (t *Turns) full(c *caller, delay time.Duration) error {
	about := func(waiting, atOnce int) time.Duration {
		return max(delay, t.took*time.Duration(waiting+1)/time.Duration(max(atOnce, 1))).Truncate(time.Second) + time.Second
	}
	switch {
	case c.waiting >= c.share.Queue && delay > 0:
		return &FullError{fmt.Sprintf("the caller began %g runs in a minute, and %d wait: at most that many", c.share.Rate, c.waiting), about(0, 1)}
	case c.waiting >= c.share.Queue:
		n := c.share.AtOnce
		if n == 0 {
			n = t.options.AtOnce
		}
		return &FullError{fmt.Sprintf("%d runs of the caller go on and %d wait: at most that many", c.running, c.waiting), about(c.waiting, n)}
	case t.options.Queue > 0 && t.waiting >= t.options.Queue:
		return &FullError{fmt.Sprintf("%d runs go on and %d wait: at most that many", t.running, t.waiting), about(t.waiting, t.options.AtOnce)}
	}
	return nil
}

// begin lets in whose turn it is, while there is room.
func (t *Turns) begin() {
	for {
		i := slices.IndexFunc(t.order, t.room)
		if i < 0 {
			return
		}
		c := t.order[i]
		p := c.line[0]
		c.line = slices.Delete(c.line, 0, 1)
		t.order = slices.Delete(t.order, i, i+1)
		if len(c.line) > 0 {
			t.order = append(t.order, c)
		}
		t.gone(c)
		t.running++
		c.running++
		close(p.ready)
	}
}

func (t *Turns) gone(c *caller) {
	t.waiting--
	c.waiting--
}

func (t *Turns) leave(c *caller, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	c.running--
	t.took += (took - t.took) / 8
	t.begin()
}

// Count is how many runs go on and how many wait.
func (t *Turns) Count() (running, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running, t.waiting
}

// Close lets nobody in any more: who waits gets err, as does who comes.
func (t *Turns) Close(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = err
		close(t.closing)
	}
	for _, c := range t.order {
		for _, p := range c.line {
			p.err = err
			close(p.ready)
			t.gone(c)
		}
		c.line = nil
	}
	t.order = nil
}
