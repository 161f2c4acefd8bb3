package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
)

// The kernel does not charge everything that code makes it keep to the code's cgroup. Two things
// stand in for that: each run is looked at for what it is known to be able to hold that way, and
// where the host becomes short of memory all the same, the run that is busiest is ended.
const (
	unchargedEvery = 200 * time.Millisecond
	maxUncharged   = 32 << 20 // bytes, of one run
	// unlookedMost is how long a run goes on while the process has no descriptor left to look with.
	unlookedMost = 10 * time.Second

	pressureEvery = 250 * time.Millisecond
	pressureLook  = 100 * time.Millisecond // how long runs are looked at for who is busiest
	pressurePause = time.Second            // after one was ended
)

// unchargedError says that a run holds too much of what is charged to nobody.
type unchargedError struct{ bytes int64 }

func (e *unchargedError) Error() string {
	return fmt.Sprintf("it held %s of the kernel's memory in netlink sockets, which count for no limit; %s is the most", size(e.bytes), size(maxUncharged))
}

// noDescriptors reports whether there was no descriptor left to look at a run with.
func noDescriptors(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// uncharged looks at a run's box. Where that can't be, nothing bounds what the run holds.
func (r *run) uncharged() (*unchargedError, error) {
	n, err := r.box.Uncharged(maxUncharged)
	if noDescriptors(err) {
		// Somebody has taken what files there are: no fault of the run's, for some time.
		if r.unlooked++; time.Duration(r.unlooked)*unchargedEvery < unlookedMost {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("what it holds of the kernel's memory is not known: %w", err)
	}
	r.unlooked = 0
	if n <= maxUncharged {
		return nil, nil
	}
	return &unchargedError{n}, nil
}

// errPressure is why a run is ended that the host had no memory for.
var errPressure = errors.New("the host was short of memory, and it was the busiest run: make the work smaller, or try again later")

// available is how much memory the host can give to programs, in bytes.
func available() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}

// roomInMemory refuses a new run where the host has too little memory left.
func (s *Supervisor) roomInMemory() error {
	if s.memoryReserve == 0 {
		return nil
	}
	n, err := available()
	if err != nil {
		return err
	}
	if n >= s.memoryReserve {
		return nil
	}
	const retry = 10 * time.Second
	return &BusyError{Refusal{What: fmt.Sprintf("the host has %s of memory available, %s are kept", size(n), size(s.memoryReserve)), Fix: "try again when other work has ended"}, retry}
}

// relieve ends the busiest run whenever the host has less than half of the reserve left.
func (s *Supervisor) relieve(ctx context.Context) {
	tick := time.NewTicker(pressureEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := available()
		if err != nil {
			s.log.Error("how much memory there is is not known", "error", err)
			return
		}
		if n >= s.memoryReserve/2 {
			continue
		}
		if id, ok := s.busiest(); ok {
			s.log.Warn("the host is short of memory: the busiest run is ended", "run", id, "available", n, "reserve", s.memoryReserve)
			s.end(id, errPressure)
			time.Sleep(pressurePause)
		}
	}
}

// busiest is the run that had the most processor time in a short while: what fills memory that
// is not charged has to be made by calls.
func (s *Supervisor) busiest() (id string, ok bool) {
	before := s.usedCPU()
	time.Sleep(pressureLook)
	most := time.Duration(-1)
	for run, now := range s.usedCPU() {
		if was, there := before[run]; there && now-was > most {
			id, ok, most = run, true, now-was
		}
	}
	return id, ok
}

func (s *Supervisor) usedCPU() map[string]time.Duration {
	s.mu.Lock()
	boxes := make(map[string]box.Box, len(s.boxes))
	for id, b := range s.boxes {
		boxes[id] = b
	}
	s.mu.Unlock()
	used := map[string]time.Duration{}
	for id, b := range boxes {
		if u, err := b.Usage(); err == nil {
			used[id] = u.CPU
		}
	}
	return used
}

// keepBox notes which box a run has, until what is returned is called.
func (s *Supervisor) keepBox(id string, b box.Box) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[id] = b
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.boxes, id)
	}
}
