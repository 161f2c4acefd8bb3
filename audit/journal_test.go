package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/audit"
)

const testRun = "0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60"

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// sampleEvents has one of each kind, with what hostile code puts in.
func sampleEvents() []audit.Event {
	actor := &audit.Process{PID: 2, PPID: 1, HostID: 4711, Comm: "x\n{\"run\":\xff"}
	events := []audit.Event{
		{Kind: audit.KindStart, Start: &audit.Request{Run: testRun, Time: noon, Language: "sh", Argv: []audit.Text{"/bin/sh", "\xff\u2028"}, Inputs: []audit.InputRef{}}},
		{Seq: 1, Kind: audit.KindFork, Process: actor, Fork: &audit.Fork{Child: 2, ChildHost: 4712}},
		{Seq: 2, Kind: audit.KindExec, Process: actor, Exec: &audit.Exec{File: "/bin/sh", Argv: []audit.Text{"sh", "-c", "echo \x1b[2J <&>"}}},
		{Seq: 3, Kind: audit.KindOpen, Process: actor, Open: &audit.Open{Path: "/tmp/\xe9\n", Access: audit.AccessRead, Flags: []string{"create"}, Errno: "ENOENT", Unresolved: true}},
		{Seq: 4, Kind: audit.KindConnect, Process: actor, Net: &audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("198.51.100.7"), Port: 443, Decision: audit.Blocked, Rule: "no network granted"}},
		{Seq: 5, Kind: audit.KindSend, Process: actor, Net: &audit.Network{Protocol: "udp", Address: netip.MustParseAddr("2001:db8::5"), Port: 53, Decision: audit.Blocked, Rule: "no network granted", Mapped: true}},
		{Seq: 6, Kind: audit.KindOOM, Process: actor},
		{Seq: 7, Kind: audit.KindExit, Process: actor, Exit: &audit.Exit{Signal: "SIGKILL", Core: true}},
	}
	for i := range events {
		events[i].Run, events[i].Time = testRun, noon.Add(time.Duration(i))
	}
	return events
}

var sameEvents = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func writeJournal(t *testing.T, path string, events ...audit.Event) (seal string) {
	t.Helper()
	j, err := audit.CreateJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(events...); err != nil {
		t.Fatal(err)
	}
	if seal, err = j.Close(); err != nil {
		t.Fatal(err)
	}
	return seal
}

func readAll(t *testing.T, r io.Reader) []audit.Event {
	t.Helper()
	var events []audit.Event
	if err := audit.ReadEvents(r, func(e audit.Event) error { events = append(events, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return events
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sealOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	j, err := audit.CreateJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	events := sampleEvents()
	if err := j.Append(events[:3]...); err != nil {
		t.Fatal(err)
	}
	// What Append was given is with the operating system, whatever becomes of this process.
	if got := readAll(t, bytes.NewReader(readFile(t, path))); len(got) != 3 {
		t.Errorf("%d events in the file after the first Append", len(got))
	}
	if err := j.Append(events[3:]...); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(); err != nil {
		t.Fatal(err)
	}
	seal, err := j.Close()
	if err != nil {
		t.Fatal(err)
	}
	data := readFile(t, path)
	if want := sealOf(data); seal != want {
		t.Errorf("seal %s, want %s", seal, want)
	}
	if lines := strings.Count(string(data), "\n"); lines != len(events) {
		t.Errorf("%d lines for %d events", lines, len(events))
	}
	if diff := cmp.Diff(events, readAll(t, bytes.NewReader(data)), sameEvents); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}

	if err := j.Append(events[0]); err == nil {
		t.Error("a closed journal takes more")
	}
	if again := readFile(t, path); !bytes.Equal(data, again) {
		t.Error("a closed journal grew")
	}
	if _, err := j.Close(); err == nil {
		t.Error("a closed journal gives a second seal")
	}
	if _, err := audit.CreateJournal(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("made over one that exists: %v", err)
	}
}

// A journal that can't be written says so from then on, and what it holds is whole lines and has a
// seal, although the write that failed left a part of one.
func TestJournalWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	j, err := audit.CreateJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer limitFileSize(t, 1000)()
	for range 10 {
		if err = j.Append(sampleEvents()...); err != nil {
			break
		}
	}
	if err == nil {
		t.Fatal("no error past the limit")
	}
	if err := j.Append(sampleEvents()...); err == nil {
		t.Error("goes on after an error")
	}
	seal, err := j.Close()
	if err != nil {
		t.Error(err)
	}
	checkWhole(t, path, seal, j.Held())
}

// Wherever a crash cuts the record, what is whole before it is read, and the cut is said.
func TestReadEventsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	events := sampleEvents()
	writeJournal(t, path, events...)
	data := readFile(t, path)
	start := 0
	for i := range events {
		end := start + bytes.IndexByte(data[start:], '\n') + 1
		for cut := start; cut <= end; cut++ {
			n := 0
			err := audit.ReadEvents(bytes.NewReader(data[:cut]), func(audit.Event) error { n++; return nil })
			switch {
			case cut == start && (err != nil || n != i):
				t.Fatalf("cut between lines at %d: %d events, %v", cut, n, err)
			case cut > start && cut < end-1 && (!errors.Is(err, io.ErrUnexpectedEOF) || n != i):
				t.Fatalf("cut at %d within line %d: %d events, %v", cut, i+1, n, err)
			case cut >= end-1 && (err != nil || n != i+1):
				t.Fatalf("cut at %d after the object of line %d: %d events, %v", cut, i+1, n, err)
			}
		}
		start = end
	}
}

