package supervisor

import (
	"maps"
	"slices"
	"time"

	"proctor/audit"
	"proctor/supervisor/box"
)

// Ended is a run that did.
type Ended struct {
	Profile string
	Verdict *audit.Verdict
	Phases  map[string]time.Duration // how long its parts took, by name
}

// Usage sums up what the runs that are going on have used; peaks are each run's own. Runs that end
// meanwhile are left out.
func (s *Supervisor) Usage() (sum box.Usage) {
	s.mu.Lock()
	boxes := slices.Collect(maps.Values(s.boxes))
	s.mu.Unlock()
	for _, b := range boxes {
		u, err := b.Usage()
		if err != nil {
			continue
		}
		sum.CPU += u.CPU
		sum.MemoryPeak += u.MemoryPeak
		sum.ProcessesPeak += u.ProcessesPeak
	}
	return sum
}
