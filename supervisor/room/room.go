// Package room says whether there is room on disk where the supervisor writes: enough for a run
// to begin, so that those that go on can still end properly.
package room

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Place is a directory that the supervisor writes to.
type Place struct {
	Name   string // what it is to the operator: "state directory"
	Dir    string
	Bytes  int64 // that must be free for a new run
	Inodes int64 // likewise, where the file system counts them
}

// A State is how it looks in a place.
type State struct {
	Name       string `json:"name"`
	Dir        string `json:"dir"`
	Free       int64  `json:"free_bytes"`
	Least      int64  `json:"least_bytes"`           // no new runs below it
	FreeInodes int64  `json:"free_inodes,omitempty"` // 0 of 0: they are not counted
	Inodes     int64  `json:"inodes,omitempty"`
	Problem    string `json:"problem,omitempty"` // why there are no new runs
	Fix        string `json:"fix,omitempty"`     // what the operator can do
}

// look finds out how it looks, and on which device; more asks for an eighth more than the least.
// What is free is what others than root may use: some file systems keep a part for root.
func (p Place) look(more bool) (s State, device uint64) {
	s = State{Name: p.Name, Dir: p.Dir, Least: p.Bytes}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Statfs(p.Dir, &fs), unix.Stat(p.Dir, &st)); err != nil {
		s.Problem, s.Fix = fmt.Sprintf("the %s %s can't be looked at: %s", p.Name, p.Dir, oneLine(err)), "mend it, or start the supervisor again, which makes it"
		return s, 0
	}
	s.Free, s.FreeInodes, s.Inodes = int64(fs.Bavail)*fs.Bsize, int64(fs.Ffree), int64(fs.Files)
	bytes, inodes, begin := p.Bytes, p.Inodes, "begin"
	if more {
		bytes, inodes, begin = bytes+bytes/8, inodes+inodes/8, "begin again"
	}
	err := unix.Access(p.Dir, unix.W_OK)
	switch {
	case errors.Is(err, unix.EROFS):
		s.Problem, s.Fix = fmt.Sprintf("the %s %s is on a file system that is mounted read-only", p.Name, p.Dir), "see in the kernel's log why, and mount it for writing"
	case err != nil:
		s.Problem, s.Fix = fmt.Sprintf("the %s %s can't be written to: %v", p.Name, p.Dir, err), "make it writable for root"
	case s.Free < bytes:
		s.Problem = fmt.Sprintf("the %s %s has %s free, and new runs %s with at least %s", p.Name, p.Dir, Size(s.Free), begin, Size(bytes))
		s.Fix = "make room there"
	case s.Inodes > 0 && s.FreeInodes < inodes:
		s.Problem = fmt.Sprintf("the %s %s has %d inodes free, and new runs %s with at least %d", p.Name, p.Dir, s.FreeInodes, begin, inodes)
		s.Fix = "remove files there"
	}
	return s, st.Dev
}

// FullError says that there is no room for a new run.
type FullError struct {
	Problem string
	Fix     string
}

func (e *FullError) Error() string { return e.Problem + ": " + e.Fix }

// Rooms are all places of a supervisor.
type Rooms struct {
	log    *slog.Logger
	places []Place

	mu   sync.Mutex
	full map[string]bool // by directory
}

// New takes the places in the order in which they are named to people.
func New(log *slog.Logger, places ...Place) *Rooms {
	return &Rooms{log: log, places: places, full: map[string]bool{}}
}

// States looks at all places. One on the same file system as an earlier one is left out, unless
// it has a problem of its own. When a place gets a problem, or has it no more, that is logged
// once. A place that had too little needs an eighth more than the least, so that it does not
// come and go with each run.
func (r *Rooms) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[uint64]string{} // device → problem
	var states []State
	for _, p := range r.places {
		s, device := p.look(r.full[p.Dir])
		if earlier, ok := seen[device]; ok && device != 0 && (s.Problem == "" || earlier != "") {
			r.full[p.Dir] = s.Problem != ""
			continue
		}
		seen[device] = s.Problem
		states = append(states, s)
		switch is, was := s.Problem != "", r.full[p.Dir]; {
		case is && !was:
			r.log.Error("NO NEW RUNS: "+s.Problem, "fix", s.Fix)
		case was && !is:
			r.log.Info("there is room again", "place", p.Name, "dir", p.Dir, "free", Size(s.Free))
		}
		r.full[p.Dir] = s.Problem != ""
	}
	return states
}

// Check returns a [*FullError] while there is no room for a new run.
func (r *Rooms) Check() error {
	var problems, fixes []string
	for _, s := range r.States() {
		if s.Problem != "" {
			problems, fixes = append(problems, s.Problem), append(fixes, s.Fix)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &FullError{strings.Join(problems, "; "), strings.Join(fixes, "; ")}
}

// Describe says of each place what is free, for errors that do not say where they come from.
func (r *Rooms) Describe() string {
	var all []string
	for _, s := range r.States() {
		all = append(all, s.describe())
	}
	return strings.Join(all, "; ")
}

// What the starting of a run takes of a place for a moment, several times over: it was seen to
// fail below 80 KiB and 20 inodes of a run directory.
const (
	scarceBytes  = 1 << 20
	scarceInodes = 64
)

// Scarce describes the places where so little is free that a failure which does not say why may
// be from that, whatever Bytes and Inodes ask for; empty where there are none.
func (r *Rooms) Scarce() string {
	var all []string
	for _, s := range r.States() {
		if s.Free < scarceBytes || s.Inodes > 0 && s.FreeInodes < scarceInodes {
			all = append(all, s.describe())
		}
	}
	return strings.Join(all, "; ")
}

func (s State) describe() string {
	text := fmt.Sprintf("%s %s: %s free", s.Name, s.Dir, Size(s.Free))
	if s.Inodes > 0 {
		text += fmt.Sprintf(", %d inodes", s.FreeInodes)
	}
	return text
}

// Size writes bytes for people.
func Size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	default:
		return fmt.Sprintf("%d KiB", n>>10)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
