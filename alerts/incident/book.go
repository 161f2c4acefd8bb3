package incident

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"proctor/audit"
)

// A Store keeps incidents and silences across restarts. Its methods are called by one goroutine
// at a time.
type Store interface {
	// Load returns what was kept.
	Load() ([]*Incident, []*Silence, error)
	// Save keeps some; what it has of others stays.
	Save(incidents []*Incident, silences []*Silence) error
	// Forget removes some, by their ids.
	Forget(incidents, silences []string) error
}

// Options of New.
type Options struct {
	Store Store // nil: nothing is kept
	// Quiet is after how long without an attempt or alarm an incident is resolved; Reopen within
	// which time after that it opens again instead of another. Defaults 15 min and 24 h.
	Quiet, Reopen time.Duration
	// Keep is how long resolved ones are remembered. Default 30 days.
	Keep time.Duration
	// Code returns the first lines of a run's code, to be shown; nil: none.
	Code func(run string) audit.Text
	// HideCode keeps of command lines, which may hold code, the program's name alone.
	HideCode bool
	// Sinks are those that are to be told, so that an incident which is over before they can be is told all
	// the same.
	Sinks []string
	// Wants reports whether one of them is told of an incident, which it must not change or retain;
	// nil: of all.
	Wants func(sink string, i *Incident) bool
}

// A Book holds incidents. Its methods may be called by several goroutines.
type Book struct {
	o Options

	mu       sync.Mutex
	all      map[string]*Incident
	open     map[string]membership // by run
	by       map[string]*Incident  // by fingerprint, the newest
	runs     *simplelru.LRU[string, *memory]
	silences map[string]*Silence
	dirty    map[string]*Incident
	unsaved  map[string]*Silence
	gone     []string        // incidents to be forgotten by the store
	expired  []string        // silences likewise
	past     []past          // the oldest first
	codeless map[string]bool // incidents whose first run's code is not read yet
	raised   map[string]uint64
	changed  chan struct{}

	saving     sync.Mutex
	completing sync.Mutex
	completed  uint64
}

// NewBook returns a Book of what the store has.
func NewBook(o Options) (*Book, error) {
	o.Quiet, o.Reopen, o.Keep = cmp.Or(o.Quiet, 15*time.Minute), cmp.Or(o.Reopen, 24*time.Hour), cmp.Or(o.Keep, 30*24*time.Hour)
	b := &Book{
		o: o, all: map[string]*Incident{}, open: map[string]membership{}, by: map[string]*Incident{}, silences: map[string]*Silence{},
		dirty: map[string]*Incident{}, unsaved: map[string]*Silence{}, codeless: map[string]bool{}, raised: map[string]uint64{}, changed: make(chan struct{}),
	}
	b.runs, _ = simplelru.NewLRU[string, *memory](maxRemembered, nil) // it refuses sizes below 1 alone
	if o.Store == nil {
		return b, nil
	}
	incidents, silences, err := o.Store.Load()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(incidents, func(x, y *Incident) int { return x.Opened.Compare(y.Opened) })
	for _, i := range incidents {
		b.all[i.ID] = i
		b.restore(i)
		for _, a := range i.Alarms {
			b.by[a.fingerprint()] = i
		}
	}
	for _, s := range silences {
		b.silences[s.ID] = s
	}
	return b, nil
}

// Changed is closed at the next change that somebody may have to be told of.
func (b *Book) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *Book) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// touch notes a change at a time.
func (b *Book) touch(i *Incident, at time.Time, material bool) {
	// Counts alone make one revision between two times that somebody looks.
	if !i.counted || material {
		i.Revision++
		i.counted = true
	}
	b.dirty[i.ID] = i
	if material {
		i.Material, i.Changed = i.Revision, at
		b.wake()
	}
}

