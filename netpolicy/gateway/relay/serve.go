package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

// Serve relays the connections that l accepts, each to its own local address, until ctx ends,
// and then returns nil. It closes l, and all connections before it returns. Its error is the
// listener's. A listener can give a connection another local address than its socket's by a
// type that has the method NetConn.
func (r *Relay) Serve(ctx context.Context, l net.Listener) error {
	return r.serve(ctx, l, (*session).transparent)
}

// ServeProxy is the explicit proxy, at l. In all else it is as [Relay.Serve].
func (r *Relay) ServeProxy(ctx context.Context, l net.Listener) error {
	return r.serve(ctx, l, (*session).proxy)
}

func (r *Relay) serve(ctx context.Context, l net.Listener, handle func(*session)) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	served, cancel := context.WithCancel(ctx) // ends with the listener, too
	defer cancel()
	turned := &turnedAway{r: r}
	defer turned.flush()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				abort(socket(c))
			}
			return nil
		case err != nil && passing(err):
			// The listener is well. The run's own connections may have used up what is
			// missing: they will give it back.
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		case err != nil:
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		if limit := r.admit(); limit != nil {
			s := newSession(served, r, c)
			abort(s.client)
			if name, ok := r.Names.Name(s.dest.Addr()); ok {
				s.flow.Name = audit.Text(name)
			}
			s.block(limit.Rule)
			turned.add(s.flow)
			continue
		}
		wg.Go(func() {
			defer r.release()
			r.run(served, c, handle)
		})
	}
}

// passing says whether an error of Accept says nothing about the listener.
func passing(err error) bool {
	for _, e := range []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EINTR, unix.EPERM, unix.EPROTO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// A flood of connections costs the run nothing, and must not fill its record.
const (
	turnedSingly = 100              // have a record of their own
	turnedEvery  = 10 * time.Second // is how often the others are told of
)

// turnedAway records what a limit turned away. It belongs to one goroutine.
type turnedAway struct {
	r     *Relay
	seen  int
	more  int        // not yet told of
	last  audit.Flow // of these
	since time.Time  // the first of these
}

func (t *turnedAway) add(f audit.Flow) {
	if t.seen++; t.seen <= turnedSingly {
		t.r.Recorder.Flow(f)
		return
	}
	if t.more == 0 {
		t.since = time.Now()
	}
	t.more++
	t.last = f
	if time.Since(t.since) >= turnedEvery {
		t.flush()
	}
}

func (t *turnedAway) flush() {
	if t.more == 0 {
		return
	}
	f := t.last
	f.Error = fmt.Sprintf("the last of %d that were turned away and have no record of their own", t.more)
	f.Count = int64(t.more)
	f.DurationMS = milliseconds(time.Since(t.since))
	t.more = 0
	t.r.Recorder.Flow(f)
}
