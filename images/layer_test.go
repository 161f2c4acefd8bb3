package images_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/images"
)

// smallTree makes a tree with one of everything an image may hold.
func smallTree(t testing.TB) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, d := range []string{"etc", "usr/bin", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, root, "usr/bin/dash", "#!dash", 0o755)
	write(t, root, "usr/bin/su", "#!su", 0o755)
	write(t, root, "etc/passwd", "root:x:0:0::/root:/bin/sh\n", 0o644)
	for _, err := range []error{
		os.Chmod(filepath.Join(root, "usr/bin/su"), 0o755|fs.ModeSetuid|fs.ModeSetgid),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky),
		os.Symlink("dash", filepath.Join(root, "usr/bin/sh")),
		os.Symlink("/nowhere", filepath.Join(root, "etc/dangling")),
		os.Link(filepath.Join(root, "usr/bin/dash"), filepath.Join(root, "usr/bin/hard")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func write(t testing.TB, root, name, content string, mode fs.FileMode) {
	t.Helper()
	p := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestSameTreeSameDigest(t *testing.T) {
	_, first := images.PackTree(t, t.TempDir(), smallTree(t), "tool")
	again := smallTree(t)
	// Only dates before the image's own are kept.
	when := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(again, "etc/passwd"), when, when); err != nil {
		t.Fatal(err)
	}
	_, second := images.PackTree(t, t.TempDir(), again, "tool")
	if first.Digest != second.Digest || first.ArchiveSHA256 != second.ArchiveSHA256 {
		t.Errorf("first %s in %s, second %s in %s", first.Digest, first.ArchiveSHA256, second.Digest, second.ArchiveSHA256)
	}
	write(t, again, "etc/passwd", "other\n", 0o644)
	if _, third := images.PackTree(t, t.TempDir(), again, "tool"); third.Digest == first.Digest {
		t.Error("another tree has the same digest")
	}
}

func TestLayerContent(t *testing.T) {
	var buf bytes.Buffer
	stripped, err := images.LayerOf(&buf, smallTree(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(stripped) != 1 || stripped[0] != "/usr/bin/su" {
		t.Errorf("stripped %v", stripped)
	}
	got := map[string]*tar.Header{}
	var order []string
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode&0o6000 != 0 || len(h.PAXRecords) != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s: mode %o, records %v, owner %q %q", h.Name, h.Mode, h.PAXRecords, h.Uname, h.Gname)
		}
		got[h.Name] = h
		order = append(order, h.Name)
	}
	for name, want := range map[string]struct {
		typ  byte
		mode int64
		link string
	}{
		"etc/":         {tar.TypeDir, 0o755, ""},
		"tmp/":         {tar.TypeDir, 0o1777, ""},
		"usr/bin/dash": {tar.TypeReg, 0o755, ""},
		"usr/bin/hard": {tar.TypeLink, 0o755, "usr/bin/dash"},
		"usr/bin/sh":   {tar.TypeSymlink, 0o777, "dash"},
		"usr/bin/su":   {tar.TypeReg, 0o755, ""},
		"etc/dangling": {tar.TypeSymlink, 0o777, "/nowhere"},
	} {
		h := got[name]
		if h == nil {
			t.Errorf("no %s in %v", name, order)
			continue
		}
		if h.Typeflag != want.typ || h.Mode != want.mode || h.Linkname != want.link {
			t.Errorf("%s: type %c, mode %o, link %q", name, h.Typeflag, h.Mode, h.Linkname)
		}
	}
}

func TestLayerRefusesSpecialFiles(t *testing.T) {
	fifo := smallTree(t)
	if err := unix.Mkfifo(filepath.Join(fifo, "etc/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := images.LayerOf(io.Discard, fifo)
	wantError(t, err, "/etc/pipe", "FIFO", "remove it in the recipe")

	sock := smallTree(t)
	t.Chdir(sock) // socket addresses are short
	l, err := net.Listen("unix", "etc/sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = images.LayerOf(io.Discard, sock)
	wantError(t, err, "/etc/sock", "socket")
}
