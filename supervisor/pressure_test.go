package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

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
