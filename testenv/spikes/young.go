package spikes

import (
	"fmt"
	"net/netip"
	"time"
)

// staff are callers, each with an agent of its own.
func staff(n int) (all []who) {
	for i := range n {
		all = append(all, who{uint32(2001 + i), fmt.Sprintf("agent-%d", i+1), "python-data"})
	}
	return all
}

// fresh: a host whose very first runs are an attack, of one question in each of a hundred runs that
// three callers ask for.
func fresh() Scenario {
	w := newWorld("fresh", 11)
	until := Start.Add(1000 * time.Second)
	a := w.attack("one question a run, from the first run on", Start, until, "first.example")
	callers := staff(3)
	for i := range 100 {
		by := callers[i%len(callers)]
		r := w.run(Start.Add(time.Duration(i)*10*time.Second), by)
		r.asksOnce(time.Second, "first.example")
		a.by(r, by)
		r.ends()
	}
	w.minutes(until, Start.Add(day), always(20), func(at time.Time, by who) { w.run(at, by).ends() })
	return w.done()
}

// hurried: a host's first day, in which its callers' runs are made to look at one network an
// hour after it began, and at one domain in the evening; both slowly, in runs of all callers.
func hurried() Scenario {
	w := newWorld("hurried", 12)
	morning, evening := Start.Add(time.Hour), Start.Add(18*time.Hour)
	w.attack("one address a run, of one network", morning, morning.Add(100*time.Minute), "203.0.113.0/24")
	leak := w.attack("two questions a run, of one domain", evening, evening.Add(2*time.Hour), "leak.example")
	w.minutes(Start, Start.Add(day), always(60), func(at time.Time, by who) {
		r := w.run(at, by)
		if !at.Before(evening) && at.Before(evening.Add(2*time.Hour)) {
			r.asks(w.upTo(time.Second), fmt.Sprintf("u%d.leak.example", w.rand.IntN(1_000_000)))
			leak.by(r, by)
		}
		r.ends()
	})
	scan := &w.s.Attacks[0]
	for i := range 100 {
		by := people[w.rand.IntN(len(people))]
		r := w.run(morning.Add(time.Duration(i)*time.Minute), by)
		r.connects(w.upTo(time.Second), netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)}), 22, 1)
		scan.by(r, by)
		r.ends()
	}
	return w.done()
}

// masses: an hour after a host's first run, a thousand runs of twenty callers make 24 attempts
// each, of which each run alone is no more than a client that tries again.
func masses() Scenario {
	w := newWorld("masses", 13)
	w.minutes(Start, Start.Add(day), always(20), func(at time.Time, by who) { w.run(at, by).ends() })
	from := Start.Add(time.Hour)
	a := w.attack("24 attempts in each of a thousand runs", from, from.Add(1000*10*time.Second), "evil.example")
	callers := staff(20)
	for i := range 1000 {
		by := callers[i%len(callers)]
		r := w.run(from.Add(time.Duration(i)*10*time.Second), by)
		for range 12 {
			r.asks(w.upTo(5*time.Second), "evil.example")
		}
		a.by(r, by)
		r.ends()
	}
	return w.done()
}

// firstDay: some runs of a noisy installation's first day send out what they can.
func firstDay() Scenario {
	w := newWorld("first-day", 14)
	w.minutes(Start, Start.Add(day), always(40), func(at time.Time, by who) {
		r := w.run(at, by)
		w.ping(r)
		r.ends()
	})
	for i := range 12 {
		at := Start.Add(time.Duration(2*i)*time.Hour + w.upTo(time.Hour))
		w.burst(at, people[w.rand.IntN(len(people))], fmt.Sprintf("out%d.example", i), 70+w.rand.IntN(100))
	}
	return w.done()
}

// burst is an attack of one run, that asks for so many names below a domain.
func (w *world) burst(at time.Time, by who, domain string, n int) {
	r := w.run(at, by)
	for range n {
		r.asks(w.upTo(20*time.Second), fmt.Sprintf("p%d.%s", w.rand.IntN(1000), domain))
	}
	w.attack("burst at "+domain, at, r.last, domain).by(r, by)
	r.ends()
}
