package images_test

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/images"
)

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func TestFinishLayout(t *testing.T) {
	dir := smallTree(t)
	write(t, dir, "etc/apt/sources.list", "deb http://mirror.example x main", 0o644)
	write(t, dir, "var/log/dpkg.log", "x", 0o644)
	write(t, dir, "usr/share/doc/a/copyright", "c", 0o644)
	write(t, dir, "usr/share/doc/a/README", "r", 0o644)
	write(t, dir, "usr/share/man/man1/a.1", "m", 0o644)
	write(t, dir, "etc/hostname", "builder", 0o644)
	// A link in a package must not lead a write out of the tree.
	victim := filepath.Join(t.TempDir(), "victim")
	write(t, filepath.Dir(victim), "victim", "untouched", 0o644)
	if err := os.Symlink(victim, filepath.Join(dir, "etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	root := openRoot(t, dir)
	for range 2 { // doing it again changes nothing
		if err := images.FinishLayout(root); err != nil {
			t.Fatal(err)
		}
	}
	for _, gone := range []string{"etc/apt/sources.list", "var/log/dpkg.log", "usr/share/doc/a/README", "usr/share/man"} {
		if _, err := root.Lstat(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	for p, want := range map[string]fs.FileMode{
		"inputs": fs.ModeDir | 0o755, "outputs": fs.ModeDir | 0o755, "scratch": fs.ModeDir | 0o755, "code": fs.ModeDir | 0o755,
		"tmp": fs.ModeDir | fs.ModeSticky | 0o777, "proc": fs.ModeDir | 0o555, "dev": fs.ModeDir | 0o755, "sys": fs.ModeDir | 0o555,
		"run": fs.ModeDir | 0o755, ".proctor/ctl": fs.ModeDir | 0o755, ".proctor/init": 0o755, "etc/resolv.conf": 0o644,
		"etc/hosts": 0o644, "etc/hostname": 0o644, "etc/machine-id": 0o444, "usr/share/doc/a/copyright": 0o644,
	} {
		info, err := root.Lstat(p)
		if err != nil {
			t.Error(err)
		} else if info.Mode() != want {
			t.Errorf("%s has mode %s, want %s", p, info.Mode(), want)
		}
	}
	passwd, err := root.ReadFile("etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(passwd), "agent:x:1000:1000:agent:/scratch:/bin/sh\n"); n != 1 {
		t.Errorf("agent %d times in %q", n, passwd)
	}
	if got, _ := os.ReadFile(victim); string(got) != "untouched" {
		t.Errorf("wrote through a link out of the tree: %q", got)
	}
}

func TestRemoveMatches(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"a/x/tests/t", "a/x/y/tests/t", "a/x/y/keep", "a/tests/t", "b/tests/t"} {
		write(t, dir, f, "", 0o644)
	}
	if err := images.RemoveMatches(openRoot(t, dir), []string{"/a/x/**/tests", "/b/*"}); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, strings.TrimPrefix(p, dir+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a/tests/t", "a/x/y/keep"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

func TestUncheckBytecode(t *testing.T) {
	dir := t.TempDir()
	pyc := func(flags uint32, rest string) string {
		return "magi" + string(binary.LittleEndian.AppendUint32(nil, flags)) + rest
	}
	write(t, dir, "checked.pyc", pyc(3, "01234567code"), 0o644)
	write(t, dir, "dated.pyc", pyc(0, "01234567code"), 0o644)
	write(t, dir, "other.py", "x", 0o644)
	root := openRoot(t, dir)
	if err := images.UncheckBytecode(root); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range []string{"checked.pyc", "dated.pyc", "other.py"} {
		data, err := root.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		got[n] = string(data)
	}
	want := map[string]string{
		"checked.pyc": pyc(1, "01234567code"),
		"dated.pyc":   pyc(1, "\x00\x00\x00\x00\x00\x00\x00\x00code"),
		"other.py":    "x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	write(t, dir, "short.pyc", "x", 0o644)
	wantError(t, images.UncheckBytecode(root), "short.pyc", "not compiled Python")
}

func TestSettlePackages(t *testing.T) {
	const status = `Package: dash
Status: install ok installed
Version: 0.5.12-2
Description: shell
 with more
 .
 lines

Package: gone
Status: deinstall ok config-files
Version: 1

Package: proctor-without
Status: install ok installed
Version: 1

`
	dir := t.TempDir()
	write(t, dir, "var/lib/dpkg/status", status, 0o644)
	write(t, dir, "var/lib/dpkg/info/proctor-without.list", "/.\n", 0o644)
	root := openRoot(t, dir)
	_, err := images.SettlePackages(root, []string{"dash"})
	wantError(t, err, "dash", "0.5.12-2", "without")
	pkgs, err := images.SettlePackages(root, []string{"g++"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"dash": "0.5.12-2"}, pkgs); diff != "" {
		t.Error(diff)
	}
	left, err := root.ReadFile("var/lib/dpkg/status")
	if err != nil {
		t.Fatal(err)
	}
	if want := status[:strings.Index(status, "Package: proctor-without")]; string(left) != want {
		t.Errorf("database is %q, want %q", left, want)
	}
}
