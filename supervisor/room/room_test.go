package room_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proctor/supervisor/room"
	"proctor/testenv"
)

func disk(t *testing.T) *testenv.Disk {
	t.Helper()
	testenv.Root(t)
	return testenv.NewDisk(t, filepath.Join(testenv.Dir(t), "disk"), 16<<20, 200)
}

func TestRooms(t *testing.T) {
	d := disk(t)
	sub := filepath.Join(d.Dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	gone := filepath.Join(d.Dir, "gone")
	r := room.New(slog.New(slog.NewTextHandler(&log, nil)),
		room.Place{Name: "state directory", Dir: d.Dir, Bytes: 4 << 20, Inodes: 80},
		room.Place{Name: "image store", Dir: sub, Bytes: 4 << 20, Inodes: 80},
	)
	// The first of several says less: from then on some more is wanted.
	check := func(want string) {
		t.Helper()
		for range 3 {
			err := r.Check()
			if want == "" {
				if err != nil {
					t.Errorf("with room: %v", err)
				}
				continue
			}
			full, ok := errors.AsType[*room.FullError](err)
			if !ok || !strings.HasPrefix(full.Problem, want) || full.Fix == "" {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if states := r.States(); len(states) != 1 || !strings.HasPrefix(states[0].Problem, want) || (states[0].Problem == "") != (want == "") || states[0].Free != d.Free() || states[0].FreeInodes != d.FreeInodes() {
			t.Errorf("%+v", states)
		}
	}
	check("")
	d.Fill(4 << 20)
	check("")
	d.Fill(4<<20 - 4096)
	check("the state directory " + d.Dir + " has 3 MiB free, and new runs begin")
	// A little more than the least is not enough to go on: it would come and go.
	d.MakeRoom()
	d.Fill(4<<20 + 4096)
	check("the state directory " + d.Dir + " has 4 MiB free, and new runs begin")
	d.MakeRoom()
	check("")
	d.FillInodes(79)
	check("the state directory " + d.Dir + " has 79 inodes free, and new runs begin")
	d.MakeRoom()
	check("")
	d.ReadOnly(true)
	check("the state directory " + d.Dir + " is on a file system that is mounted read-only")
	d.ReadOnly(false)
	check("")
	if n := strings.Count(log.String(), "NO NEW RUNS"); n != 3 {
		t.Errorf("logged %d times, of 3:\n%s", n, &log)
	}
	if n := strings.Count(log.String(), "there is room again"); n != 3 {
		t.Errorf("that there is room again is logged %d times, of 3:\n%s", n, &log)
	}

	r = room.New(slog.New(slog.DiscardHandler), room.Place{Name: "run directory", Dir: gone})
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "run directory "+gone+" can't be looked at: no such file") {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// Of two places on one file system the one with a problem of its own is named.
func TestOwnProblem(t *testing.T) {
	d := disk(t)
	sub := filepath.Join(d.Dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	r := room.New(slog.New(slog.DiscardHandler),
		room.Place{Name: "a", Dir: d.Dir, Bytes: 1}, room.Place{Name: "b", Dir: sub, Bytes: 32 << 20})
	states := r.States()
	if len(states) != 2 || states[0].Problem != "" || !strings.Contains(states[1].Problem, "the b "+sub+" has 1") {
		t.Errorf("%+v", states)
	}
	if said := r.Describe(); !strings.Contains(said, "a "+d.Dir+": 1") || !strings.Contains(said, "MiB free, 198 inodes; b "+sub) {
		t.Error(said)
	}
}

// Where a run can hardly start, that is said whatever the operator asks to be free.
func TestScarce(t *testing.T) {
	d := disk(t)
	r := room.New(slog.New(slog.DiscardHandler), room.Place{Name: "run directory", Dir: d.Dir, Bytes: 1, Inodes: 1})
	is := func(want string) {
		t.Helper()
		if got := r.Scarce(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	is("")
	d.Fill(1 << 20)
	is("")
	d.Fill(1<<20 - 4096)
	is(fmt.Sprintf("run directory %s: 1020 KiB free, %d inodes", d.Dir, d.FreeInodes()))
	d.MakeRoom()
	is("")
	d.FillInodes(64)
	is("")
	d.FillInodes(63)
	is(fmt.Sprintf("run directory %s: %s free, 63 inodes", d.Dir, room.Size(d.Free())))
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 KiB", 5 << 10: "5 KiB", 3<<20 - 1: "2 MiB", 3 << 29: "1.5 GiB", 99 << 30: "99 GiB"} {
		if got := room.Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
