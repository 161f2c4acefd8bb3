package images

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Step is how far a long task is.
type Step struct {
	// Phase is what is being done, such as "download packages". Phases come in order; each starts with a Step.
	Phase string
	// Done of Total units are done; Total is 0 while it is unknown.
	Done, Total int64
	// Unit is what is counted: "packages", "files", "bytes", or empty if the phase can't be counted.
	Unit string
}

// Progress is called as a task goes on, never concurrently. It should return quickly.
type Progress func(Step)

func (p Progress) report(s Step) {
	if p != nil {
		p(s)
	}
}

// String reads like "download packages 45/166".
func (s Step) String() string {
	count := func(n int64) string {
		if s.Unit == "bytes" {
			return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
		}
		return fmt.Sprint(n)
	}
	switch {
	case s.Total > 0:
		return fmt.Sprintf("%s %s/%s", s.Phase, count(s.Done), count(s.Total))
	case s.Done > 0:
		return fmt.Sprintf("%s %s", s.Phase, count(s.Done))
	}
	return s.Phase
}

// PlainProgress writes progress as lines for logs: one when a phase starts, one every few seconds while it lasts, one
// when it is complete. Errors of w are ignored.
func PlainProgress(w io.Writer, prefix string) Progress {
	return LineProgress(func(line string) { fmt.Fprintf(w, "%s%s\n", prefix, line) })
}

// LineProgress has say told the lines that PlainProgress writes.
func LineProgress(say func(line string)) Progress {
	const every = 3 * time.Second
	var (
		mu      sync.Mutex
		phase   string
		printed time.Time
	)
	return func(s Step) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		complete := s.Total > 0 && s.Done >= s.Total
		if s.Phase == phase && !complete && now.Sub(printed) < every {
			return
		}
		phase, printed = s.Phase, now
		say(s.String())
	}
}
