package spike

import (
	"cmp"
	"slices"
)

// A pulse counts the runs of the host for all destinations, which are tried by whoever runs: a
// destination looks up what it needs of that when it is tried itself.
type pulse struct {
	series
	over []over // windows that had runs, at most maxPast, the newest last
}

type over struct {
	window int64
	runs   uint32
}

func (p *pulse) to(step int64) {
	window, runs := p.step/steps, p.now.runs
	p.series.to(step)
	switch now := p.step / steps; {
	case now < window: // the clock was set back
		p.over = slices.DeleteFunc(p.over, func(o over) bool { return o.window >= now })
	case now > window && runs > 0:
		if len(p.over) == maxPast {
			p.over = append(p.over[:0], p.over[1:]...)
		}
		p.over = append(p.over, over{window, runs})
	}
}

// lead moves a destination's series on to where the pulse is.
func (p *pulse) lead(s *series) {
	window := s.step / steps
	if s.step == 0 || p.step/steps <= window {
		s.to(p.step)
		return
	}
	i, _ := slices.BinarySearchFunc(p.over, window, func(o over, w int64) int { return cmp.Compare(o.window, w) })
	since := p.over[i:]
	if len(since) > 0 && since[0].window == window {
		s.now.runs = since[0].runs
		since = since[1:]
	}
	s.to(p.step)
	for _, o := range since {
		s.learn(counts{runs: o.runs})
	}
}
