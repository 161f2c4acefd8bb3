package main_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// A smallSupervisor has small disks of its own for its state and its run directory.
type smallSupervisor struct {
	*supervisor
	state, run *testenv.Disk
}

// Reserves: one as an operator may have it, and one that keeps no run from beginning.
const (
	someReserve = "reserve: {state: 24M, run: 8M, inodes: 500}\n"
	noReserve   = "reserve: {state: 1, run: 1, inodes: 1}\n"
)

// prepareSmall does not start it yet.
func prepareSmall(t *testing.T, config string) *smallSupervisor {
	t.Helper()
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	s := &smallSupervisor{
		state: testenv.NewDisk(t, filepath.Join(dir, "state"), 192<<20, 20_000),
		run:   testenv.NewDisk(t, filepath.Join(dir, "run"), 32<<20, 2000),
	}
	s.supervisor = describe(t, dir, pickImages(t, dir, "shell"))
	file := filepath.Join(dir, "proctor.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	s.flags = []string{"--config", file}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	s.showLog(t)
	return s
}

func newSmall(t *testing.T, config string) *smallSupervisor {
	t.Helper()
	s := prepareSmall(t, config)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.well(t)
	eventually(t, 20*time.Second, s.empty)
	return s
}

// well fails the test if a run is not.
func (s *smallSupervisor) well(t *testing.T) {
	t.Helper()
	v := s.verdict(t, "sh", "echo hi > /outputs/hi; echo well")
	if v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "well\n" || len(v.Outputs) != 1 || !v.Audit.Complete {
		t.Errorf("a run with room: %s: %s (%s); %+v", v.Status, v.Reason, v.Remedy, v.Audit)
	}
	s.checkRecorded(t, v)
}

// logged counts the lines of the log that hold a text.
func (s *supervisor) logged(t *testing.T, text string) int {
	t.Helper()
	data, err := os.ReadFile(s.logFile())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), text)
}

// checkRecorded fails the test if a run's record is not the one that its verdict names, whole
// lines with one end, or has something left that was on its way.
func (s *supervisor) checkRecorded(t *testing.T, v *audit.Verdict) []audit.Event {
	t.Helper()
	dir := s.recordDir(v.Run)
	data, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Error(err)
		return nil
	}
	if sum := sha256.Sum256(data); v.Audit.Seal != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("run %s: the seal %q is not the record's", v.Run, v.Audit.Seal)
	}
	var events []audit.Event
	ends := 0
	err = audit.ReadEvents(strings.NewReader(string(data)), func(e audit.Event) error {
		if events = append(events, e); e.Kind == audit.KindEnd {
			ends++
		}
		return nil
	})
	if err != nil || ends != 1 || events[len(events)-1].Kind != audit.KindEnd || data[len(data)-1] != '\n' {
		t.Errorf("run %s: the record has %d ends, %v, and ends %q", v.Run, ends, err, data[max(0, len(data)-200):])
	}
	if kept := s.keptVerdict(t, v.Run); kept.Status != v.Status || kept.Audit.Seal != v.Audit.Seal {
		t.Errorf("run %s: told %s, kept %s", v.Run, v.Status, kept.Status)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, ".*")); len(found) > 0 {
		t.Errorf("left in the record: %q", found)
	}
	return events
}

