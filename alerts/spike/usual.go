package spike

import (
	"math"
	"slices"
)

// usual is what the windows of the past have in common.
type usual struct {
	rate   float64 // attempts per run: the median
	spread float64 // a deviation from that
	busy   float64 // attempts of a busy window: three of four have no more
}

// What is a standard deviation, of a normal distribution. The mean is for what most windows have
// none of, as installations that are tried by day: its median is 0.
const (
	ofMedian   = 1.4826 // times the median absolute deviation
	ofMean     = 1.2533 // times the mean one
	deviations = 6
)

// However much was learned, a limit above the threshold is at most so much. Who can make attempts
// can teach: slowly, and with many runs.
const (
	maxPerRun     = 60   // attempts of each run
	maxGrowth     = 4    // times the factor times a busy window: so many times as many runs are ordinary
	maxThresholds = 1000 // times the threshold
)

func (s *series) young(r Rule) bool { return len(s.past) < r.History }

// limit is from how many attempts on there are too many of that many runs, and what was expected.
func (s *series) limit(r Rule, runs float64) (limit uint64, expected float64) {
	if s.young(r) {
		return max(r.Threshold, s.least), 0
	}
	if s.usual == nil {
		s.usual = usualOf(s.past)
	}
	u := s.usual
	expected = u.rate * runs
	most := max(r.Factor*expected, expected+deviations*u.spread*runs)
	most = min(most, maxPerRun*runs, maxGrowth*r.Factor*u.busy, maxThresholds*float64(r.Threshold))
	return max(r.Threshold, uint64(math.Ceil(most))), min(expected, most/r.Factor)
}

func usualOf(past []counts) *usual {
	rates, all := make([]float64, len(past)), make([]uint32, len(past))
	for i, c := range past {
		rates[i], all[i] = float64(c.attempts)/float64(c.runs), c.attempts
	}
	u := &usual{rate: median(rates)}
	for i := range rates {
		rates[i] = math.Abs(rates[i] - u.rate)
	}
	if u.spread = ofMedian * median(rates); u.spread == 0 {
		for _, off := range rates {
			u.spread += ofMean * off / float64(len(rates))
		}
	}
	slices.Sort(all)
	u.busy = float64(all[len(all)*3/4])
	return u
}

func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}
