package spikes

import (
	"fmt"
	"net/netip"
	"time"
)

// shapes: attacks that one kind of count sees and others don't, since what they have in common is
// one thing alone, each some hours after the other on a host that is not young.
func shapes() Scenario {
	w := newWorld("shapes", 19)
	w.minutes(Start, Start.Add(4*day), always(20), func(at time.Time, by who) {
		r := w.run(at, by)
		if w.rand.IntN(4) == 0 {
			w.ping(r)
		}
		r.ends()
	})
	names := 0
	// spread is n runs in a time, each of which asks for a name that nothing else asks for.
	spread := func(name string, hour int, over time.Duration, n int, by func(i int) who) {
		from := Start.Add(2*day + time.Duration(hour)*time.Hour)
		a := w.attack(name, from, from.Add(over), "")
		for i := range n {
			r := w.run(from.Add(over*time.Duration(i)/time.Duration(n)), by(i))
			names++
			r.asks(time.Second, fmt.Sprintf("n%d.example", names))
			a.by(r, by(i))
			r.ends()
		}
	}
	image := func(i int) string { return fmt.Sprintf("image-%d", i%4) }
	spread("all of the host", 0, 50*time.Minute, 300, func(i int) who { return who{uint32(3000 + i%30), fmt.Sprint("h", i%30), image(i)} })
	spread("one image", 4, 50*time.Minute, 140, func(i int) who { return who{uint32(3100 + i%10), fmt.Sprint("i", i%10), "node"} })
	spread("one agent of several callers", 8, 40*time.Minute, 50, func(i int) who { return who{uint32(3200 + i%5), "shared", image(i)} })
	spread("one caller of several agents", 12, 40*time.Minute, 50, func(i int) who { return who{3300, fmt.Sprint("c", i%9), image(i)} })
	spread("one caller, for hours", 16, 5*time.Hour, 400, func(int) who { return who{3400, "", "shell"} })

	from := Start.Add(3 * day)
	a := w.attack("many networks of one", from, from.Add(30*time.Minute), "2001:db8:77::/48")
	for i := range 90 {
		by := staff(9)[i%9]
		r := w.run(from.Add(time.Duration(i)*20*time.Second), by)
		r.connects(time.Second, netip.MustParseAddr(fmt.Sprintf("2001:db8:77:%x::1", i)), 22, 1)
		a.by(r, by)
		r.ends()
	}

	by := who{3500, "patient", "python-data"}
	from = Start.Add(3*day + 4*time.Hour)
	r := w.run(from, by)
	for i := range 200 {
		r.asks(time.Duration(i)*time.Minute, fmt.Sprintf("s%d.example", i))
	}
	w.attack("one run that takes its time", from, r.last, "").by(r, by)
	r.ends()

	by = who{3600, "flood", "shell"}
	from = Start.Add(3*day + 12*time.Hour)
	a = w.attack("ten runs a minute for hours", from, from.Add(3*time.Hour), "")
	for i := range 1800 {
		r := w.run(from.Add(time.Duration(i)*6*time.Second), by)
		for k := range 10 {
			r.asks(time.Duration(k)*100*time.Millisecond, fmt.Sprintf("f%d.example", i))
		}
		a.by(r, by)
		r.ends()
	}
	return w.done()
}
