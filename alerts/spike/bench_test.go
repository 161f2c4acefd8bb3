package spike

import (
	"fmt"
	"testing"
	"time"

	"proctor/audit"
)

// BenchmarkObserve is an attempt on a host where every series has all of its history.
func BenchmarkObserve(b *testing.B) {
	s := newStage(Defaults())
	for range maxPast + 4 {
		s.asks(s.run(7), "a.example", 5)
		s.at = s.at.Add(time.Hour)
	}
	e := &audit.Event{Run: s.run(7), Time: s.at, Kind: audit.KindQuery, Query: &audit.Query{Name: "a.example", Decision: audit.Blocked}}
	for b.Loop() {
		s.d.Observe(e)
	}
}

// BenchmarkStart is a run's beginning where as many destinations are known as are remembered.
func BenchmarkStart(b *testing.B) {
	s := newStage(Defaults())
	for i := range maxSeries {
		s.asks(fmt.Sprint("run ", i/maxDestinations), fmt.Sprintf("d%d.example", i), 1)
	}
	for b.Loop() {
		s.run(7)
	}
}
