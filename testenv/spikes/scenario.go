package spikes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"proctor/audit"
)

// A Scenario is some days' records, in order of time, and what an alarm should have said.
type Scenario struct {
	Name    string
	Events  []audit.Event
	Attacks []Attack
}

// An Attack is what somebody should be told of.
type Attack struct {
	Name  string
	From  time.Time
	Until time.Time // an alarm is of use until Grace after it

	Runs        map[string]bool
	Callers     map[uint32]bool
	Agents      map[string]bool
	Destination string // registrable domain, or network; empty: many
}

// Grace is how long after an attack's end an alarm may come.
const Grace = 5 * time.Minute

// Start is when every scenario begins: a Monday, at midnight.
var Start = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// world draws a scenario.
type world struct {
	rand *rand.Rand
	s    Scenario
	runs int
}

func newWorld(name string, seed uint64) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 20260105)), s: Scenario{Name: name}}
}

// done sorts what was drawn.
func (w *world) done() Scenario {
	slices.SortStableFunc(w.s.Events, func(a, b audit.Event) int { return a.Time.Compare(b.Time) })
	return w.s
}

// A run is one that is being drawn.
type run struct {
	w     *world
	id    string
	began time.Time
	last  time.Time
}

// who asks for a run.
type who struct {
	uid   uint32
	agent string
	image string
}

// people of an ordinary day: three services with an agent each, and some persons.
var people = []who{
	{1001, "analyst", "python-data"}, {1001, "analyst", "python-data"}, {1001, "analyst", "python-data"},
	{1002, "coder", "shell"}, {1002, "coder", "python-data"}, {1003, "reporter", "python-data"},
	{1010, "", "python-data"}, {1011, "", "shell"}, {1012, "", "python-data"},
}

// run draws the beginning of one.
func (w *world) run(at time.Time, by who) *run {
	w.runs++
	r := &run{w: w, id: fmt.Sprintf("%s-%06d", w.s.Name, w.runs), began: at, last: at}
	w.s.Events = append(w.s.Events, audit.Event{Run: r.id, Time: at, Kind: audit.KindStart, Start: &audit.Request{
		Run: r.id, Time: at, Caller: audit.Caller{UID: by.uid, GID: by.uid}, Agent: audit.Text(by.agent),
		Image: audit.ImageRef{Name: by.image}, Profile: "offline", Language: "python",
	}})
	return r
}

func (r *run) add(after time.Duration, e audit.Event) {
	e.Run, e.Time = r.id, r.began.Add(after)
	if e.Time.After(r.last) {
		r.last = e.Time
	}
	r.w.s.Events = append(r.w.s.Events, e)
}

// asks draws two questions for a name: for its addresses of both kinds.
func (r *run) asks(after time.Duration, name string) {
	for _, kind := range []string{"A", "AAAA"} {
		r.add(after, audit.Event{Kind: audit.KindQuery, Query: &audit.Query{
			Name: audit.Text(name), Type: kind, Protocol: "udp", Decision: audit.Blocked, Rule: "name not granted", Code: "NXDOMAIN",
		}})
	}
}

// connects draws an attempt at an address, or several that were folded into one.
func (r *run) connects(after time.Duration, to netip.Addr, port uint16, times uint64) {
	e := audit.Event{Kind: audit.KindConnect, Net: &audit.Network{
		Protocol: "tcp", Address: to, Port: port, Decision: audit.Blocked, Rule: "no network granted",
	}}
	if times > 1 {
		e.Repeat = &audit.Repeat{Of: 1, Count: times, First: r.began.Add(after)}
	}
	r.add(after, e)
}

// ends draws the end.
func (r *run) ends() {
	r.add(r.last.Sub(r.began)+time.Second, audit.Event{Kind: audit.KindEnd, End: &audit.End{Status: string(audit.StatusOK)}})
}

// attack begins one, whose runs are added by its method.
func (w *world) attack(name string, from, until time.Time, destination string) *Attack {
	w.s.Attacks = append(w.s.Attacks, Attack{
		Name: name, From: from, Until: until, Destination: destination,
		Runs: map[string]bool{}, Callers: map[uint32]bool{}, Agents: map[string]bool{},
	})
	return &w.s.Attacks[len(w.s.Attacks)-1]
}

func (a *Attack) by(r *run, who who) {
	a.Runs[r.id], a.Callers[who.uid] = true, true
	if who.agent != "" {
		a.Agents[who.agent] = true
	}
}

// upTo is a random time.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rand.Int64N(int64(d))) }

// minutes calls f for each run of a stretch of time with that many runs an hour, at random.
func (w *world) minutes(from, until time.Time, perHour func(time.Time) float64, f func(at time.Time, by who)) {
	for at := from; at.Before(until); at = at.Add(time.Minute) {
		for n := w.poisson(perHour(at) / 60); n > 0; n-- {
			f(at.Add(w.upTo(time.Minute)), people[w.rand.IntN(len(people))])
		}
	}
}

// poisson draws how many of something rare there are, by Knuth's method.
func (w *world) poisson(mean float64) (n int) {
	for left := w.rand.ExpFloat64(); left < mean; n++ {
		left += w.rand.ExpFloat64()
	}
	return n
}
