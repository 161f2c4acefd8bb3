package spike

import (
	"testing"

	"proctor/testenv/spikes"
)

// judge has the default rules watch a scenario.
func judge(s spikes.Scenario) spikes.Score {
	d := New(Options{Rules: Defaults()})
	var alarms []spikes.Alarm
	for i := range s.Events {
		for _, a := range d.Observe(&s.Events[i]) {
			if a.Again {
				continue
			}
			alarms = append(alarms, spikes.Alarm{Time: a.Time, By: string(a.By), Key: a.Key})
		}
	}
	return s.Score(alarms)
}

// The default rules tell attacks from noise: of both numbers 0.95 at least.
func TestQuality(t *testing.T) {
	var all spikes.Score
	for _, s := range spikes.All() {
		score := judge(s)
		t.Logf("%-12s %2d attacks, found %2d; alarms right %3d, wrong %3d; missed %q", s.Name, len(s.Attacks), score.Found, score.True, score.False, score.Missed)
		all.Add(score)
	}
	if all.Precision() < 0.95 || all.Recall() < 0.95 {
		t.Errorf("precision %.3f, recall %.3f", all.Precision(), all.Recall())
	}
}

// BenchmarkQuality prints the two numbers, and what an event costs.
func BenchmarkQuality(b *testing.B) {
	scenarios := spikes.All()
	events := 0
	var all spikes.Score
	for b.Loop() {
		all, events = spikes.Score{}, 0
		for _, s := range scenarios {
			all.Add(judge(s))
			events += len(s.Events)
		}
	}
	b.ReportMetric(all.Precision(), "precision")
	b.ReportMetric(all.Recall(), "recall")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
}
