package alerts

import (
	"fmt"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/spike"
)

// An attack that goes on in ever new runs is one incident that stays open and has all of it.
func TestAttackGoesOn(t *testing.T) {
	w, book := newWatch(t, Rules{Spikes: spike.Defaults()})
	at, attempts, logged := begin, 0, 0
	for n := range 3 * 60 * 5 { // 3 hours, 5 runs a minute of 20 attempts
		run := fmt.Sprint("run-", n)
		e := start(run)
		e.Time = at
		w.Observe(e)
		for range 20 {
			e := connect(run, "198.51.100.1")
			e.Time = at
			logged += len(w.Observe(e))
			attempts++
		}
		book.Ended(run, at)
		at = at.Add(12 * time.Second)
		book.Tick(at)
	}
	list := book.List()
	if len(list) != 1 || list[0].State != incident.Open || list[0].Reopened != 0 || list[0].Severity != incident.Critical {
		t.Fatalf("%d incidents, the first %+v", len(list), list[0])
	}
	if i := list[0]; i.Attempts != uint64(attempts) || i.RunCount() != 900 {
		t.Errorf("%d attempts of %d, %d runs", i.Attempts, attempts, i.RunCount())
	}
	if logged > 20 {
		t.Errorf("%d alarms are news", logged)
	}
}
