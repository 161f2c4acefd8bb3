package audit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
)

func newStore(t *testing.T) (*audit.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state", "runs")
	s, err := audit.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func create(t *testing.T, s *audit.Store, run string) *audit.Record {
	t.Helper()
	r, err := s.Create(run, []byte("print('\xff')\x00"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestStoreRecord(t *testing.T) {
	s, dir := newStore(t)
	r := create(t, s, testRun)
	if got := readFile(t, filepath.Join(dir, testRun, "code")); string(got) != "print('\xff')\x00" {
		t.Errorf("code: %q", got)
	}
	if _, err := r.Request(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("request before there is one: %v", err)
	}
	if v, err := r.Verdict(); v != nil || err != nil {
		t.Errorf("verdict before there is one: %v, %v", v, err)
	}
	if has, err := r.HasVerdict(); has || err != nil {
		t.Errorf("has a verdict: %v, %v", has, err)
	}

	q := &audit.Request{Run: testRun, Time: noon, Caller: audit.Caller{UID: 1000, GID: 1001, PID: 12}, Language: "sh", Argv: []audit.Text{"\xff"}, Inputs: []audit.InputRef{{Name: "a\n", Bytes: 3, How: "copy", Why: "ENOSYS"}}}
	v := &audit.Verdict{Run: testRun, Status: audit.StatusOK, Stdout: audit.Output{Head: []byte("\xfe"), Total: 1}}
	if err := r.WriteRequest(q); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteVerdict(v); err != nil {
		t.Fatal(err)
	}
	v.Status = audit.StatusError
	if err := r.WriteVerdict(v); err != nil { // replaces
		t.Fatal(err)
	}

	found, err := s.Open(testRun)
	if err != nil {
		t.Fatal(err)
	}
	gotQ, err := found.Request()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(q, gotQ); diff != "" {
		t.Error(diff)
	}
	gotV, err := found.Verdict()
	if err != nil {
		t.Fatal(err)
	}
	if gotV.Status != audit.StatusError || string(gotV.Stdout.Head) != "\xfe" {
		t.Errorf("verdict %+v", gotV)
	}
	if has, err := found.HasVerdict(); !has || err != nil {
		t.Errorf("has a verdict: %v, %v", has, err)
	}

	// Nobody else may read what runs did, and no temporary file is left.
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if !d.IsDir() && d.Name() != "code" && d.Name() != "request.json" && d.Name() != "verdict.json" {
			t.Errorf("%s is left", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStoreRefusesRunTwice(t *testing.T) {
	s, dir := newStore(t)
	create(t, s, testRun)
	if _, err := s.Create(testRun, []byte("other")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	if got := readFile(t, filepath.Join(dir, testRun, "code")); strings.Contains(string(got), "other") {
		t.Errorf("the first one's code is %q", got)
	}
}

var hostileIDs = []string{
	"", ".", "..", "../..", "../../etc/passwd", "/", "/etc", "/etc/passwd", "a/b", "code", "\x00",
	testRun + "\x00", testRun + "\n", testRun + "/", testRun + "/code", "/" + testRun, "../" + testRun, testRun + "/../" + testRun,
	strings.ToUpper(testRun), testRun[1:], testRun + "0", " " + testRun, "%2e%2e", `..\..`, "０190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60",
	strings.Repeat("../", 1000), strings.Repeat("a", 1<<20), "\x1b[2J", "*", "????????-????-????-????-????????????",
}

func TestStoreHostileIDs(t *testing.T) {
	s, dir := newStore(t)
	create(t, s, testRun)
	outside := filepath.Join(filepath.Dir(dir), "code")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range hostileIDs {
		for what, f := range map[string]func() error{
			"open":   func() error { _, err := s.Open(id); return err },
			"create": func() error { _, err := s.Create(id, nil); return err },
			"check":  func() error { return audit.CheckRun(id) },
		} {
			err := f()
			if !errors.Is(err, audit.ErrNoRun) {
				t.Errorf("%s %.100q: %v", what, id, err)
				continue
			}
			if msg := err.Error(); len(msg) > 600 || audit.Text(msg).Printable() != strings.ReplaceAll(msg, `\`, `\\`) {
				t.Errorf("%s %.100q: the message is not fit to print: %.700q", what, id, msg)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("%d records", len(entries))
	}
	if _, err := s.Open("0190b0a4-7c1e-7a5e-8f6b-000000000000"); !errors.Is(err, audit.ErrNoRun) {
		t.Errorf("a run that never was: %v", err)
	}
	if err := audit.CheckRun(testRun); err != nil {
		t.Error(err)
	}
}

func TestStoreRunsNewestFirst(t *testing.T) {
	s, dir := newStore(t)
	var want []string
	for _, i := range []int{3, 1, 9, 2} {
		create(t, s, fmt.Sprintf("0190b0a4-7c1e-7a5e-8f6b-%012x", i))
	}
	for _, i := range []int{9, 3, 2, 1} {
		want = append(want, fmt.Sprintf("0190b0a4-7c1e-7a5e-8f6b-%012x", i))
	}
	for _, other := range []string{"lost+found", ".hidden", "zzz", strings.ToUpper(testRun)} {
		if err := os.Mkdir(filepath.Join(dir, other), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Runs()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestStoreCreateLeavesNothingOnError(t *testing.T) {
	s, dir := newStore(t)
	func() {
		defer limitFileSize(t, 10)()
		if _, err := s.Create(testRun, make([]byte, 1000)); err == nil {
			t.Error("no error past the limit")
		}
	}()
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%d records are left", len(entries))
	}
}

// Who reads while a verdict is replaced sees one whole or the other; who cannot be written
// leaves the old one.
func TestStoreWritesAtomically(t *testing.T) {
	s, dir := newStore(t)
	r := create(t, s, testRun)
	write := func(status audit.Status, n int) error {
		return r.WriteVerdict(&audit.Verdict{Run: testRun, Status: status, Stdout: audit.Output{Head: make([]byte, n), Total: int64(n)}})
	}
	if err := write(audit.StatusOK, 0); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if v, err := r.Verdict(); err != nil || v == nil {
				t.Errorf("read %v, %v", v, err)
				return
			}
		}
	})
	for i := range 12 {
		if err := write(audit.StatusExit, i*1000); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	reader.Wait()

	func() {
		defer limitFileSize(t, 1000)()
		if err := write(audit.StatusError, 100_000); err == nil {
			t.Error("no error past the limit")
		}
	}()
	if v, err := r.Verdict(); err != nil || v.Status != audit.StatusExit {
		t.Errorf("after a write that failed: %+v, %v", v, err)
	}
	// The third is the room for another try.
	if entries, _ := os.ReadDir(filepath.Join(dir, testRun)); len(entries) != 3 || entries[0].Name() != ".verdict" {
		t.Errorf("left are %v", entries)
	}
}

// Files on their way stand beside their place: TMPDIR is for others to see.
func TestStoreKeepsOutOfTemporaryDirectory(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(tmp, "none"))
	s, _ := newStore(t)
	r := create(t, s, testRun)
	shared := filepath.Join(tmp, "tmp")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", shared)
	before, err := os.Stat(shared)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteVerdict(&audit.Verdict{}); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(shared)
	if err != nil {
		t.Fatal(err)
	}
	if !after.ModTime().Equal(before.ModTime()) {
		t.Error("something was made there")
	}
}

func TestStoreUnreadable(t *testing.T) {
	s, _ := newStore(t)
	r := create(t, s, testRun)
	for name, read := range map[string]func() error{
		"verdict.json": func() error { _, err := r.Verdict(); return err },
		"request.json": func() error { _, err := r.Request(); return err },
	} {
		if err := os.WriteFile(r.Path(name), []byte(`{"run":`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := read(); err == nil || !strings.Contains(err.Error(), r.Path(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