// Tick does what time brings: it resolves what has been quiet and forgets what is old.
func (b *Book) Tick(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, s := range b.silences {
		if now.After(s.End.Add(b.o.Keep)) {
			delete(b.silences, id)
			b.expired = append(b.expired, id)
		}
	}
	resolved := 0
	for id, i := range b.all {
		if i.State == Open && now.Sub(i.Last) >= b.o.Quiet {
			b.resolve(i, now)
		}
		if i.State == Resolved {
			resolved++
			if now.Sub(i.Resolved) > b.o.Keep {
				b.forget(id)
				continue
			}
		}
		// A silence that ended, or one that came.
		if i.State == Open {
			b.hush(i, now)
		}
	}
	if resolved > maxResolved {
		old := make([]*Incident, 0, resolved)
		for _, i := range b.all {
			if i.State == Resolved {
				old = append(old, i)
			}
		}
		// What nobody was told of yet is remembered longest.
		slices.SortFunc(old, func(x, y *Incident) int {
			return cmp.Or(cmp.Compare(y.told(), x.told()), x.Resolved.Compare(y.Resolved))
		})
		for _, i := range old[:len(old)-maxResolved] {
			b.forget(i.ID)
		}
	}
}

func (b *Book) resolve(i *Incident, now time.Time) {
	i.State, i.Resolved, i.Hushed = Resolved, now, i.Silence != ""
	// Who never was to be told need not be later, should he want to hear of more by then.
	maps.DeleteFunc(i.Deliveries, func(sink string, d *Delivery) bool {
		return d.State == "" && b.o.Wants != nil && !b.o.Wants(sink, i)
	})
	b.leave(i)
	b.touch(i, now, true)
}

// leave has its runs be no part of it any more.
func (b *Book) leave(i *Incident) {
	for run := range i.runs {
		if b.open[run].Incident == i {
			delete(b.open, run)
		}
	}
}

func (b *Book) forget(id string) {
	i := b.all[id]
	delete(b.all, id)
	delete(b.dirty, id)
	for _, a := range i.Alarms {
		if b.by[a.fingerprint()] == i {
			delete(b.by, a.fingerprint())
		}
	}
	b.gone = append(b.gone, id)
}

// List are copies of all incidents, the newest first.
func (b *Book) List() []*Incident { return b.Select(func(*Incident) bool { return true }) }

// Select are copies of those that keep returns true for, the newest first. It must not change or
// retain what it is shown, and not call the Book.
func (b *Book) Select(keep func(*Incident) bool) []*Incident {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []*Incident{}
	for _, i := range b.all {
		if keep(i) {
			list = append(list, i.clone())
		}
	}
	slices.SortFunc(list, func(x, y *Incident) int { return cmp.Or(y.Opened.Compare(x.Opened), strings.Compare(y.ID, x.ID)) })
	return list
}

// Get is a copy of one, nil if there is none of that id.
func (b *Book) Get(id string) *Incident {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.all[id]; i != nil {
		return i.clone()
	}
	return nil
}

// Raised counts alarms by rule, since the Book was made.
func (b *Book) Raised() map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := make(map[string]uint64, len(b.raised))
	for rule, n := range b.raised {
		counts[rule] = n
	}
	return counts
}

// Deliver has f change what a sink was told of an incident, and keeps that. It is no change that
// anybody is told of.
func (b *Book) Deliver(id, sink string, f func(*Delivery)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.all[id]
	if i == nil {
		return
	}
	d := i.Deliveries[sink]
	if d == nil {
		d = &Delivery{}
		i.Deliveries[sink] = d
	}
	f(d)
	b.dirty[id] = i
}

// Save has the store keep what changed.
func (b *Book) Save() error {
	b.saving.Lock()
	defer b.saving.Unlock()
	b.mu.Lock()
	var incidents []*Incident
	for id, i := range b.dirty {
		incidents = append(incidents, i.clone())
		delete(b.dirty, id)
	}
	var silences []*Silence
	for id, s := range b.unsaved {
		copied := *s
		silences = append(silences, &copied)
		delete(b.unsaved, id)
	}
	gone, expired := b.gone, b.expired
	b.gone, b.expired = nil, nil
	b.mu.Unlock()
	if b.o.Store == nil || len(incidents)+len(silences)+len(gone)+len(expired) == 0 {
		return nil
	}
	err := b.o.Store.Save(incidents, silences)
	if err == nil {
		err = b.o.Store.Forget(gone, expired)
	}
	if err != nil { // the next time
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, i := range incidents {
			if now := b.all[i.ID]; now != nil {
				b.dirty[i.ID] = now
			}
		}
		for _, s := range silences {
			if now := b.silences[s.ID]; now != nil {
				b.unsaved[s.ID] = now
			}
		}
		b.gone, b.expired = append(b.gone, gone...), append(b.expired, expired...)
	}
	return err
}
