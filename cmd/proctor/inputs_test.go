package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// Inputs arrive whole, under their names, read-only, and nothing around them does.
func TestInputs(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	files := map[string][]byte{"plain": []byte("plain"), "a,b c": []byte("comma"), "colon:name": []byte("colon"), "empty": {}, "big": big}
	args := []string{"run", "--lang", "python"}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--input", path)
	}
	// Other owners, and no rights at all: the client could open them, so the program can.
	_ = os.Chown(filepath.Join(dir, "plain"), 12345, 54321)
	_ = os.Chown(filepath.Join(dir, "empty"), 4_000_000_000, 4_000_000_000)
	_ = os.Chmod(filepath.Join(dir, "colon:name"), 0)
	_ = os.WriteFile(filepath.Join(dir, "neighbour"), []byte("x"), 0o644)
	suid := filepath.Join(dir, "suid")
	_ = os.WriteFile(suid, []byte("#!/bin/sh\nid -u\n"), 0o755)
	_ = os.Chmod(suid, 0o6755)
	_ = os.Symlink(suid, filepath.Join(dir, "link"))
	args = append(args, "--input", suid, "--input", filepath.Join(dir, "link")+":linked", "--input", filepath.Join(dir, "plain")+":ünï 'quoted' \\", "-")
	r := s.proctor(t, `
import hashlib, os
for n in sorted(os.listdir("/inputs")):
    p = "/inputs/" + n
    st = os.lstat(p)
    print(n, hashlib.sha256(open(p, "rb").read()).hexdigest(), oct(st.st_mode), sep="|")
    for what, f in dict(write=lambda: open(p, "r+"), append=lambda: open(p, "a"), chmod=lambda: os.chmod(p, 0o777), truncate=lambda: os.truncate(p, 0),
            unlink=lambda: os.unlink(p), rename=lambda: os.rename(p, p + "2"), link=lambda: os.link(p, "/scratch/l"), run=lambda: os.execv(p, [p])).items():
        try: f(); print(n, what, "worked")
        except OSError: pass
for what, f in dict(new=lambda: open("/inputs/new", "w"), mkdir=lambda: os.mkdir("/inputs/d")).items():
    try: f(); print(what, "worked")
    except OSError: pass
`, args...)
	want := map[string][]byte{"suid": []byte("#!/bin/sh\nid -u\n"), "linked": []byte("#!/bin/sh\nid -u\n"), "ünï 'quoted' \\": []byte("plain")}
	for name, data := range files {
		want[name] = data
	}
	got := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if r.code != 0 || len(got) != len(want) {
		t.Fatalf("exit code %d, %d inputs, want %d:\n%s%s", r.code, len(got), len(want), r.stdout, r.stderr)
	}
	for _, line := range got {
		f := strings.Split(line, "|")
		data, ok := want[f[0]]
		if !ok || len(f) != 3 || f[1] != hexSum(data) {
			t.Errorf("input line %q", line)
		}
	}
	for name, data := range files {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(now, data) {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// The verdict and the end of the record say what the inputs were, and which did not stay so.
func TestInputsAreNoted(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	for _, name := range []string{"stays", "changes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := s.background(t, "echo >/scratch/x; sleep 2; cat /inputs/changes", "--input", filepath.Join(dir, "stays"), "--input", filepath.Join(dir, "changes"))
	if err := os.WriteFile(filepath.Join(dir, "changes"), []byte("CONTENT OF CHANGES"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := r.wait(t)
	want := []audit.InputFile{
		{Name: "stays", Bytes: 16, SHA256: hexSum([]byte("content of stays"))},
		{Name: "changes", Bytes: 18, SHA256: hexSum([]byte("content of changes")), Changed: true},
	}
	if diff := cmp.Diff(want, v.Inputs); diff != "" || v.Status != audit.StatusOK {
		t.Errorf("%s: -want +got:\n%s", v.Status, diff)
	}
	events := s.events(t, v.Run)
	if diff := cmp.Diff(want, events[len(events)-1].End.Inputs); diff != "" {
		t.Errorf("the record's end: -want +got:\n%s", diff)
	}
	shown := s.proctor(t, "", "audit", "show", v.Run).stdout
	for _, line := range []string{"\ninput    stays, sha256 " + want[0].SHA256 + "\n", "\ninput    changes, sha256 " + want[1].SHA256 + ", CHANGED while the run went on\n"} {
		if !strings.Contains(shown, line) {
			t.Errorf("audit show does not say %q", line)
		}
	}
}

// A directory is taken as the files beneath it, large ones without a copy; the box sees of none
// of them where it is on the host.
func TestDirectoryAsInput(t *testing.T) {
	s := root(t)
	dir := filepath.Join(testenv.Dir(t), "whose-and-what-for")
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	for name, data := range map[string][]byte{"a.csv": []byte("1,2\n"), "deep/er/large.bin": large, "deep/b\u00e4.txt": []byte("b")} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const code = `cd /inputs; find . -type f | LC_ALL=C sort; wc -c <data/deep/er/large.bin; touch data/x data/deep/x 2>/dev/null && echo written; grep -c whose-and-what /proc/self/mountinfo; true`
	v := s.verdict(t, "sh", code, "--input", dir+":data")
	if want := "./data/a.csv\n./data/deep/b\u00e4.txt\n./data/deep/er/large.bin\n2097152\n0\n"; string(v.Stdout.Head) != want || v.Status != audit.StatusOK {
		t.Errorf("%s, %q, want %q", v.Status, v.Stdout.Head, want)
	}
	want := []audit.InputFile{
		{Name: "data/a.csv", Bytes: 4, SHA256: hexSum([]byte("1,2\n"))},
		{Name: "data/deep/b\u00e4.txt", Bytes: 1, SHA256: hexSum([]byte("b"))},
		{Name: "data/deep/er/large.bin", Bytes: int64(len(large)), SHA256: hexSum(large)},
	}
	if diff := cmp.Diff(want, v.Inputs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if how := s.events(t, v.Run)[0].Start.Inputs; how[0].How != "copy" || how[2].How == "copy" {
		t.Errorf("they came by %+v", how)
	}
	// Its own name is the default; a dot has none, as cp has it.
	for arg, want := range map[string]string{dir: "whose-and-what-for\n", dir + "/": "whose-and-what-for\n", dir + "/.": "a.csv\ndeep\n"} {
		if v := s.verdict(t, "sh", "ls /inputs", "--input", arg); string(v.Stdout.Head) != want {
			t.Errorf("--input %s: %q", arg, v.Stdout.Head)
		}
	}
}

// A directory with anything but files and directories is refused whole, before anything runs.
func TestDirectoryAsInputRefused(t *testing.T) {
	s := root(t)
	for name, test := range map[string]struct {
		make func(dir string) error
		says string
	}{
		"link out": {func(d string) error { return os.Symlink("/etc/passwd", filepath.Join(d, "x")) }, "/x\": is a link"},
		"link in":  {func(d string) error { return os.Symlink("file", filepath.Join(d, "x")) }, "/x\": is a link"},
		"FIFO":     {func(d string) error { return unix.Mkfifo(filepath.Join(d, "x"), 0o600) }, "special file"},
		"empty":    {func(d string) error { return os.Remove(filepath.Join(d, "file")) }, "no file is in it"},
		"odd name": {func(d string) error { return os.WriteFile(filepath.Join(d, "a\nb"), nil, 0o600) }, "control"},
		"too many": {func(d string) error {
			for i := range 300 {
				if err := os.WriteFile(filepath.Join(d, strings.Repeat("x", i%200+1)+string(rune('a'+i/200))), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		}, "250"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testenv.Dir(t)
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := test.make(dir); err != nil {
				t.Fatal(err)
			}
			before := len(s.records(t))
			r := s.proctor(t, "true", "run", "--json", "--lang", "sh", "--input", dir+":d", "-")
			v := parseVerdict(t, r.stdout)
			if r.code != 125 || v.Run != "" || !strings.Contains(v.Reason, test.says) {
				t.Errorf("exit code %d, %s: %s, want it to say %q", r.code, v.Status, v.Reason, test.says)
			}
			if after := len(s.records(t)); after != before {
				t.Errorf("%d records were made", after-before)
			}
		})
	}
}
