package spike

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// A History is what a Detector has learned, as of one moment: all series but those of runs. Its
// fields are exported for encoding alone.
type History struct {
	Windows map[By]time.Duration // of the rules that it was counted by
	Series  map[By][]Past        // what was used longest ago first
	Runs    Past                 // of the host, as destinations count them
}

// A Past is one series of a History.
type Past struct {
	Key     string
	Step    int64
	Recent  []uint32 // attempts and runs by turns
	Now     [2]uint32
	Before  []uint32 // of windows that are over, likewise
	Raised  bool
	Peak    uint64
	Callers []string
	Runs    int
}

// History copies what was learned.
func (d *Detector) History() *History {
	h := &History{Windows: map[By]time.Duration{}, Series: map[By][]Past{}}
	for by, all := range d.kept {
		for _, key := range all.Keys() {
			k, _ := all.Peek(key)
			if by == ByDestination && d.pulse.step > 0 {
				d.pulse.lead(&k.series)
			}
			h.Series[by] = append(h.Series[by], k.copy(key))
		}
	}
	h.Series[ByHost] = []Past{d.host.copy("")}
	h.Runs = d.pulse.copy("")
	for by := range h.Series {
		h.Windows[by] = d.o.Rules[by].Window
	}
	return h
}

func (k *kept) copy(key string) Past {
	p := k.series.copy(key)
	p.Callers, p.Runs = slices.Clone(k.callers), k.runs
	return p
}

func (s *series) copy(key string) Past {
	return Past{Key: key, Step: s.step, Recent: flat(s.recent[:]), Now: [2]uint32{s.now.attempts, s.now.runs}, Before: flat(s.past), Raised: s.on, Peak: s.peak}
}

func flat(all []counts) (by []uint32) {
	for _, c := range all {
		by = append(by, c.attempts, c.runs)
	}
	return by
}

// series is the one that was copied.
func (p *Past) series() series {
	s := series{step: p.Step, now: counts{p.Now[0], p.Now[1]}}
	s.peak = p.Peak
	if p.Raised {
		s.on, s.times = true, 1
	}
	for i := range s.recent {
		s.recent[i] = counts{p.Recent[2*i], p.Recent[2*i+1]}
	}
	for i := 0; i < len(p.Before); i += 2 {
		s.past = append(s.past, counts{p.Before[i], p.Before[i+1]})
	}
	return s
}

// Learn has a Detector that has seen nothing go on with a History. What was counted by a rule with
// another window is left out: it says nothing of this one's.
func (d *Detector) Learn(h *History) {
	for by, all := range h.Series {
		if h.Windows[by] != d.o.Rules[by].Window {
			continue
		}
		for i := range all {
			p := &all[i]
			k := &kept{series: p.series(), callers: p.Callers, runs: p.Runs}
			switch of := d.kept[by]; {
			case by == ByHost:
				d.host = *k
			case of != nil:
				of.Add(p.Key, k)
			}
		}
		if by == ByDestination {
			d.pulse.series = h.Runs.series()
		}
	}
}

// Write encodes it.
func (h *History) Write(w io.Writer) error { return gob.NewEncoder(w).Encode(h) }

// ReadHistory decodes one. Its error is of what is none.
func ReadHistory(r io.Reader) (*History, error) {
	h := &History{}
	if err := gob.NewDecoder(r).Decode(h); err != nil {
		return nil, fmt.Errorf("history of attempts: %w", err)
	}
	for _, all := range h.Series {
		for i := range all {
			if !all[i].can() {
				return nil, errors.New("history of attempts: a series in it can't be one")
			}
		}
	}
	if !h.Runs.can() {
		return nil, errors.New("history of attempts: the count of runs in it can't be one")
	}
	return h, nil
}

// can reports whether it can be a series.
func (p *Past) can() bool {
	for i := 1; i < len(p.Before); i += 2 {
		if p.Before[i] == 0 {
			return false
		}
	}
	return p.Step >= 0 && len(p.Recent) == 2*steps && len(p.Before)%2 == 0 && len(p.Before) <= 2*maxPast && len(p.Callers) <= commonCallers
}
