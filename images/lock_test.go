package images_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/images"
)

func TestLockRoundTrip(t *testing.T) {
	dir := t.TempDir()
	_, a := images.PackTree(t, dir, smallTree(t), "alpha")
	lock, b := images.PackTree(t, dir, smallTree(t), "beta")
	read, err := images.LoadLock(filepath.Join(dir, images.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]images.Image{a, b}, read.All()); diff != "" {
		t.Errorf("read lock differs (-want +got):\n%s", diff)
	}
	first, err := lock.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	second, err := read.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("not the same bytes:\n%s\n%s", first, second)
	}
	got, err := read.Resolve("beta")
	if err != nil {
		t.Fatal(err)
	}
	if got.Ref() != "proctor.local/beta@"+b.Digest.String() {
		t.Errorf("ref is %s", got.Ref())
	}
	if got := read.ArchivePath(got); got != filepath.Join(dir, "beta.oci.tar") {
		t.Errorf("archive is %s", got)
	}
}

func TestResolveRefuses(t *testing.T) {
	lock, _ := images.PackTree(t, t.TempDir(), smallTree(t), "alpha")
	for name, parts := range map[string][]string{
		"":                          {"empty"},
		"beta":                      {`"beta"`, "locked: alpha", "proctor images build beta"},
		"Alpha":                     {`"Alpha"`, "lower-case"},
		"-alpha":                    {`"-alpha"`},
		"alpha:latest":              {"tag", `bare name "alpha"`},
		"alpha@sha256:00":           {"digest", `bare name "alpha"`},
		"registry.example/alpha":    {"registry reference"},
		"../alpha":                  {"path"},
		"al pha":                    {`"al pha"`},
		"alpha\n":                   {`"alpha\n"`},
		"ålpha":                     {"lower-case letters"},
		strings.Repeat("a", 65):     {"at most 64"},
		strings.Repeat("a", 100000): {"aaa…"},
	} {
		_, err := lock.Resolve(name)
		if len(name) > 40 {
			name = name[:40] + "…"
		}
		t.Run(name, func(t *testing.T) { wantError(t, err, parts...) })
	}
	_, err := lock.Resolve("beta")
	if !errors.Is(err, images.ErrUnknownImage) {
		t.Errorf("%v is not ErrUnknownImage", err)
	}
}

func TestLoadLockRefuses(t *testing.T) {
	dir := t.TempDir()
	lock, img := images.PackTree(t, dir, smallTree(t), "alpha")
	data, err := lock.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	swap := func(old, new string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("no %q in\n%s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	entry := good[strings.Index(good, "  alpha:"):]
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"empty":           {"", []string{"is empty"}},
		"no version":      {swap("version: 1\n", ""), []string{"version is 0"}},
		"later version":   {swap("version: 1", "version: 2"), []string{"version is 2", "build the images again"}},
		"unknown key":     {good + "x: 1\n", []string{"unknown field"}},
		"name twice":      {good + entry, []string{"alpha", "keep one"}},
		"bad name":        {swap("  alpha:", "  Alpha:"), []string{`"Alpha"`}},
		"reference":       {swap("  alpha:", "  a/b:"), []string{"registry reference"}},
		"short digest":    {swap(img.Digest.String(), "sha256:abc"), []string{"images.lock:5", `"sha256:abc"`}},
		"other algorithm": {swap(img.Digest.String(), "sha512:"+strings.Repeat("0", 128)), []string{"use sha256"}},
		"no digest":       {swap(img.Digest.String(), `""`), []string{`digest ""`}},
		"archive path":    {swap("alpha.oci.tar", "../alpha.oci.tar"), []string{"not a plain file name"}},
		"no archive":      {swap("alpha.oci.tar", `""`), []string{"not a plain file name"}},
		"negative size":   {swap("root_files: ", "root_files: -"), []string{"sizes"}},
		"interpreter":     {swap("- /bin/sh", "- sh"), []string{`"sh"`, "absolute"}},
		"environment":     {swap("LANG:", "L NG:"), []string{"L NG"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, "images.lock")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := images.LoadLock(file)
			wantError(t, err, append(tc.want, file)...)
		})
	}
	_, err = images.LoadLock(filepath.Join(dir, "none.lock"))
	wantError(t, err, "none.lock", "proctor images build")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not ErrNotExist", err)
	}
}