func TestReadEventsStops(t *testing.T) {
	enough := errors.New("enough")
	n := 0
	err := audit.ReadEvents(strings.NewReader("{}\n{}\n{}\n"), func(audit.Event) error {
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 2 {
		t.Errorf("%v after %d", err, n)
	}
	err = audit.ReadEvents(strings.NewReader("{}\nnonsense\n{}\n"), func(audit.Event) error { return nil })
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a line that is no event: %v", err)
	}
}

func FuzzReadEvents(f *testing.F) {
	for _, e := range sampleEvents() {
		line, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(line, '\n'))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = audit.ReadEvents(bytes.NewReader(data), func(e audit.Event) error {
			first, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var again audit.Event
			if err := json.Unmarshal(first, &again); err != nil {
				t.Fatalf("%s: %v", first, err)
			}
			second, err := json.Marshal(again)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, second) {
				t.Fatalf("%s became %s", first, second)
			}
			return nil
		})
	})
}

func TestFinishJournal(t *testing.T) {
	events := sampleEvents()
	whole := filepath.Join(t.TempDir(), "whole")
	writeJournal(t, whole, events...)
	data := readFile(t, whole)
	lines := bytes.SplitAfter(data, []byte("\n"))
	last := lines[len(lines)-2]
	before := data[:len(data)-len(last)]
	end := audit.End{Status: "interrupted", Reason: "because"}
	ownEnd, err := json.Marshal(audit.Event{Run: testRun, Kind: audit.KindEnd, End: &audit.End{Status: "ok", Counts: audit.Counts{Events: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	lossyEnd := bytes.ReplaceAll(ownEnd, []byte(`"lost":0`), []byte(`"lost":2`))
	ownEnd, lossyEnd = append(ownEnd, '\n'), append(lossyEnd, '\n')
	gap := bytes.Replace(data, lines[3], nil, 1)
	gapEnd := bytes.ReplaceAll(ownEnd, []byte(`"lost":0`), []byte(`"lost":1`))

	for _, test := range []struct {
		name     string
		have     []byte
		kept     []byte // at the file's beginning
		cut      string
		counts   audit.Counts
		status   string
		complete bool
	}{
		{name: "between lines", have: data, kept: data, counts: audit.Counts{Events: 7}, status: "interrupted"},
		{name: "in a line", have: data[:len(data)-9], kept: before, cut: string(last[:len(last)-9]), counts: audit.Counts{Events: 6}, status: "interrupted"},
		{name: "after one byte", have: append(bytes.Clone(before), '{'), kept: before, cut: "{", counts: audit.Counts{Events: 6}, status: "interrupted"},
		{name: "before the newline", have: data[:len(data)-1], kept: data, counts: audit.Counts{Events: 7}, status: "interrupted"},
		{name: "zeros of a lost page", have: append(bytes.Clone(data), 0, 0, 0), kept: data, cut: "\x00\x00\x00", counts: audit.Counts{Events: 7}, status: "interrupted"},
		{name: "in a character", have: append(bytes.Clone(data), "{\"run\":\"\xe6\x97"...), kept: data, cut: "{\"run\":\"\xe6\x97", counts: audit.Counts{Events: 7}, status: "interrupted"},
		{name: "empty", have: []byte{}, status: "interrupted"},
		{name: "missing", status: "interrupted"},
		{name: "with losses", have: bytes.Join([][]byte{lines[0], lines[2], lines[5]}, nil), kept: bytes.Join([][]byte{lines[0], lines[2], lines[5]}, nil), counts: audit.Counts{Events: 5, Lost: 3}, status: "interrupted"},
		{name: "has its end", have: slices.Concat(data, ownEnd), kept: slices.Concat(data, ownEnd), counts: audit.Counts{Events: 7}, status: "ok", complete: true},
		{name: "end without newline", have: slices.Concat(data, ownEnd[:len(ownEnd)-1]), kept: slices.Concat(data, ownEnd), counts: audit.Counts{Events: 7}, status: "ok", complete: true},
		{name: "end says lost", have: slices.Concat(data, lossyEnd), kept: slices.Concat(data, lossyEnd), counts: audit.Counts{Events: 7, Lost: 2}, status: "ok"},
		{name: "end says what is lost", have: slices.Concat(gap, gapEnd), kept: slices.Concat(gap, gapEnd), counts: audit.Counts{Events: 7, Lost: 1}, status: "ok"},
		{name: "something after an end", have: slices.Concat(before, ownEnd, last), kept: slices.Concat(before, ownEnd, last), counts: audit.Counts{Events: 7}, status: "interrupted"},
		{name: "end says more than there is", have: slices.Concat(before, ownEnd), kept: slices.Concat(before, ownEnd), counts: audit.Counts{Events: 7}, status: "ok"},
		{name: "end is cut", have: slices.Concat(data, ownEnd[:20]), kept: data, cut: string(ownEnd[:20]), counts: audit.Counts{Events: 7}, status: "interrupted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "events.jsonl")
			if test.have != nil {
				if err := os.WriteFile(path, test.have, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			visited := 0
			got, sum, err := audit.FinishJournal(path, testRun, end, func(*audit.Event) { visited++ })
			if err != nil {
				t.Fatal(err)
			}
			after := readFile(t, path)
			if want := (audit.Summary{Counts: test.counts, Complete: test.complete, Seal: sealOf(after)}); !cmp.Equal(sum, want) {
				t.Errorf("summary %+v, want %+v", sum, want)
			}
			if got.Status != test.status || got.Counts != test.counts {
				t.Errorf("end %+v, want %s with %+v", got, test.status, test.counts)
			}
			if !bytes.HasPrefix(after, test.kept) {
				t.Errorf("what was whole has changed:\n%s\nfrom\n%s", after, test.kept)
			}
			recorded := readAll(t, bytes.NewReader(after[len(test.kept):]))
			if test.status == "ok" {
				if len(recorded) != 0 {
					t.Errorf("something was added: %+v", recorded)
				}
			} else {
				if test.cut != "" {
					if c := recorded[0]; c.Kind != audit.KindCut || c.Cut == nil || string(c.Cut.Line) != test.cut || c.Run != testRun {
						t.Errorf("after what is whole comes %+v, want the cut bytes", c)
					}
					recorded = recorded[1:]
				}
				if len(recorded) != 1 || recorded[0].Kind != audit.KindEnd || recorded[0].Run != testRun || !reflect.DeepEqual(*recorded[0].End, got) || got.Reason != "because" {
					t.Errorf("the end: %+v", recorded)
				}
			}
			if n := bytes.Count(test.kept, []byte("\n")); visited != n {
				t.Errorf("%d events visited of %d", visited, n)
			}
			for line := range bytes.Lines(after) {
				if !json.Valid(line) || line[len(line)-1] != '\n' {
					t.Errorf("no line of JSON: %q", line)
				}
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("%d files are left", len(entries))
			}

			// Once more, as after being killed before the verdict was written.
			again, sum2, err := audit.FinishJournal(path, testRun, audit.End{Status: "other"}, func(*audit.Event) {})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(again, got) || sum2.Seal != sum.Seal || !bytes.Equal(after, readFile(t, path)) {
				t.Errorf("a second time changes it: %+v, %+v", again, sum2)
			}
		})
	}
}

// A line in the middle that is no event stays as it is, for readers to stumble over.
func TestFinishJournalLeavesDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	data := []byte(`{"seq":1,"kind":"oom"}` + "\nnonsense\n" + `{"seq":3,"kind":"oom"}` + "\n")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, sum, err := audit.FinishJournal(path, testRun, audit.End{}, func(*audit.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	if sum.Counts != (audit.Counts{Events: 3, Lost: 1}) {
		t.Errorf("counts %+v", sum.Counts)
	}
	after := readFile(t, path)
	if !bytes.HasPrefix(after, data) {
		t.Errorf("changed to %q", after)
	}
	if err := audit.ReadEvents(bytes.NewReader(after), func(audit.Event) error { return nil }); err == nil {
		t.Error("the damage goes unnoticed")
	}
}

// What cannot be finished stays as it was.
func TestFinishJournalFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	writeJournal(t, path, sampleEvents()...)
	before := readFile(t, path)
	func() {
		defer limitFileSize(t, 1000)()
		if _, _, err := audit.FinishJournal(path, testRun, audit.End{}, func(*audit.Event) {}); err == nil {
			t.Error("no error past the limit")
		}
	}()
	if !bytes.Equal(before, readFile(t, path)) {
		t.Error("it changed")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files are left", len(entries))
	}
}

func FuzzFinishJournal(f *testing.F) {
	for _, seed := range []string{"", "{}\n", `{"seq":1}` + "\n" + `{"se`, "\n\n", "\x00\x00", `{"kind":"end","end":{}}`, `{"kind":"end","end":null}` + "\n", `{"seq":18446744073709551615}` + "\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, sum, err := audit.FinishJournal(path, testRun, audit.End{Status: "x"}, func(*audit.Event) {})
		if err != nil {
			t.Fatal(err)
		}
		after := readFile(t, path)
		if sum.Seal != sealOf(after) || !bytes.HasSuffix(after, []byte("\n")) {
			t.Fatalf("%q became %q, sealed %s", data, after, sum.Seal)
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		if !bytes.HasPrefix(after, whole) {
			t.Fatalf("%q became %q", data, after)
		}
		if sum.Lost > sum.Events && !sum.Complete {
			var e audit.Event
			lines := bytes.Split(bytes.TrimSuffix(after, []byte("\n")), []byte("\n"))
			if json.Unmarshal(lines[len(lines)-1], &e) != nil || e.End == nil || e.End.Counts != sum.Counts {
				t.Fatalf("counts %+v", sum.Counts)
			}
		}
	})
}
