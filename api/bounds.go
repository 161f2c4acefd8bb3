package api

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What one caller may have of the server at a time. Every run that goes on or waits has a
// connection, and its code in memory.
const (
	maxConnections = 1024
	maxBodies      = 256 << 20 // bytes of requests that are not answered to their end
	maxAsking      = 16        // answers that are made in memory, whole: a verdict has what the program wrote
)

// What all callers may have together, that each can be taken by only a few users: every connection
// may hold two threads up, in files of the caller's that take for ever to close.
const maxAllConnections = 8 * maxConnections

// answerTimeout is how long a caller may take to read an answer that is made in memory.
const answerTimeout = 30 * time.Second

// maxOpenInputs is how many of the process's descriptors one caller's inputs may take: a quarter.
func maxOpenInputs() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return maxDescriptors
	}
	return int64(min(l.Cur/4, 1<<20))
}

// A budget is something that callers have parts of, each up to a bound, and all up to another.
type budget struct {
	most, all int64

	mu   sync.Mutex
	used map[uint32]int64 // by user; none is 0
	sum  int64
}

func newBudget(most, all int64) *budget {
	return &budget{most: most, all: all, used: map[uint32]int64{}}
}

// take takes n, or reports that there is no room for it. give is to be called once.
func (b *budget) take(uid uint32, n int64) (give func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used[uid]+n > b.most || b.sum+n > b.all {
		return nil, false
	}
	b.used[uid] += n
	b.sum += n
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sum -= n
		if b.used[uid] -= n; b.used[uid] == 0 {
			delete(b.used, uid)
		}
	}, true
}

// few has a caller wait while it has as many answers as it may, and not read its own for ever.
func (s *Server) few(f handler) handler {
	return func(w http.ResponseWriter, r *http.Request, p *peer) error {
		give, ok := s.asking.take(p.UID, 1)
		for !ok {
			select {
			case <-r.Context().Done():
				return r.Context().Err()
			case <-time.After(10 * time.Millisecond):
			}
			give, ok = s.asking.take(p.UID, 1)
		}
		defer give()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		return f(w, r, p)
	}
}

// room takes what a request's body needs, which is not read yet.
func (s *Server) room(r *http.Request, p *peer) (give func(), err error) {
	n := r.ContentLength
	if n < 0 || n > maxBody {
		n = maxBody
	}
	give, ok := s.bodies.take(p.UID, n)
	if !ok {
		return nil, &Error{
			Code: http.StatusTooManyRequests, Refused: true, RetryAfter: 5,
			Message: fmt.Sprintf("a request of %d bytes: all of the caller's that are not answered may have %d together", n, s.bodies.most), Fix: "try again when some have ended",
		}
	}
	return give, nil
}
