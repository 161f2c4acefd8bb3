package credential

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// maxBeginnings is how many answers of a run may have had a beginning of one credential's secret
// before nothing more is asked with it. That a beginning is held back can be seen by the code,
// which so learns that what it had a server echo is one.
const maxBeginnings = 3

// beginnings counts the beginnings of secrets that were held back in a run, and are longer than
// maxReleased. One counts from when it is held, as it shows then, and no more if it turns out to be
// a whole secret.
type beginnings struct {
	any atomic.Bool

	mu   sync.Mutex
	seen map[beginningOf]int
}

// A beginningOf is whose secret begins, and with whose host's answer it came.
type beginningOf struct{ credential, by string }

func (b *beginnings) add(of beginningOf, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[of] += n
	b.any.Store(true)
}

// refuses returns why nothing is asked with a credential any more, or nil: there were too many
// beginnings of its secret, or some of another's that has too many came by its host.
func (b *beginnings) refuses(credential string) error {
	if !b.any.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]int{}
	for of, n := range b.seen {
		all[of.credential] += n
	}
	for of, n := range b.seen {
		if n > 0 && all[of.credential] >= maxBeginnings && (of.credential == credential || of.by == credential) {
			return &guessed{fmt.Sprintf("credential %s is not used any more in this run: %d answers had a beginning of the secret of %s, by which it can be guessed", credential, maxBeginnings, of.credential)}
		}
	}
	return nil
}

// A guessed is why an answer is ended that has a secret's beginning, or a request not sent.
type guessed struct{ why string }

func (e *guessed) Error() string { return e.why }