// readOnly mounts a directory over itself, for reading only, until what it returns is called.
func readOnly(t *testing.T, dir string) func() {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	undone := false
	undo := func() {
		if !undone {
			undone = true
			if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(undo)
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		undo()
		t.Fatal(err)
	}
	return undo
}

// Without room no run begins; each caller is told where and what to do, the log once, and when
// there is room runs go on.
func TestNoRoomBefore(t *testing.T) {
	s := newSmall(t, someReserve)
	flags := []string{"doctor", "--state-dir", s.dir + "/state", "--run-dir", s.dir + "/run", "--cgroup", s.group, "--lib-dir", s.bin, "--images", s.images}
	doctor := append(flags, s.flags...)
	if r := s.proctor(t, "", doctor...); !strings.Contains(r.stdout, "room for runs") || strings.Contains(r.stdout, "NO NEW RUNS") {
		t.Errorf("doctor, with room: %s%s", r.stdout, r.stderr)
	}
	for _, test := range []struct {
		name string
		fill func() (undo func())
		want []string // in the reason
		fix  string
	}{
		{"state bytes", func() func() { s.state.Fill(9<<20 + 512<<10); return s.state.MakeRoom }, []string{"state directory " + s.dir + "/state has 9 MiB free", "with at least 2"}, "make room there"},
		{"state inodes", func() func() { s.state.FillInodes(300); return s.state.MakeRoom }, []string{"state directory " + s.dir + "/state has 30", "inodes free, and new runs begin"}, "remove files there"},
		{"state full", func() func() { s.state.Fill(0); return s.state.MakeRoom }, []string{s.dir + "/state has 0 KiB free"}, "make room there"},
		{"records read-only", func() func() { return readOnly(t, s.dir+"/state/runs") }, []string{"directory of records " + s.dir + "/state/runs", "read-only"}, "mount it for writing"},
		{"run bytes", func() func() { s.run.Fill(1<<20 + 512<<10); return s.run.MakeRoom }, []string{"run directory " + s.dir + "/run has 1 MiB free", "and new runs begin"}, "make room there"},
		{"run inodes", func() func() { s.run.FillInodes(100); return s.run.MakeRoom }, []string{"run directory " + s.dir + "/run has 10", "inodes free, and new runs begin"}, "remove files there"},
		{"run read-only", func() func() { return readOnly(t, s.dir+"/run") }, []string{"run directory " + s.dir + "/run", "read-only"}, "mount it for writing"},
		{"both", func() func() {
			s.state.Fill(0)
			s.run.Fill(0)
			return func() { s.state.MakeRoom(); s.run.MakeRoom() }
		}, []string{s.dir + "/state has 0 KiB free", s.dir + "/run has 0 KiB free"}, "make room there"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, log := s.records(t), s.logged(t, "NO NEW RUNS")
			undo := test.fill()
			for range 5 {
				v := s.verdict(t, "sh", "echo hi")
				if v.Status != audit.StatusRefused || v.ExitCode != 125 || v.Run != "" || v.RetryAfter == 0 || !strings.Contains(v.Remedy, test.fix) {
					t.Errorf("%s, code %d, run %q, remedy %q, again in %d", v.Status, v.ExitCode, v.Run, v.Remedy, v.RetryAfter)
				}
				for _, want := range append(test.want, "no new runs") {
					if !strings.Contains(v.Reason, want) {
						t.Errorf("no %q in %q", want, v.Reason)
					}
				}
			}
			if r := s.proctor(t, "x", "run", "--lang", "sh", "-"); r.code != 125 || !strings.Contains(r.stderr, test.want[0]) {
				t.Errorf("code %d, stderr %q", r.code, r.stderr)
			}
			if r := s.proctor(t, "", "status"); r.code != 0 || !strings.HasPrefix(r.stdout, "NO NEW RUNS: the ") || !strings.Contains(r.stdout, test.want[0]) {
				t.Errorf("status: %s%s", r.stdout, r.stderr)
			}
			if r := s.proctor(t, "", doctor...); r.code != 1 || !strings.Contains(r.stdout, "NO NEW RUNS: the ") || !strings.Contains(r.stdout, test.want[0]) {
				t.Errorf("doctor: code %d: %s%s", r.code, r.stdout, r.stderr)
			}
			places := 1
			if test.name == "both" {
				places = 2
			}
			if n := s.logged(t, "NO NEW RUNS") - log; n != places {
				t.Errorf("logged %d times", n)
			}
			if after := s.records(t); len(after) != len(before) {
				t.Errorf("%d records, there were %d", len(after), len(before))
			}
			undo()
			s.well(t)
			if r := s.proctor(t, "", "status"); strings.Contains(r.stdout, "NO NEW RUNS") || !strings.Contains(r.stdout, "MiB free") {
				t.Errorf("status, with room again: %s", r.stdout)
			}
			eventually(t, 20*time.Second, s.empty)
		})
	}
}

