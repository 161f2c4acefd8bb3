package alerts

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sign"
	"proctor/alerts/spike"
	"proctor/audit"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWatch(t *testing.T, rules Rules) (*Watch, *incident.Book) {
	t.Helper()
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return New(rules, book), book
}

func start(run string) *audit.Event {
	return &audit.Event{Run: run, Time: begin, Kind: audit.KindStart, Start: &audit.Request{Caller: audit.Caller{UID: 7}, Profile: "p", Image: audit.ImageRef{Name: "shell"}}}
}

func connect(run, address string) *audit.Event {
	return &audit.Event{Run: run, Time: begin, Kind: audit.KindConnect, Net: &audit.Network{Decision: audit.Blocked, Address: netip.MustParseAddr(address), Port: 80}}
}

// One attempt at a metadata address is an incident at once, and what comes after belongs to it.
func TestWatch(t *testing.T) {
	w, book := newWatch(t, Rules{Spikes: spike.Defaults(), Signs: DefaultSigns()})
	w.Observe(start("r"))
	if got := w.Observe(connect("r", "192.0.2.1")); got != nil {
		t.Errorf("alarms of one attempt: %+v", got)
	}
	got := w.Observe(connect("r", "169.254.169.254"))
	if len(got) != 1 || got[0].Rule != "sign.metadata" || got[0].Severity != incident.Critical || !strings.Contains(string(got[0].Text), "169.254.169.254") {
		t.Errorf("alarms %+v", got)
	}
	for range 30 {
		w.Observe(connect("r", "198.51.100.1"))
	}
	list := book.List()
	if len(list) != 1 || list[0].Attempts != 32 || len(list[0].Alarms) != 2 || list[0].Alarms[1].Text != "25 blocked attempts of one run in 1m: the limit is 25" {
		t.Fatalf("%d incidents, the first %+v", len(list), list[0])
	}
}

// What is said at a run's end belongs to that run; the run is forgotten after it.
func TestEnd(t *testing.T) {
	w, book := newWatch(t, Rules{Signs: DefaultSigns()})
	w.Observe(start("r"))
	w.Observe(&audit.Event{Run: "r", Time: begin, Kind: audit.KindEnd, End: &audit.End{Status: "audit_limit", Reason: "too much", Counts: audit.Counts{Lost: 3}}})
	list := book.List()
	if len(list) != 1 || len(list[0].Runs) != 1 || list[0].Runs[0].Profile != "p" || list[0].Alarms[0].Rule != "sign.blind" {
		t.Fatalf("%+v", list)
	}
}

// What is switched off is no alarm; a profile's own rule is for its runs alone.
func TestRules(t *testing.T) {
	signs := DefaultSigns()
	delete(signs, sign.Metadata)
	w, _ := newWatch(t, Rules{Spikes: spike.Defaults(), Signs: signs})
	w.Profile("p", spike.Rule{Threshold: 2, Window: time.Minute, Factor: 1, History: 1})
	w.Observe(start("r"))
	var all []string
	for range 3 {
		for _, a := range w.Observe(connect("r", "169.254.169.254")) {
			all = append(all, fmt.Sprint(a.Rule, " ", a.Text))
		}
	}
	if len(all) != 1 || all[0] != "spike.run 2 blocked attempts of one run in 1m: the limit is 2" {
		t.Errorf("alarms %q", all)
	}
}

// What an earlier supervisor saw and told nobody of is found in the record that it left; what it
// told is not said again.
func TestLeft(t *testing.T) {
	w, book := newWatch(t, Rules{Spikes: spike.Defaults(), Signs: DefaultSigns()})
	w.Profile("p", spike.Rule{Threshold: 10, Window: time.Minute, Factor: 1, History: 1})
	record := func(run, metadata, other string) (events []*audit.Event) {
		events = append(events, start(run), connect(run, metadata))
		for range 12 {
			events = append(events, connect(run, other))
		}
		return events
	}
	told := record("told", "169.254.169.254", "198.51.100.1")
	untold := record("untold", "fd00:ec2::254", "192.0.2.1")
	untold[0].Start.Caller.UID = 8
	for _, e := range told {
		w.Observe(e)
	}
	id := book.List()[0].ID
	book.Ended("told", begin) // as after a restart

	look := func(run string, events []*audit.Event) (rules []string) {
		left := w.Left()
		events = append(events, &audit.Event{Run: run, Time: begin, Kind: audit.KindEnd, End: &audit.End{Status: string(audit.StatusInterrupted), Reason: "the supervisor ended"}})
		for _, e := range events {
			for _, a := range left.Observe(e) {
				rules = append(rules, a.Rule)
			}
		}
		return rules
	}
	if got := look("told", told); !slices.Equal(got, []string{"sign.blind"}) {
		t.Errorf("of what was told: %v", got)
	}
	if got := look("untold", untold); !slices.Equal(got, []string{"sign.metadata", "spike.run", "sign.blind"}) {
		t.Errorf("of what was not: %v", got)
	}
	if got := look("untold", untold); got != nil {
		t.Errorf("the second time: %v", got)
	}
	if list := book.List(); len(list) != 2 || book.Get(id) == nil || list[0].Attempts != 13 || list[1].Attempts != 13 {
		t.Errorf("%d incidents: %+v, %+v", len(list), list[0], list[len(list)-1])
	}
}
