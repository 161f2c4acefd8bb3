package container

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
)

// shownCPUs is the processors a program is told it has.
type shownCPUs struct {
	set     box.CPUSet
	n       int
	numbers []int // of those in set; empty when all are shown
}

// processors spreads boxes over the host's. The zero value is ready.
type processors struct {
	mu    sync.Mutex
	boxes map[int]int // how many boxes are shown each
}

// take picks as many of the host's processors as a limit is worth, rounded up, those that
// the fewest boxes were shown. Code sizes its thread pools by the number it sees: with the
// host's it would start threads that only wait for the quota, and hit its process limit.
func (p *processors) take(limit float64) shownCPUs {
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
	c := shownCPUs{n: int(math.Ceil(min(limit, float64(len(available)))))}
	if c.n == len(available) {
		return c // all of them: nothing to set
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boxes == nil {
		p.boxes = map[int]int{}
	}
	slices.SortStableFunc(available, func(a, b int) int { return cmp.Compare(p.boxes[a], p.boxes[b]) })
	c.numbers = available[:c.n]
	for _, i := range c.numbers {
		c.set.Set(i)
		p.boxes[i]++
	}
	return c
}

// give takes back what take gave.
func (p *processors) give(c shownCPUs) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range c.numbers {
		p.boxes[i]--
	}
}
