package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proctor/alerts"
	"proctor/alerts/incident"
	"proctor/alerts/outbox"
	"proctor/alerts/sink"
	"proctor/alerts/spike"
	"proctor/audit"
)

// What was learned of attempts is there after a restart; where its file can't be read, alarms go on
// without it, and somebody is told.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	rule := spike.Rule{Threshold: 10, Window: time.Minute, Factor: 3, History: 3}
	var log bytes.Buffer
	open := func() *Desk {
		t.Helper()
		d, err := Open(Options{
			File: filepath.Join(dir, "alerts.db"), History: filepath.Join(dir, "alerts.history"),
			Rules: alerts.Rules{Spikes: spike.Rules{spike.ByCaller: rule}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	now, runs := time.Now(), 0
	tries := func(d *Desk, n int) (raised bool) {
		runs++
		id := fmt.Sprint("run-", runs)
		events := []audit.Event{{Run: id, Time: now, Kind: audit.KindStart, Start: &audit.Request{Caller: audit.Caller{UID: 7}}}}
		for range n {
			events = append(events, audit.Event{Run: id, Time: now, Kind: audit.KindQuery, Query: &audit.Query{Name: "telemetry.example", Decision: audit.Blocked}})
		}
		return d.Observe(events)
	}
	d := open()
	for range 5 {
		if tries(d, 9) {
			t.Fatal("less than the threshold is an alarm")
		}
		now = now.Add(2 * time.Minute)
	}
	for _, damaged := range []bool{false, true} {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if damaged {
			if err := os.WriteFile(filepath.Join(dir, "alerts.history"), []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d = open()
		if got := tries(d, 12); got != damaged {
			t.Errorf("file damaged: %v; more than the threshold, but usual, is an alarm: %v", damaged, got)
		}
		if got := strings.Contains(log.String(), "it is learned anew"); got != damaged {
			t.Errorf("file damaged: %v; log: %s", damaged, &log)
		}
		now = now.Add(2 * time.Minute)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// refusing is a sink that takes nothing.
type refusing struct{}

func (refusing) Traits() sink.Traits { return sink.Traits{} }
func (refusing) Send(context.Context, *sink.Notice) (json.RawMessage, error) {
	return nil, sink.Errorf(sink.Refused, "invalid_auth")
}

// That a sink refuses is an incident for as long as it does.
func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(Options{
		File: filepath.Join(dir, "alerts.db"), History: filepath.Join(dir, "alerts.history"), Quiet: 12 * time.Second,
		Routes: []outbox.Route{{Name: "bad", Sink: refusing{}}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Book().Raise(incident.Alarm{Time: time.Now(), Rule: "sign.tunnel", Text: "x"})
	opened := func() *incident.Incident {
		for _, i := range d.Book().List() {
			if i.OnlyOf(incident.RefusedRule, "bad") {
				return i
			}
		}
		return nil
	}
	for range 400 {
		if opened() != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(14 * time.Second)
	if i := opened(); i == nil || i.State != incident.Open || i.Alarms[0].Times != 1 {
		t.Errorf("%+v", i)
	}
}
