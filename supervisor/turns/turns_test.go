package turns

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func enter(t *testing.T, tn *Turns, who uint32, share Share) func() {
	t.Helper()
	leave, err := tn.Enter(t.Context(), who, share, func(int) { t.Errorf("%d waits", who) })
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

// TestTurns has one caller ask for many runs before another asks for one.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := New(Options{AtOnce: 2})
		share := Share{Queue: 100}
		first, second := enter(t, tn, 1, share), enter(t, tn, 1, share)
		var mu sync.Mutex
		var order []uint32
		var before []int
		var running sync.WaitGroup
		ask := func(who uint32) {
			running.Go(func() {
				leave, err := tn.Enter(t.Context(), who, share, func(n int) { mu.Lock(); before = append(before, n); mu.Unlock() })
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
				time.Sleep(time.Second)
				leave()
				leave() // does nothing
			})
			synctest.Wait()
		}
		for range 6 {
			ask(1)
		}
		ask(2)
		ask(3)
		ask(2)
		if running, waiting := tn.Count(); running != 2 || waiting != 9 {
			t.Errorf("%d running, %d waiting", running, waiting)
		}
		// No two end at one moment: whose goroutine goes on first would be anybody's guess.
		first()
		time.Sleep(time.Second / 2)
		second()
		running.Wait()
		if want := []uint32{1, 2, 3, 1, 2, 1, 1, 1, 1}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(before, want) {
			t.Errorf("told of %v, want %v", before, want)
		}
		if running, waiting := tn.Count(); running != 0 || waiting != 0 {
			t.Errorf("%d running, %d waiting at the end", running, waiting)
		}
	})
}

func TestOwnBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := New(Options{AtOnce: 10, Queue: 3})
		share := Share{AtOnce: 1, Queue: 2}
		leave := enter(t, tn, 1, share)
		var running sync.WaitGroup
		wait := func(who uint32, share Share) {
			running.Go(func() {
				leave, err := tn.Enter(t.Context(), who, share, func(int) {})
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				leave()
			})
			synctest.Wait()
		}
		wait(1, share)
		wait(1, share)
		var full *FullError
		if _, err := tn.Enter(t.Context(), 1, share, nil); !errors.As(err, &full) || full.What != "1 runs of the caller go on and 2 wait: at most that many" || full.Retry < 2*time.Second {
			t.Errorf("%+v", err)
		}
		// Others have their own.
		enter(t, tn, 2, share)()
		other := enter(t, tn, 3, share)
		wait(3, share)
		if _, err := tn.Enter(t.Context(), 3, share, nil); !errors.As(err, &full) || full.What != "2 runs go on and 3 wait: at most that many" {
			t.Errorf("%+v", err)
		}
		// Nobody waits who would not wait.
		enter(t, tn, 4, Share{})()
		leave()
		other()
		running.Wait()
		if len(tn.order) != 0 || tn.running != 0 || tn.waiting != 0 {
			t.Errorf("left: %+v", tn)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := New(Options{})
		share := Share{Rate: 6, Queue: 1}
		for range 6 {
			enter(t, tn, 1, share)()
		}
		began := time.Now()
		var running sync.WaitGroup
		running.Go(func() {
			leave, err := tn.Enter(t.Context(), 1, share, func(int) {})
			if err != nil {
				t.Error(err)
				return
			}
			leave()
		})
		synctest.Wait()
		var full *FullError
		if _, err := tn.Enter(t.Context(), 1, share, nil); !errors.As(err, &full) || full.Retry != 21*time.Second {
			t.Errorf("%+v", err)
		}
		running.Wait()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the seventh began after %s", took)
		}
		// The one that was turned away took nothing of what comes.
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("tired"))
		defer cancel()
		if _, err := tn.Enter(ctx, 1, share, func(int) {}); err == nil || err.Error() != "tired" {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		enter(t, tn, 1, share)()
		if running, waiting := tn.Count(); running != 0 || waiting != 0 {
			t.Errorf("%d running, %d waiting at the end", running, waiting)
		}
	})
}

func TestWhoGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := New(Options{AtOnce: 1})
		share := Share{Queue: 10}
		leave := enter(t, tn, 1, share)
		ctx, cancel := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		gone.Go(func() {
			if _, err := tn.Enter(ctx, 2, share, func(int) {}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		gone.Wait()
		leave()
		enter(t, tn, 3, share)()
		if len(tn.order) != 0 || tn.waiting != 0 {
			t.Errorf("left: %+v", tn)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := New(Options{AtOnce: 1})
		leave := enter(t, tn, 1, Share{Queue: 10, Rate: 2})
		enterAgain := func(who uint32, share Share) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := tn.Enter(t.Context(), who, share, func(int) {})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		inLine := enterAgain(2, Share{Queue: 10})
		_ = enterAgain(1, Share{Queue: 10, Rate: 2})
		late := enterAgain(1, Share{Queue: 10, Rate: 2})
		over := errors.New("over")
		closed := time.Now()
		tn.Close(over)
		if err := <-inLine; err != over {
			t.Error(err)
		}
		if err := <-late; err != over {
			t.Error(err)
		}
		// Nobody who is waited for waits for his minute to be over.
		if took := time.Since(closed); took > 0 {
			t.Errorf("whoever waited was told after %s", took)
		}
		tn.Close(errors.New("again"))
		if _, err := tn.Enter(t.Context(), 3, Share{}, nil); err != over {
			t.Error(err)
		}
		leave()
		if running, waiting := tn.Count(); running != 0 || waiting != 0 {
			t.Errorf("%d running, %d waiting at the end", running, waiting)
		}
	})
}
