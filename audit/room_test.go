package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// checkWhole fails the test if a journal does not hold so many events, whole, under its seal.
func checkWhole(t *testing.T, path, seal string, held int) []audit.Event {
	t.Helper()
	data := readFile(t, path)
	if sum := sha256.Sum256(data); seal != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("the seal %s is not the file's", seal)
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		t.Errorf("it ends within a line: %q", data[max(0, len(data)-100):])
	}
	var events []audit.Event
	if err := audit.ReadEvents(bytes.NewReader(data), func(e audit.Event) error { events = append(events, e); return nil }); err != nil {
		t.Error(err)
	}
	if len(events) != held {
		t.Errorf("%d events, %d were said to be held", len(events), held)
	}
	return events
}

func smallDisk(t *testing.T, size, inodes int64) *testenv.Disk {
	t.Helper()
	testenv.Root(t)
	return testenv.NewDisk(t, filepath.Join(testenv.Dir(t), "disk"), size, inodes)
}

// A disk that is full, of this run's events or of something else's, takes no more events, and
// still the end and the verdict.
func TestFullDisk(t *testing.T) {
	inputs := make([]audit.InputFile, 250)
	for i := range inputs {
		inputs[i] = audit.InputFile{Name: audit.Text(strings.Repeat("n", 200)), SHA256: strings.Repeat("0", 64)}
	}
	for name, fill := range map[string]func(*testing.T, *testenv.Disk, *audit.Journal){
		"flooded": func(t *testing.T, _ *testenv.Disk, j *audit.Journal) {
			for j.Append(sampleEvents()...) == nil {
			}
		},
		"filled by another": func(t *testing.T, d *testenv.Disk, j *audit.Journal) {
			if err := j.Append(sampleEvents()...); err != nil {
				t.Fatal(err)
			}
			d.Fill(0)
			for j.Append(sampleEvents()...) == nil {
			}
		},
		"filled before the first": func(t *testing.T, d *testenv.Disk, j *audit.Journal) {
			d.Fill(0)
			for j.Append(sampleEvents()...) == nil {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := smallDisk(t, 1<<20, 1000)
			store, err := audit.OpenStore(filepath.Join(d.Dir, "runs"))
			if err != nil {
				t.Fatal(err)
			}
			r := create(t, store, testRun)
			j, err := audit.CreateJournal(r.Path("events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			fill(t, d, j)
			d.Fill(0)
			if err := j.Append(sampleEvents()...); !audit.IsFull(err) {
				t.Errorf("more events: %v", err)
			}
			if err := j.AppendEnd(audit.Event{Run: testRun, Kind: audit.KindEnd, End: &audit.End{Status: "error", Inputs: inputs}}); err != nil {
				t.Errorf("the end: %v", err)
			}
			seal, err := j.Close()
			if err != nil {
				t.Fatal(err)
			}
			events := checkWhole(t, r.Path("events.jsonl"), seal, j.Held())
			if e := events[len(events)-1]; e.Kind != audit.KindEnd || e.End.Status != "error" {
				t.Errorf("it ends with %+v", e)
			}

			d.Fill(0)
			v := &audit.Verdict{Run: testRun, Status: audit.StatusError, Reason: "full", Inputs: inputs, Stdout: audit.Output{Head: make([]byte, 1<<20), Total: 5 << 20}}
			for range 100 {
				v.Egress.Blocked = append(v.Egress.Blocked, audit.Destination{Name: audit.Text(strings.Repeat("n", 200)), Count: 2})
			}
			if err := r.WriteVerdict(v); !audit.IsFull(err) {
				t.Errorf("a verdict that is larger than the room: %v", err)
			}
			if has, err := r.HasVerdict(); has || err != nil {
				t.Errorf("has a verdict: %v, %v", has, err)
			}
			if err := r.WriteVerdict(v.Abridged()); err != nil {
				t.Errorf("an abridged one: %v", err)
			}
			got, err := r.Verdict()
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != audit.StatusError || got.Reason != "full" || got.Stdout.Total != 5<<20 || got.Egress.BlockedMore != 200 {
				t.Errorf("it is kept as %+v", got)
			}
			if _, err := store.Create("0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f61", []byte("code")); !audit.IsFull(err) {
				t.Errorf("the next record: %v", err)
			}
			if runs, _ := store.Runs(); len(runs) != 1 {
				t.Errorf("records: %q", runs)
			}
			d.MakeRoom()
			create(t, store, "0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f62")
		})
	}
}

// The room that a record keeps is given back when it is closed.
func TestRoomIsGivenBack(t *testing.T) {
	d := smallDisk(t, 4<<20, 1000)
	before := d.Free()
	path := filepath.Join(d.Dir, "events.jsonl")
	j, err := audit.CreateJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if d.Free() > before-16<<10 {
		t.Error("no room is kept")
	}
	if err := j.AppendEnd(audit.Event{Run: testRun, Kind: audit.KindEnd, End: &audit.End{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if kept := before - d.Free(); kept > 8<<10 {
		t.Errorf("%d bytes are kept after the end", kept)
	}
}

// A disk without inodes, or that is read-only, takes no record, and nothing is left of it.
func TestNoRecord(t *testing.T) {
	for name, fill := range map[string]func(*testenv.Disk){
		"inodes":    func(d *testenv.Disk) { d.FillInodes(2) }, // the directory and the code: not the verdict's
		"read-only": func(d *testenv.Disk) { d.ReadOnly(true) },
	} {
		t.Run(name, func(t *testing.T) {
			d := smallDisk(t, 4<<20, 100)
			store, err := audit.OpenStore(filepath.Join(d.Dir, "runs"))
			if err != nil {
				t.Fatal(err)
			}
			fill(d)
			if _, err := store.Create(testRun, []byte("x")); !audit.IsFull(err) {
				t.Errorf("got %v", err)
			}
			if runs, _ := store.Runs(); len(runs) != 0 {
				t.Errorf("left are %q", runs)
			}
			if name == "read-only" {
				d.ReadOnly(false)
			}
		})
	}
}

func TestIsFull(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, unix.ENOSPC: true, unix.EDQUOT: true, unix.EROFS: true, unix.EIO: false,
		&os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}: true, errors.New("x"): false,
	} {
		if got := audit.IsFull(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
