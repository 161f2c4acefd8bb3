package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A Daemon is the containerd that a supervisor uses. Its methods may be called from
// several goroutines.
type Daemon struct {
	opts     Options
	address  string
	external bool

	locks    []*os.File
	stopping chan struct{} // closed by the first Stop
	hurry    chan struct{} // closed when a Stop runs out of time
	done     chan struct{} // closed when the watching goroutine has gone
	stopOnce sync.Once
	hurryOne sync.Once

	mu      sync.Mutex
	status  Status
	changed chan struct{} // closed, and replaced, when status changes
	stopErr error
}

// Status tells how a private containerd is doing.
type Status struct {
	PID      int       // of the running process, 0 while there is none
	Serving  bool      // it has answered since it was started
	Since    time.Time // when Serving last changed
	Restarts uint64    // starts after the first one
	LastExit string    // exit status of the last process that ended unasked
}

// Start starts a private containerd and returns when it answers. The context bounds
// the start only. See the package's documentation for the contract.
func Start(ctx context.Context, opts Options) (_ *Daemon, err error) {
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := opts.checkBinaries(); err != nil {
		return nil, err
	}
	if uid := os.Geteuid(); uid != 0 {
		return nil, fmt.Errorf("a private containerd needs root, this is uid %d: use sudo", uid)
	}
	d := newDaemon(opts, opts.socket())
	defer func() {
		if err != nil {
			d.unlock()
		}
	}()
	if err := d.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opts.StartTimeout,
		fmt.Errorf("no answer on %s within %s", d.address, opts.StartTimeout))
	defer cancel()
	started := make(chan error, 1)
	go d.watch(ctx, started)
	if err := <-started; err != nil {
		<-d.done
		return nil, err
	}
	return d, nil
}

func newDaemon(opts Options, address string) *Daemon {
	return &Daemon{
		opts:     opts,
		address:  address,
		stopping: make(chan struct{}),
		hurry:    make(chan struct{}),
		done:     make(chan struct{}),
		changed:  make(chan struct{}),
	}
}

// prepare makes and locks the directories and clears what an earlier containerd left.
func (d *Daemon) prepare() error {
	o := d.opts
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{
		{o.Root, 0o700}, {o.tempDir(), 0o700},
		{o.State, 0o711}, {o.shimSocketDir(), 0o700}, {o.RuncRoot(), 0o700}, {o.FIFODir(), 0o700},
	} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return fmt.Errorf("containerd's directories: %w", err)
		}
		if err := os.Chmod(dir.path, dir.mode); err != nil { // MkdirAll leaves it to the umask
			return fmt.Errorf("containerd's directories: %w", err)
		}
	}
	for _, dir := range []string{o.State, o.Root} {
		lock, err := lockDir(dir)
		if err != nil {
			return err
		}
		d.locks = append(d.locks, lock)
	}
	if err := o.endLeftover(); err != nil {
		return err
	}
	if o.EndTasks != "" {
		if err := o.endTasks(); err != nil {
			return err
		}
	}
	d.removeSockets()
	if err := o.writeConfig(); err != nil {
		return fmt.Errorf("write containerd's configuration: %w", err)
	}
	return nil
}

// Status tells how containerd is doing at this moment.
func (d *Daemon) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// WaitServing returns when containerd serves: at once, or after the restart that is
// under way.
func (d *Daemon) WaitServing(ctx context.Context) error {
	for {
		d.mu.Lock()
		serving, changed := d.status.Serving, d.changed
		d.mu.Unlock()
		if serving {
			return nil
		}
		select {
		case <-changed:
		case <-d.done:
			return errors.New("containerd was stopped")
		case <-ctx.Done():
			return fmt.Errorf("wait for containerd: %w", context.Cause(ctx))
		}
	}
}

func (d *Daemon) update(f func(*Status)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.status.Serving
	f(&d.status)
	if d.status.Serving != was {
		d.status.Since = time.Now()
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// Done is closed when Stop has done its work. A crash doesn't close it: see Status.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// Stop ends a private containerd: SIGTERM, and SIGKILL at StopTimeout or when the
// context ends. It returns when the process is gone, every goroutine has ended and
// the directories are unlocked. Shims with running tasks stay. An external containerd
// is left alone. Stop may be called more than once.
func (d *Daemon) Stop(ctx context.Context) error {
	d.stopOnce.Do(func() {
		close(d.stopping)
		if d.external {
			close(d.done)
		}
	})
	select {
	case <-d.done:
	case <-ctx.Done():
		d.hurryOne.Do(func() { close(d.hurry) })
		<-d.done
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopErr
}

func (d *Daemon) removeSockets() {
	for _, path := range []string{d.opts.socket(), d.opts.ttrpcSocket()} {
		_ = os.Remove(path) // missing is as good
	}
}

func (d *Daemon) unlock() {
	for _, f := range d.locks {
		f.Close()
	}
	d.locks = nil
}
