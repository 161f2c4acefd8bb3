package supervisor

import (
	"context"
	"errors"
	"testing"
	"time"

	"proctor/supervisor/access"
	"proctor/supervisor/turns"
	"proctor/testenv"
)

// A silent observer comes back from nothing that it is told before it is let go.
type silent struct {
	deaf
	told chan string
	let  chan struct{}
}

func newSilent() *silent { return &silent{told: make(chan string, 10), let: make(chan struct{})} }

func (o *silent) Waits(string, int) { o.told <- "waits"; <-o.let }
func (o *silent) Admitted(string)   { o.told <- "admitted"; <-o.let }

func TestTellingIsInOrder(t *testing.T) {
	tell := &telling{}
	let, said := make(chan struct{}), make(chan string, 3)
	tell.say(func() { <-let; said <- "first" })
	tell.say(func() { said <- "second" })
	c := newCapture(100)
	c.add([]byte("third"))
	c.ended = true
	tell.follow(c, func(p []byte) error { said <- string(p); return nil })
	select {
	case what := <-said:
		t.Errorf("%s is told before the first", what)
	case <-time.After(20 * time.Millisecond):
	}
	close(let)
	tell.wait()
	for _, want := range []string{"first", "second", "third"} {
		if got := <-said; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

// A caller that takes nothing of what it is told keeps no place from others, and no supervisor
// from stopping.
func TestSilentObserversHoldNothing(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	s := newSupervisor(t, func(o *Options) { o.Sensor, o.Runs = sensor(t), turns.Options{AtOnce: 1, Queue: 10} })
	must(t, s.Start(t.Context()))
	request := func(uid uint32) *Request {
		q := &Request{Language: "sh", Name: "x", Code: []byte("echo"), Access: access.Access{Share: turns.Share{Queue: 10}}}
		q.Caller.UID = uid
		return q
	}
	admitted := newSilent()
	done := make(chan error, 2)
	go func() { _, err := s.Run(context.Background(), request(1), admitted); done <- err }()
	if what := <-admitted.told; what != "admitted" {
		t.Fatal(what)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	v, err := s.Run(ctx, request(2), deaf{})
	if err != nil || v == nil {
		t.Fatalf("another's run: %v", err)
	}

	// One that waits, and does not hear that either, leaves the line all the same.
	leave, err := s.turns.Enter(ctx, 3, turns.Share{Queue: 10}, func(int) {})
	must(t, err)
	waiting := newSilent()
	gone, cancelWaiting := context.WithCancel(t.Context())
	go func() { _, err := s.Run(gone, request(4), waiting); done <- err }()
	if what := <-waiting.told; what != "waits" {
		t.Fatal(what)
	}
	cancelWaiting()
	eventually(t, func() bool { _, n := s.turns.Count(); return n == 0 })
	leave()

	stopped := make(chan struct{})
	go func() { s.Stop(context.Background()); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Error("a silent observer keeps the supervisor from stopping")
	}
	close(admitted.let)
	close(waiting.let)
	for range 2 {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
