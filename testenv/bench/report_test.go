package bench

import (
	"slices"
	"testing"
	"time"
)

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// report prints both medians and their ratio.
func report(b *testing.B, ours string, a []time.Duration, theirs string, c []time.Duration) {
	ma, mc := median(a), median(c)
	b.ReportMetric(float64(ma.Microseconds())/1000, ours+"-ms")
	b.ReportMetric(float64(mc.Microseconds())/1000, theirs+"-ms")
	b.ReportMetric(float64(ma)/float64(mc), "ratio")
	b.ReportMetric(0, "ns/op") // the time of the whole loop means nothing
}
