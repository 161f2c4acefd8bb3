package names

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Family is one of the two kinds of address.
type Family uint8

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Status is what the host's resolvers know of a name.
type Status uint8

const (
	Found     Status = iota + 1 // it has an address
	NoAddress                   // it has none of this family
	NoName                      // there is no such name
)

// An Answer is what a lookup found out.
type Answer struct {
	Status    Status
	Addresses []netip.Addr  // of a name that was found; shared: not to be changed
	TTL       time.Duration // how much longer it holds
}

// Errors of a lookup that found out nothing.
var (
	// ErrNoResolver says that no resolver of the host could be reached, or that none answered.
	ErrNoResolver = errors.New("no resolver of the host answers")
	// ErrResolver says that the host's resolvers answered that they can't tell.
	ErrResolver = errors.New("the host's resolvers failed")
)

// UpstreamOptions are those of [NewUpstream].
type UpstreamOptions struct {
	Servers []netip.AddrPort // the host's resolvers, asked in this order; with none, every lookup fails
	Try     time.Duration    // that one server has to answer; default 2 s
	Total   time.Duration    // that a lookup may take; default 5 s
	Entries int              // of the cache; default 1024
	Flights int              // lookups under way at a time, of different names; default 128
}

// Upstream asks the host's resolvers and remembers what they say.
type Upstream struct {
	opts   UpstreamOptions
	ctx    context.Context // of what is under way
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	cache   cache
	flights map[key]*flight
}

type key struct {
	name   string
	family Family
}

// A flight is one lookup, which any number of callers wait for.
type flight struct {
	done   chan struct{} // closed once the rest is set
	answer Answer
	err    error
}

// landed is the done of what needs no wait.
var landed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// NewUpstream makes a client. The caller closes it.
func NewUpstream(o UpstreamOptions) (*Upstream, error) {
	for _, s := range o.Servers {
		if !s.IsValid() || s.Port() == 0 {
			return nil, fmt.Errorf("resolver %s of the host: need an address and a port", s)
		}
	}
	o.Try = orDefault(o.Try, 2*time.Second)
	o.Total = orDefault(o.Total, 5*time.Second)
	o.Entries = orDefault(o.Entries, 1024)
	o.Flights = orDefault(o.Flights, 128)
	u := &Upstream{opts: o, flights: map[key]*flight{}}
	u.cache = cache{limit: o.Entries, now: time.Now, entries: map[key]entry{}}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Close ends what is under way and waits for it. Lookups afterwards fail.
func (u *Upstream) Close() {
	u.mu.Lock() // so that no flight starts once the wait has begun
	u.cancel()
	u.mu.Unlock()
	u.wg.Wait()
}

// Lookup finds out what addresses of a family name has. The error is of [ErrNoResolver],
// [ErrResolver] or the context's; that there is no name or address is no error.
//
// The lookup goes on without a caller whose context ends, for others that ask the same.
func (u *Upstream) Lookup(ctx context.Context, name string, family Family) (Answer, error) {
	f := u.begin(key{name, family})
	select {
	case <-f.done:
		return f.answer, f.err
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("look up %q: %w", name, ctx.Err())
	}
}

// either looks up both families at once. When one is found it waits at most grace for the
// other. The addresses that are there are IPv4 first.
func (u *Upstream) either(ctx context.Context, name string, grace time.Duration) (Answer, error) {
	four, six := u.begin(key{name, IPv4}), u.begin(key{name, IPv6})
	done4, done6 := four.done, six.done
	var late <-chan time.Time
	for done4 != nil || done6 != nil {
		var f *flight
		select {
		case <-done4:
			done4, f = nil, four
		case <-done6:
			done6, f = nil, six
		case <-late:
			return merge(four, six)
		case <-ctx.Done():
			if late == nil {
				return Answer{}, fmt.Errorf("look up %q: %w", name, ctx.Err())
			}
			return merge(four, six)
		}
		if f.err == nil && f.answer.Status == Found {
			if grace <= 0 {
				break
			}
			timer := time.NewTimer(grace)
			defer timer.Stop()
			late = timer.C
		}
	}
	return merge(four, six)
}

// known is what either would say without asking anybody.
func (u *Upstream) known(name string) (a Answer, ok bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	four, ok4 := u.cache.get(key{name, IPv4})
	six, ok6 := u.cache.get(key{name, IPv6})
	switch {
	case ok4 && ok6:
	case ok4 && four.err == nil && four.answer.Status == Found:
		return four.answer, true, nil
	case ok6 && six.err == nil && six.answer.Status == Found:
		return six.answer, true, nil
	default:
		return Answer{}, false, nil
	}
	four.done, six.done = landed, landed
	a, err = merge(&four, &six)
	return a, true, err
}

// merge makes one of two flights, of which those that have not landed do not count.
func merge(flights ...*flight) (Answer, error) {
	var found, missing Answer
	var failed error
	for _, f := range flights {
		select {
		case <-f.done:
		default:
			continue
		}
		switch {
		case f.err != nil:
			failed = f.err
		case f.answer.Status == Found && found.Status == 0:
			found = f.answer
		case f.answer.Status == Found:
			found.Addresses = append(found.Addresses[:len(found.Addresses):len(found.Addresses)], f.answer.Addresses...)
			found.TTL = min(found.TTL, f.answer.TTL)
		case missing.Status == 0:
			missing = f.answer
		default:
			missing.Status = max(missing.Status, f.answer.Status)
			missing.TTL = min(missing.TTL, f.answer.TTL)
		}
	}
	switch {
	case found.Status != 0:
		return found, nil
	case missing.Status == NoName:
		return missing, nil
	case failed != nil:
		return Answer{}, failed // half of the truth is not that there is no address
	}
	return missing, nil
}

// begin is the flight of k: the one that is under way, or a new one, or what the cache has.
func (u *Upstream) begin(k key) *flight {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f, ok := u.cache.get(k); ok {
		f.done = landed
		return &f
	}
	if f, ok := u.flights[k]; ok {
		return f
	}
	fail := func(err error) *flight {
		return &flight{done: landed, err: fmt.Errorf("look up %q: %w", k.name, err)}
	}
	switch {
	case !hostName(k.name):
		return fail(fmt.Errorf("%w: it is no host name in lower case without the last dot", ErrResolver))
	case len(u.opts.Servers) == 0:
		return fail(fmt.Errorf("%w: it has none", ErrNoResolver))
	case u.ctx.Err() != nil:
		return fail(fmt.Errorf("%w: the gateway is closing", ErrNoResolver))
	case len(u.flights) >= u.opts.Flights:
		return fail(fmt.Errorf("%w: %d lookups are under way, which is the most", ErrResolver, len(u.flights)))
	}
	f := &flight{done: make(chan struct{})}
	u.flights[k] = f
	u.wg.Go(func() { u.fly(k, f) })
	return f
}

func (u *Upstream) fly(k key, f *flight) {
	ctx, cancel := context.WithTimeout(u.ctx, u.opts.Total)
	defer cancel()
	f.answer, f.err = u.ask(ctx, k)
	if f.err != nil {
		f.err = fmt.Errorf("look up %q: %w", k.name, f.err)
	}
	u.mu.Lock()
	delete(u.flights, k)
	if u.ctx.Err() == nil {
		u.cache.put(k, f.answer, f.err)
	}
	u.mu.Unlock()
	close(f.done)
}
