package spikes

import (
	"fmt"
	"time"
)

// asksOnce draws one question for a name.
func (r *run) asksOnce(after time.Duration, name string) {
	r.asks(after, name)
	r.w.s.Events = r.w.s.Events[:len(r.w.s.Events)-1]
}

// poisoned: one run an hour makes 59 attempts, for 26 hours; in the next, 600 runs make 24 each.
// Nobody needs to be told of the first.
func poisoned() Scenario {
	w := newWorld("poisoned", 15)
	by := who{1077, "scout", "python-data"}
	w.minutes(Start, Start.Add(2*day), always(5), func(at time.Time, by who) { w.run(at, by).ends() })
	for h := range 26 {
		r := w.run(Start.Add(time.Duration(h)*time.Hour), by)
		for i := range 59 {
			r.asksOnce(time.Duration(i)*time.Minute, "evil.example")
		}
		r.ends()
	}
	from := Start.Add(26 * time.Hour)
	a := w.attack("24 attempts in each of 600 runs", from, from.Add(time.Hour), "evil.example")
	for i := range 600 {
		r := w.run(from.Add(time.Duration(i)*6*time.Second), by)
		for range 12 {
			r.asks(w.upTo(5*time.Second), "evil.example")
		}
		a.by(r, by)
		r.ends()
	}
	return w.done()
}

// fillers: runs of three callers have asked for more names, slowly, than are told apart. Then one
// that has done the same asks for others, as fast as a client that tries again.
func fillers() Scenario {
	w := newWorld("fillers", 16)
	w.minutes(Start, Start.Add(6*day), always(4), func(at time.Time, by who) { w.run(at, by).ends() })
	callers := staff(3)
	for k := range 12 {
		r := w.run(Start.Add(30*time.Hour+time.Duration(k)*7*time.Hour), callers[k%3])
		for d := range 70 {
			r.asksOnce(time.Duration(d)*10*time.Minute, fmt.Sprintf("w%d-%d.example", k, d))
		}
		r.ends()
	}
	by := who{1078, "filler", "shell"}
	began := Start.Add(5*day + 6*time.Hour)
	r := w.run(began, by)
	for d := range 64 {
		r.asksOnce(time.Duration(d)*90*time.Second, fmt.Sprintf("v%d.example", d))
	}
	from := 2 * time.Hour
	a := w.attack("24 attempts a minute, at another name each", began.Add(from), began.Add(from+time.Hour), "")
	a.by(r, by)
	for k := range 55 {
		for i := range 12 {
			r.asks(from+time.Duration(k)*65*time.Second+time.Duration(i)*time.Second, fmt.Sprintf("evil%d.example", k))
		}
	}
	r.ends()
	return w.done()
}

// weeks: two weeks of an office, with a few runs at night and at weekends, and all that the runs of
// a working day are: noise in each, and package installations without a network. On the working
// days of the second, some runs attack.
func weeks() Scenario {
	w := newWorld("weeks", 17)
	w.minutes(Start, Start.Add(14*day), func(at time.Time) float64 {
		weekend := at.Weekday() == time.Saturday || at.Weekday() == time.Sunday
		if h := at.Hour(); !weekend && h >= 8 && h < 18 {
			return 60
		}
		return 4
	}, func(at time.Time, by who) {
		r := w.run(at, by)
		w.ping(r)
		if w.rand.IntN(40) == 0 {
			w.install(r)
		}
		r.ends()
	})
	for d := range 5 {
		monday := Start.Add(time.Duration(7+d) * day)
		for i, hour := range []int{3, 9, 13, 17, 22} {
			at := monday.Add(time.Duration(hour)*time.Hour + w.upTo(time.Hour))
			domain := fmt.Sprintf("drop%d-%d.example", d, i)
			if i%2 == 0 {
				w.burst(at, people[w.rand.IntN(len(people))], domain, 70+w.rand.IntN(100))
			} else {
				w.drip(at, people[w.rand.IntN(len(people))], domain)
			}
		}
	}
	return w.done()
}

// drip is an attack of one caller's twenty runs, a minute apart, none of which does much.
func (w *world) drip(at time.Time, by who, domain string) {
	a := w.attack("drip at "+domain, at, at.Add(20*time.Minute), domain)
	for i := range 20 {
		r := w.run(at.Add(time.Duration(i)*time.Minute), by)
		for range 4 {
			r.asks(w.upTo(10*time.Second), "x."+domain)
		}
		a.by(r, by)
		r.ends()
	}
}

// moved: after three days, four times as many runs as before do what runs have always done. Nobody
// should be told.
func moved() Scenario {
	w := newWorld("moved", 18)
	w.minutes(Start, Start.Add(6*day), func(at time.Time) float64 {
		if at.Before(Start.Add(3 * day)) {
			return 25
		}
		return 100
	}, func(at time.Time, by who) {
		r := w.run(at, by)
		if w.rand.IntN(2) == 0 {
			w.ping(r)
		}
		r.ends()
	})
	return w.done()
}
