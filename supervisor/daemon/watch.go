package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

const (
	pollEvery    = 5 * time.Millisecond // containerd boots in some 20 ms
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	// Having served this long, a containerd that dies is restarted as at first.
	steadyAfter = 30 * time.Second
	maxMisses   = 3 // health checks in a row
)

// watch keeps one containerd running until Stop. It sends the outcome of the first
// start to started and, if that fails, ends.
func (d *Daemon) watch(ctx context.Context, started chan<- error) {
	defer close(d.done)
	defer d.unlock()
	// Never unlocked: see spawn. The thread ends with the goroutine, after the child.
	runtime.LockOSThread()

	log := d.opts.Logger
	backoff := firstBackoff
	for first := true; ; first = false {
		c, err := d.startOne(ctx, first)
		if first {
			ctx = context.Background()
			started <- err
			if err != nil {
				return
			}
		}
		var served time.Duration
		switch {
		case errors.Is(err, errStopping):
			return
		case err != nil:
			log.Error("containerd does not start", "error", err)
		default:
			begin := time.Now()
			if d.probe(c) {
				d.stopOne(c)
				return
			}
			served = time.Since(begin)
			d.update(func(s *Status) { s.PID, s.Serving, s.LastExit = 0, false, c.exit() })
		}
		if served >= steadyAfter {
			backoff = firstBackoff
		}
		// Half of it at random, so that many supervisors on one sick host don't all
		// start at the same moment.
		wait := backoff/2 + rand.N(backoff/2)
		backoff = min(2*backoff, maxBackoff)
		d.update(func(s *Status) { s.Restarts++ })
		status := d.Status()
		log.Error("containerd ended; restarting it", "exit", status.LastExit, "served", served, "wait", wait, "restarts", status.Restarts)
		select {
		case <-time.After(wait):
		case <-d.stopping:
			d.cleanUp()
			return
		}
	}
}

var errStopping = errors.New("stopped while starting")

// startOne starts a containerd and returns it when it serves.
func (d *Daemon) startOne(ctx context.Context, first bool) (*child, error) {
	if !first {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.opts.StartTimeout,
			fmt.Errorf("no answer on %s within %s", d.address, d.opts.StartTimeout))
		defer cancel()
	}
	d.removeSockets()
	c, err := d.opts.spawn()
	if err != nil {
		return nil, err
	}
	d.update(func(s *Status) { s.PID, s.Serving = c.pid(), false })
	if err := d.awaitServing(ctx, c); err != nil {
		select {
		case <-c.exited:
			err = fmt.Errorf("containerd ended at its start: %w", c.startError())
			d.update(func(s *Status) { s.PID, s.LastExit = 0, c.exit() })
			d.cleanUp()
		default:
			d.stopOne(c)
			err = fmt.Errorf("containerd: %w", err)
		}
		return nil, err
	}
	d.update(func(s *Status) { s.Serving = true })
	d.opts.Logger.Info("containerd serves", "pid", c.pid(), "socket", d.address)
	return c, nil
}

// probe watches a serving containerd. It returns true when Stop is called and false
// when containerd has ended, by itself or because it answered no more.
func (d *Daemon) probe(c *child) (stop bool) {
	ticker := time.NewTicker(d.opts.ProbeInterval)
	defer ticker.Stop()
	for misses := 0; misses < maxMisses; {
		select {
		case <-d.stopping:
			return true
		case <-c.exited:
			return false
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), d.opts.ProbeInterval,
			fmt.Errorf("no answer within %s", d.opts.ProbeInterval))
		err := d.checkHealth(ctx, c)
		cancel()
		switch {
		case err == nil:
			misses = 0
		case !errors.Is(err, errStopping):
			misses++
			d.opts.Logger.Warn("containerd does not answer", "pid", c.pid(), "error", err, "misses", misses)
		}
	}
	// One that is stuck in the kernel keeps its database locked, and can only be waited for.
	for !c.end(0, nil) {
		d.opts.Logger.Error("containerd does not end even by SIGKILL", "pid", c.pid())
		select {
		case <-d.stopping:
			return true
		default:
		}
	}
	return false
}

func (d *Daemon) awaitServing(ctx context.Context, c *child) error {
	for {
		if conn, err := net.Dial("unix", d.address); err == nil {
			conn.Close()
			break
		}
		select {
		case <-time.After(pollEvery):
		case <-c.exited:
			return errors.New("ended")
		case <-d.stopping:
			return errStopping
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// containerd makes it 0660; the group is root's, but nobody needs it.
	if err := os.Chmod(d.address, 0o600); err != nil {
		return err
	}
	return d.checkHealth(ctx, c)
}

func (d *Daemon) checkHealth(ctx context.Context, c *child) error {
	client, err := containerd.New(d.address)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	checked := make(chan struct{})
	defer func() { cancel(nil); <-checked }()
	go func() { // ends the call below early
		defer close(checked)
		select {
		case <-c.exited:
			cancel(errors.New("ended"))
		case <-d.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	for {
		ok, err := client.IsServing(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && ok:
			return nil
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
		}
	}
}

// stopOne ends a running containerd and what it leaves in State.
func (d *Daemon) stopOne(c *child) {
	gone := c.end(d.opts.StopTimeout, d.hurry)
	d.update(func(s *Status) { s.PID, s.Serving = 0, false })
	if !gone {
		d.mu.Lock()
		d.stopErr = fmt.Errorf("containerd, pid %d, does not end even by SIGKILL: it is stuck in the kernel", c.pid())
		d.mu.Unlock()
		return // the pid file stays for the next start
	}
	d.cleanUp()
}

func (d *Daemon) cleanUp() {
	d.removeSockets()
	_ = os.Remove(d.opts.pidFile())
}