// eventFlood makes events without end that can't be folded, not faster than they can be recorded.
const eventFlood = ": > /scratch/up; i=0; while :; do i=$((i+1)); true 2>/dev/null < /etc/none-of-this-name-is-there-$i; [ $((i%500)) = 0 ] && sleep 0.02; done"

// Case A5. The disk is full while runs go on: the one that floods it is ended, with a record that says
// what is missing; one that needs little more ends as it would; and the supervisor goes on.
func TestNoRoomDuring(t *testing.T) {
	s := newSmall(t, someReserve)
	for name, fill := range map[string]func(){"bytes": func() { s.state.Fill(0) }, "bytes and inodes": func() { s.state.Fill(0); s.state.FillInodes(0) }} {
		t.Run(name, func(t *testing.T) {
			quiet := s.background(t, "echo before; : > /scratch/up; sleep 3; echo after")
			loud := s.background(t, eventFlood, "--audit-events", "10000000")
			log := s.logged(t, "\n")
			fill()
			v := loud.wait(t)
			if v.Status != audit.StatusError || v.ExitCode != 125 || !strings.Contains(v.Reason, "want of room") || !strings.Contains(v.Reason, "incomplete") ||
				!strings.Contains(v.Remedy, "make room (state directory "+s.dir+"/state: 0 KiB free") {
				t.Errorf("%s, code %d: %s (%s)", v.Status, v.ExitCode, v.Reason, v.Remedy)
			}
			if v.Audit.Complete || v.Audit.Lost == 0 || v.Audit.LostByKind[audit.KindOpen] == 0 {
				t.Errorf("the verdict says of the record: %+v", v.Audit)
			}
			events := s.checkRecorded(t, v)
			var held uint64
			for _, e := range events {
				if e.Seq > 0 {
					held++
				}
			}
			if end := events[len(events)-1].End; end.Status != "error" || end.Lost == 0 || held+end.Lost != end.Events {
				t.Errorf("the record holds %d events and ends with %+v", held, end)
			}
			if r := s.proctor(t, "", "audit", "show", v.Run); r.code != 0 || !strings.Contains(r.stdout, "verdict  error") {
				t.Errorf("audit show: %d: %s", r.code, r.stderr)
			}
			if v := s.verdict(t, "sh", "true"); v.Status != audit.StatusRefused {
				t.Errorf("a new run, while it is full: %s: %s", v.Status, v.Reason)
			}
			v = quiet.wait(t)
			if v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "before\nafter\n" || !v.Audit.Complete {
				t.Errorf("the run that needs little: %s: %s; %+v", v.Status, v.Reason, v.Audit)
			}
			s.checkRecorded(t, v)
			if n := s.logged(t, "\n") - log; n > 15 {
				t.Errorf("%d lines are logged of it", n)
			}
			s.state.MakeRoom()
			s.well(t)
			eventually(t, 20*time.Second, s.empty)
		})
	}
}

// A run directory that becomes full keeps no run from ending, and nothing of it is left there.
func TestRunDirectoryFull(t *testing.T) {
	s := newSmall(t, someReserve)
	run := s.background(t, ": > /scratch/up; sleep 2; echo done > /outputs/x; echo done")
	s.run.Fill(0)
	s.run.FillInodes(0)
	v := run.wait(t)
	if v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "done\n" || len(v.Outputs) != 1 || !v.Audit.Complete {
		t.Errorf("%s: %s; %+v", v.Status, v.Reason, v.Audit)
	}
	s.checkRecorded(t, v)
	eventually(t, 20*time.Second, s.empty)
	s.run.MakeRoom()
	s.well(t)
	eventually(t, 20*time.Second, s.empty)
}

