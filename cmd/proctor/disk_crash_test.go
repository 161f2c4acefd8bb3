package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proctor/audit"
)

// truncateLast cuts a record within its last line, as a crash of the host may.
func truncateLast(t *testing.T, path string) (whole int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	last := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	if err := os.Truncate(path, int64(last+(len(data)-last)/2)); err != nil {
		t.Fatal(err)
	}
	return bytes.Count(data[:last], []byte("\n"))
}

// checkInterrupted fails the test if a run that was flooding when its supervisor was killed does
// not have a record that holds all whole lines, the half one as a cut, and an end.
func (s *supervisor) checkInterrupted(t *testing.T, run string, whole int) {
	t.Helper()
	v := s.keptVerdict(t, run)
	if v.Status != audit.StatusInterrupted || v.ExitCode != 125 || v.Audit.Complete {
		t.Errorf("sealed as %s, code %d, complete %v: %s", v.Status, v.ExitCode, v.Audit.Complete, v.Reason)
	}
	events := s.checkRecorded(t, v)
	if len(events) != whole+2 || events[whole].Kind != audit.KindCut || events[whole].Cut.Line == "" {
		t.Errorf("%d events, %d were whole", len(events), whole)
	}
	for i := 1; i < whole; i++ {
		if events[i].Seq <= events[i-1].Seq && events[i].Seq != 0 {
			t.Errorf("event %d has number %d after %d", i, events[i].Seq, events[i-1].Seq)
		}
	}
	if r := s.proctor(t, "", "audit", "show", run); r.code != 0 || !strings.Contains(r.stdout, "verdict  interrupted") {
		t.Errorf("audit show: %d: %s", r.code, r.stderr)
	}
}

// Case A6. The supervisor is killed in a flood of events, and the last line is cut in half.
func TestKilledInFlood(t *testing.T) {
	s := newSmall(t, someReserve)
	run := s.background(t, eventFlood, "--audit-events", "10000000")
	record := filepath.Join(s.recordDir(run.run), "events.jsonl")
	eventually(t, 20*time.Second, func() error {
		if info, err := os.Stat(record); err != nil || info.Size() < 1<<20 {
			return errors.New("the record does not grow")
		}
		return nil
	})
	s.kill()
	<-run.waited
	whole := truncateLast(t, record)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.checkInterrupted(t, run.run, whole)
	s.well(t)
	eventually(t, 20*time.Second, s.empty)
}

// The supervisor is killed while its disks are full, and started again: it serves, refuses runs,
// says why, and finishes what it found as soon as there is room, without anybody's hands.
func TestKilledWhileFull(t *testing.T) {
	s := newSmall(t, someReserve)
	for name, fill := range map[string]func(){
		"state": func() { s.state.Fill(0); s.state.FillInodes(0) },
		"run":   func() { s.run.Fill(0) },
	} {
		t.Run(name, func(t *testing.T) {
			run := s.background(t, eventFlood, "--audit-events", "10000000")
			record := filepath.Join(s.recordDir(run.run), "events.jsonl")
			eventually(t, 20*time.Second, func() error {
				if info, err := os.Stat(record); err != nil || info.Size() < 100<<10 {
					return errors.New("the record does not grow")
				}
				return nil
			})
			s.kill()
			<-run.waited
			whole := truncateLast(t, record)
			fill()
			if err := s.start(); err != nil {
				t.Fatal(err)
			}
			if v := s.verdict(t, "sh", "true"); v.Status != audit.StatusRefused || !strings.Contains(v.Reason, name+" directory "+s.dir) {
				t.Errorf("while it is full: %s: %s", v.Status, v.Reason)
			}
			if r := s.proctor(t, "", "status"); !strings.HasPrefix(r.stdout, "NO NEW RUNS: ") {
				t.Errorf("status: %s%s", r.stdout, r.stderr)
			}
			if r := s.proctor(t, "", "audit", "list"); r.code != 0 || !strings.Contains(r.stdout, run.run) {
				t.Errorf("audit list: %s%s", r.stdout, r.stderr)
			}
			if name == "state" {
				if exists(filepath.Join(s.recordDir(run.run), "verdict.json")) {
					t.Error("there was room: the run is sealed")
				}
				time.Sleep(5 * time.Second) // it is looked again and again
				if n := s.logged(t, "are sealed when there is room"); n != 1 {
					t.Errorf("that runs are not sealed is logged %d times", n)
				}
			}
			s.state.MakeRoom()
			s.run.MakeRoom()
			eventually(t, 20*time.Second, func() error {
				if !exists(filepath.Join(s.recordDir(run.run), "verdict.json")) {
					return fmt.Errorf("there is room, and the run is not sealed")
				}
				return nil
			})
			s.checkInterrupted(t, run.run, whole)
			s.well(t)
			eventually(t, 20*time.Second, s.empty)
		})
	}
}

// A store with too little room takes no image: the supervisor says so and does not serve. Nothing
// of the image is left, and the next start does it.
func TestNoRoomForImage(t *testing.T) {
	s := prepareSmall(t, someReserve)
	s.state.Fill(20 << 20)
	err := s.start()
	if err == nil {
		t.Fatal("it serves without an image")
	}
	for _, want := range []string{"import image shell: too little room in the image store " + s.dir + "/state/containerd: 1", "MiB are free, the image takes about", "make room there"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if free := s.state.Free(); free < 18<<20 {
		t.Errorf("%d MiB are free, there were 20", free>>20)
	}
	s.state.MakeRoom()
	s.state.FillInodes(700)
	if err := s.start(); err == nil || !strings.Contains(err.Error(), "inodes are free, the image has") {
		t.Errorf("without inodes: %v", err)
	}
	s.state.MakeRoom()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.well(t)
	eventually(t, 20*time.Second, s.empty)
}
