package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/alerts/incident"
	"proctor/testenv"
)

func open1(t *testing.T, file string) *Ledger {
	t.Helper()
	l, aside, err := Open(file)
	if err != nil || aside != "" {
		t.Fatal(aside, err)
	}
	return l
}

// What is saved is there for the next, byte for byte; what is forgotten is not.
func TestKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alerts.db")
	l := open1(t, file)
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	i := &incident.Incident{
		ID: "a", State: incident.Open, Severity: incident.Critical, Opened: at, Last: at, Alarms: []incident.Alarm{{Subject: "\xff\x00<", Text: "x"}},
		Destinations: []incident.Tally{{Name: "\x1b", Count: 3}}, Runs: []incident.Run{{Run: "r", Code: "a\n\xfe"}}, Processes: []incident.Tally{},
		Deliveries: map[string]*incident.Delivery{"s": {Revision: 4, State: incident.Open, Ref: []byte(`{"ts":"1"}`), Unknown: 2}},
	}
	gone := &incident.Incident{ID: "b"}
	s := &incident.Silence{ID: "s", End: at, Reason: "r"}
	if err := l.Save([]*incident.Incident{i, gone}, []*incident.Silence{s}); err != nil {
		t.Fatal(err)
	}
	if err := l.Forget([]string{"b", "never"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open1(t, file)
	defer l.Close()
	is, ss, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*incident.Incident{i}, is, cmpopts.IgnoreUnexported(incident.Incident{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]*incident.Silence{s}, ss); diff != "" {
		t.Error(diff)
	}
}

// A damaged file does not keep alarms from working, and is not thrown away.
func TestDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alerts.db")
	if err := os.WriteFile(file, []byte(strings.Repeat("no database ", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	l, aside, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if data, err := os.ReadFile(aside); err != nil || !strings.HasPrefix(string(data), "no database") {
		t.Errorf("put aside as %q: %v", aside, err)
	}
	l.Close()
	// What is cut, and what holds something else than incidents.
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(aside); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"cut": whole[:len(whole)/2], "overwritten": append(whole[:2*os.Getpagesize():2*os.Getpagesize()], make([]byte, len(whole)-2*os.Getpagesize())...)} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, aside, err := Open(file)
		if err != nil || aside == "" {
			t.Errorf("%s: put aside as %q: %v", name, aside, err)
			continue
		}
		l.Close()
		if err := os.Remove(aside); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := Open(filepath.Join(t.TempDir(), "no", "alerts.db")); err == nil {
		t.Error("a file in no directory was opened")
	}
}

// Without room there is no file yet; alarms go on, and are kept once there is some.
func TestNoRoom(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(testenv.Dir(t), "small")
	testenv.NewDisk(t, dir, 64<<10, 0)
	stuffing := filepath.Join(dir, "stuffing")
	if err := os.WriteFile(stuffing, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "alerts.db")
	l := open1(t, file)
	if is, ss, err := l.Load(); is != nil || ss != nil || err != nil {
		t.Errorf("loaded %v, %v, %v", is, ss, err)
	}
	i := []*incident.Incident{{ID: "a"}}
	if err := l.Save(i, nil); err == nil {
		t.Error("saved without room")
	}
	if err := os.Remove(stuffing); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(i, nil); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l = open1(t, file)
	defer l.Close()
	if is, _, err := l.Load(); err != nil || len(is) != 1 {
		t.Errorf("kept %v, %v", is, err)
	}
}

// An incident that was kept before anybody was told of it can be told after a restart.
func TestToldAfterRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alerts.db")
	l := open1(t, file)
	book, err := incident.NewBook(incident.Options{Store: l})
	if err != nil {
		t.Fatal(err)
	}
	id := book.Raise(incident.Alarm{Time: time.Now(), Rule: "sign.metadata", Run: "r"})
	if err := errors.Join(book.Save(), l.Close()); err != nil {
		t.Fatal(err)
	}
	l = open1(t, file)
	defer l.Close()
	if book, err = incident.NewBook(incident.Options{Store: l}); err != nil {
		t.Fatal(err)
	}
	book.Deliver(id, "team", func(d *incident.Delivery) { d.Revision = 1 })
	if i := book.Get(id); i == nil || i.Deliveries["team"] == nil || i.Deliveries["team"].Revision != 1 {
		t.Errorf("%+v", i)
	}
}