// Outputs for which there is no room are named, nothing of them is kept, and the run is no
// success.
func TestNoRoomForOutputs(t *testing.T) {
	s := newSmall(t, someReserve)
	for _, code := range []int{0, 3} {
		run := s.background(t, fmt.Sprintf("echo small > /outputs/a; head -c 30000000 /dev/zero > /outputs/b; echo small > /outputs/c; : > /scratch/up; sleep 2; echo done; exit %d", code))
		s.state.Fill(8 << 20)
		v := run.wait(t)
		status, exit := audit.StatusError, 125
		if code != 0 {
			status, exit = audit.StatusExit, code
		}
		if v.Status != status || v.ExitCode != exit || string(v.Stdout.Bytes()) != "done\n" ||
			!strings.Contains(v.Reason, fmt.Sprintf("ended with code %d; there was no room on disk to keep 2 of its outputs", code)) ||
			!strings.Contains(v.Remedy, "state directory "+s.dir+"/state: ") {
			t.Errorf("%s, code %d: %s (%s)", v.Status, v.ExitCode, v.Reason, v.Remedy)
		}
		if len(v.Outputs) != 1 || v.Outputs[0].Name != "a" || len(v.Skipped) != 2 || v.Skipped[0].Name != "b" || v.Skipped[1].Name != "c" || !strings.Contains(v.Skipped[1].Reason, "no room") {
			t.Errorf("outputs %+v, skipped %+v", v.Outputs, v.Skipped)
		}
		if !v.Audit.Complete {
			t.Errorf("the record: %+v", v.Audit)
		}
		if kept, _ := os.ReadDir(filepath.Join(s.recordDir(v.Run), "outputs")); len(kept) != 1 {
			t.Errorf("kept are %v", kept)
		}
		s.checkRecorded(t, v)
		s.state.MakeRoom()
		s.well(t)
		eventually(t, 20*time.Second, s.empty)
	}
}

// However little room there is when nothing is held back for it, a run is refused or ends with a
// reason, leaves nothing, and has a record that is whole.
func TestRoomForAPart(t *testing.T) {
	s := newSmall(t, noReserve)
	try := func(t *testing.T, d *testenv.Disk, fill func()) {
		t.Helper()
		fill()
		v := s.verdict(t, "sh", "echo hi; echo out > /outputs/x")
		t.Logf("%d bytes, %d inodes free: %s: %s (%s)", d.Free(), d.FreeInodes(), v.Status, v.Reason, v.Remedy)
		switch v.Status {
		case audit.StatusOK:
		case audit.StatusRefused:
			if v.Run != "" || !strings.Contains(v.Remedy, "room") && !strings.Contains(v.Remedy, "remove files") {
				t.Errorf("run %q is refused: %s (%s)", v.Run, v.Reason, v.Remedy)
			}
		case audit.StatusError:
			if !strings.Contains(v.Remedy, d.Dir) {
				t.Errorf("the remedy does not name %s: %s (%s)", d.Dir, v.Reason, v.Remedy)
			}
		default:
			t.Errorf("%s: %s", v.Status, v.Reason)
		}
		if v.Run != "" {
			s.checkRecorded(t, v)
		}
		eventually(t, 20*time.Second, s.empty)
		d.MakeRoom()
		for _, id := range s.records(t) {
			eventually(t, 10*time.Second, func() error {
				if !exists(filepath.Join(s.recordDir(id), "verdict.json")) {
					return errors.New("run " + id + " has no verdict")
				}
				return nil
			})
		}
	}
	for name, d := range map[string]*testenv.Disk{"state": s.state, "run": s.run} {
		t.Run(name, func(t *testing.T) {
			for _, left := range []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20} {
				try(t, d, func() { d.FillInodes(left) })
			}
			for _, left := range []int64{4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 110, 120, 150, 250, 350, 400} {
				try(t, d, func() { d.Fill(left << 10) })
			}
			s.well(t)
			eventually(t, 20*time.Second, s.empty)
		})
	}
}
