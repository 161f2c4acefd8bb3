package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/netpolicy/wire"
	"proctor/supervisor/room"
	"proctor/testenv"
)

// onDisk is a supervisor with its state on a small disk.
func onDisk(t *testing.T, log *bytes.Buffer) (*Supervisor, *testenv.Disk) {
	t.Helper()
	testenv.Root(t)
	d := testenv.NewDisk(t, filepath.Join(testenv.Dir(t), "disk"), 4<<20, 500)
	return newSupervisor(t, func(o *Options) {
		o.StateDir = d.Dir
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.Places = []room.Place{{Name: "state directory", Dir: d.Dir, Bytes: 1 << 20, Inodes: 50}}
	}), d
}

func eventually(t *testing.T, check func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within ten seconds")
		}
	}
}

// A verdict that finds no room is abridged, and the caller is told; one that can't be written at
// all is when there is room.
func TestVerdictWithoutRoom(t *testing.T) {
	var log bytes.Buffer
	s, d := onDisk(t, &log)
	must(t, s.Start(t.Context()))
	for name, test := range map[string]struct {
		run  string
		fill func(*audit.Record)
		undo func()
		late bool
	}{
		"full":      {"0190b0a4-7c1e-7a5e-8f6b-000000000001", func(*audit.Record) { d.Fill(0) }, d.MakeRoom, false},
		"read-only": {"0190b0a4-7c1e-7a5e-8f6b-000000000002", func(*audit.Record) { d.ReadOnly(true) }, func() { d.ReadOnly(false) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			rec, err := s.Records().Create(test.run, []byte("x"))
			must(t, err)
			test.fill(rec)
			v := &audit.Verdict{Run: test.run, Status: audit.StatusOK, Reason: "fine", Stdout: audit.Output{Head: make([]byte, 1<<20), Total: 1 << 20}}
			s.writeVerdict(&run{id: test.run, record: rec, log: s.log}, v)
			if v.Status != audit.StatusError || v.ExitCode != CodeNotRun || !strings.Contains(v.Reason, "the verdict could not be recorded: ") ||
				!strings.Contains(v.Remedy, "state directory "+d.Dir+": ") || len(v.Stdout.Head) != 1<<20 {
				t.Errorf("told %s, %s (%s)", v.Status, v.Reason, v.Remedy)
			}
			has, err := rec.HasVerdict()
			if err != nil || has == test.late {
				t.Errorf("has a verdict: %v, %v", has, err)
			}
			test.undo()
			eventually(t, func() bool { has, _ := rec.HasVerdict(); return has })
			kept, err := rec.Verdict()
			must(t, err)
			if kept.Status != audit.StatusError || kept.Reason != v.Reason || kept.Stdout.Total != 1<<20 || len(kept.Stdout.Head) != 0 {
				t.Errorf("kept %+v", kept)
			}
		})
	}
	s.Stop(t.Context())
	if n := strings.Count(log.String(), "verdict not recorded whole"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}
}

// What an earlier supervisor left is sealed later where there is no room for that at the start.
func TestStartOnFullDisk(t *testing.T) {
	var log bytes.Buffer
	s, d := onDisk(t, &log)
	var runs []*audit.Record
	for i := range 20 {
		rec, err := s.Records().Create(fmt.Sprintf("0190b0a4-7c1e-7a5e-8f6b-0000000000%02d", i), []byte("x"))
		must(t, err)
		must(t, os.WriteFile(rec.Path("events.jsonl"), bytes.Repeat([]byte("{}\n"), 5000), 0o600))
		runs = append(runs, rec)
	}
	d.Fill(0)
	d.FillInodes(0)
	must(t, s.Start(t.Context()))
	for _, rec := range runs {
		if has, err := rec.HasVerdict(); has || err != nil {
			t.Errorf("%s has a verdict: %v, %v", rec.Run, has, err)
		}
	}
	d.MakeRoom()
	for _, rec := range runs {
		eventually(t, func() bool { has, _ := rec.HasVerdict(); return has })
		v, err := rec.Verdict()
		must(t, err)
		if v.Status != audit.StatusInterrupted || v.Audit.Seal == "" {
			t.Errorf("%+v", v)
		}
		if left, _ := filepath.Glob(rec.Path(".*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
	s.Stop(t.Context())
	for text, want := range map[string]int{"runs=20": 1, "NO NEW RUNS": 1, "now that there is room": 20} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, &log)
		}
	}
}

func TestCollectWithoutRoom(t *testing.T) {
	var log bytes.Buffer
	_, d := onDisk(t, &log)
	from, to := t.TempDir(), filepath.Join(d.Dir, "outputs")
	for name, n := range map[string]int{"a": 1000, "b": 2 << 20, "c": 1000} {
		must(t, os.WriteFile(filepath.Join(from, name), make([]byte, n), 0o600))
	}
	d.Fill(1 << 20)
	c, err := collectOutputs(from, to, collectLimits{name: 100, files: 9, entries: 9, depth: 9, fileBytes: 8 << 20, allBytes: 8 << 20})
	must(t, err)
	if len(c.files) != 1 || c.files[0].Name != "a" || c.unkept != 2 || !audit.IsFull(c.full) || len(c.skipped) != 2 || !strings.Contains(c.skipped[1].Reason, "no room") {
		t.Errorf("files %+v, unkept %d, %v, skipped %+v", c.files, c.unkept, c.full, c.skipped)
	}
	if kept, _ := os.ReadDir(to); len(kept) != 1 {
		t.Errorf("kept %v", kept)
	}
}

// What the gateway tells and can't be written ends the run, too, and is counted.
func TestToldWithoutRoom(t *testing.T) {
	var log bytes.Buffer
	s, d := onDisk(t, &log)
	j, err := audit.CreateJournal(filepath.Join(d.Dir, "events.jsonl"))
	must(t, err)
	defer j.Close()
	r := &run{
		supervisor: s, id: oldRun, log: s.log, journal: j, tally: newTally(), limits: ceiling, lineage: lineage{},
		mistold: make(chan error, 1), untold: map[audit.Kind]uint64{},
	}
	d.Fill(0)
	told := wire.Report{Scrub: &audit.Scrub{Credential: strings.Repeat("x", 10_000), Name: "x", Where: "body", Count: 1}}
	n := 0
	for len(r.mistold) == 0 && n < 100 {
		r.report(told)
		n++
	}
	r.report(told)
	if err := <-r.mistold; !audit.IsFull(err) {
		t.Errorf("after %d reports: %v", n, err)
	}
	if j.Held() != n-1 || r.untold[audit.KindScrub] != 2 || j.Err() == nil {
		t.Errorf("%d of %d are held, %d are missing", j.Held(), n+1, r.untold[audit.KindScrub])
	}
}

func TestNoRoom(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errors.New("x"): false, unix.EIO: false, unix.ENOSPC: true, fmt.Errorf("x: %w", unix.EROFS): true,
		errors.New("create box: mkdir /x: no space left on device"): true, // as containerd says it
	} {
		if got := noRoom(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
