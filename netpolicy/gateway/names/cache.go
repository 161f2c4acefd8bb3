package names

import "time"

const (
	maxTTL         = time.Hour
	maxNegativeTTL = 5 * time.Minute
	// failureTTL keeps a failure (RFC 9520) for the second try that C libraries make at once:
	// the code hears of a dead resolver after one wait, not two.
	failureTTL = 2 * time.Second
)

// A cache keeps answers for as long as they hold. Its user locks.
type cache struct {
	limit   int
	now     func() time.Time
	entries map[key]entry
}

type entry struct {
	answer Answer
	err    error
	until  time.Time
}

// get is what is known of k, with what is left of its TTL, as a flight that has no done yet.
func (c *cache) get(k key) (f flight, ok bool) {
	e, ok := c.entries[k]
	if !ok {
		return f, false
	}
	left := e.until.Sub(c.now())
	if left <= 0 {
		delete(c.entries, k)
		return f, false
	}
	e.answer.TTL = left
	return flight{answer: e.answer, err: e.err}, true
}

func (c *cache) put(k key, a Answer, err error) {
	ttl := a.TTL
	if err != nil {
		ttl = failureTTL
	}
	if ttl <= 0 {
		return
	}
	if _, known := c.entries[k]; !known && len(c.entries) >= c.limit {
		c.evict()
	}
	c.entries[k] = entry{answer: a, err: err, until: c.now().Add(ttl)}
}

// evict makes room: of all that no longer holds, or else of the one that ends first.
func (c *cache) evict() {
	var first key
	var until time.Time
	now := c.now()
	for k, e := range c.entries {
		if !e.until.After(now) {
			delete(c.entries, k)
		} else if until.IsZero() || e.until.Before(until) {
			first, until = k, e.until
		}
	}
	if len(c.entries) >= c.limit {
		delete(c.entries, first)
	}
}
