package container

import (
	"math"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
)

// shownCPUs is the processors a program is told it has.
type shownCPUs struct {
	set box.CPUSet
	n   int
}

// chooseCPUs picks as many of the host's processors as the limit is worth, rounded up,
// starting at a random one so that boxes spread. Code sizes its thread pools by the number
// it sees: with the host's it would start threads that only wait for the quota, and hit
// its process limit.
func chooseCPUs(limit float64) shownCPUs {
	var host unix.CPUSet
	if err := unix.SchedGetaffinity(0, &host); err != nil {
		return shownCPUs{n: int(math.Ceil(limit))}
	}
	var available []int
	for i := range len(host) * 64 {
		if host.IsSet(i) {
			available = append(available, i)
		}
	}
	c := shownCPUs{n: min(int(math.Ceil(limit)), len(available))}
	if c.n == len(available) {
		return c // all of them: nothing to set
	}
	start := rand.IntN(len(available))
	for i := range c.n {
		c.set.Set(available[(start+i)%len(available)])
	}
	return c
}
