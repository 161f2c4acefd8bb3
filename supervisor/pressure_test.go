package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
)

// A busy box has had so much processor time at each look.
type busy struct {
	box.Box
	each time.Duration
	used atomic.Int64
}

func (b *busy) Usage() (box.Usage, error) {
	return box.Usage{CPU: time.Duration(b.used.Add(int64(b.each)))}, nil
}

// A box that cannot be looked at.
type unseen struct {
	box.Box
	err error
}

func (b *unseen) Uncharged(int64) (int64, error) { return 0, b.err }
func (b *unseen) Usage() (box.Usage, error)      { return box.Usage{}, b.err }

// While somebody has taken all descriptors, runs go on, for some time.
func TestNobodyCanLook(t *testing.T) {
	b := &unseen{err: fmt.Errorf("open /proc/1/net/netlink: %w", unix.EMFILE)}
	r := &run{box: b}
	looks := 0
	for ; looks < 1000; looks++ {
		if _, err := r.uncharged(); err != nil {
			break
		}
	}
	if took := time.Duration(looks) * unchargedEvery; took < 5*time.Second || took > 15*time.Second {
		t.Errorf("it is ended after %s", took)
	}
	b.err = nil
	if _, err := r.uncharged(); err != nil || r.unlooked != 0 {
		t.Errorf("%v, %d", err, r.unlooked)
	}
	b.err = unix.EMFILE
	timer := time.NewTimer(time.Hour)
	if left, err := r.cpuLeft(timer); !left || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	select {
	case <-timer.C:
	case <-time.After(10 * time.Second):
		t.Error("it is not looked again")
	}
	b.err = unix.EIO
	if _, err := r.uncharged(); err == nil {
		t.Error("an error that stays is none")
	}
}

// When the host is short of memory, the busiest run is ended, with why; and nobody else.
func TestRelieve(t *testing.T) {
	n, err := available()
	if err != nil || n < 1<<20 {
		t.Fatal(n, err)
	}
	s := &Supervisor{log: slog.New(slog.DiscardHandler), memoryReserve: 4 * n, boxes: map[string]box.Box{}, active: map[string]context.CancelCauseFunc{}}
	ended := map[string]context.Context{}
	for id, each := range map[string]time.Duration{"idle": 0, "busy": time.Second, "some": time.Millisecond} {
		defer s.keepBox(id, &busy{each: each})()
		ctx, cancel := context.WithCancelCause(t.Context())
		ended[id], s.active[id] = ctx, cancel
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.relieve(ctx) }()
	select {
	case <-ended["busy"].Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the busiest goes on")
	}
	stop()
	<-done
	if !errors.Is(context.Cause(ended["busy"]), errPressure) || ended["idle"].Err() != nil || ended["some"].Err() != nil {
		t.Errorf("busy %v, idle %v, some %v", context.Cause(ended["busy"]), ended["idle"].Err(), ended["some"].Err())
	}
	if err := s.roomInMemory(); err == nil {
		t.Error("a new run is taken")
	}
	s.memoryReserve = 1
	if err := s.roomInMemory(); err != nil {
		t.Error(err)
	}
}
