package supervisor

import "sync"

// A telling is what an observer is told of one run. The observer may never come back: then nothing
// of the run but this waits for it, neither its place among those that go on nor its end.
type telling struct {
	obs   Observer
	told  sync.WaitGroup
	first chan struct{} // closed when what was said so far is told; nil: nothing was
}

// say has f called when what was said before is told. It is for one goroutine.
func (t *telling) say(f func()) {
	before, done := t.first, make(chan struct{})
	t.first = done
	t.told.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	})
}

// follow passes a stream on, after what was said before. The streams of a run do not wait for each other.
func (t *telling) follow(c *capture, to func(p []byte) error) {
	before := t.first
	t.told.Go(func() {
		if before != nil {
			<-before
		}
		_ = c.copyHead(writerFunc(to))
	})
}

// wait returns when everything is told.
func (t *telling) wait() { t.told.Wait() }
