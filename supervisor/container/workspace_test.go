package container

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
	"proctor/testenv"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var resolver = netip.MustParseAddr("192.0.2.53")

func TestWorkspaceRoot(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := filepath.Join(testenv.Dir(t), "w")
	// Whatever the supervisor was started with, the code must be able to read.
	defer unix.Umask(unix.Umask(0o077))
	limits := box.Limits{ScratchBytes: 1 << 20, ScratchInodes: 100}
	const base = 1 << 30
	w, err := newWorkspace(dir, limits, base, 2, resolver)
	must(t, err)
	defer w.close()

	for name, want := range map[string]struct {
		mode  os.FileMode
		owned bool
	}{
		"": {os.ModeDir | 0o755, false}, "ctl": {os.ModeDir | 0o755, false}, "code": {os.ModeDir | 0o755, false}, "inputs": {os.ModeDir | 0o755, false},
		"etc": {os.ModeDir | 0o755, false}, "sys": {os.ModeDir | 0o755, false},
		"outputs": {os.ModeDir | 0o755, true}, "scratch": {os.ModeDir | 0o755, true},
		"tmp": {os.ModeDir | os.ModeSticky | 0o777, true}, "shm": {os.ModeDir | os.ModeSticky | 0o777, true},
		"etc/hosts": {0o444, false}, "etc/resolv.conf": {0o444, false},
		"sys/devices": {os.ModeDir | 0o755, false}, "sys/devices/system/cpu": {os.ModeDir | 0o755, false}, "sys/devices/system/cpu/online": {0o444, false},
	} {
		info, err := os.Lstat(w.path(name))
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(w.path(name), &st))
		uid, gid := uint32(0), uint32(0)
		if want.owned {
			uid, gid = base+codeUID, base+codeGID
		}
		if info.Mode() != want.mode || st.Uid != uid || st.Gid != gid {
			t.Errorf("%q: %v of %d:%d, want %v of %d:%d", name, info.Mode(), st.Uid, st.Gid, want.mode, uid, gid)
		}
	}
	for name, want := range map[string]string{
		"etc/hostname": "box\n", "etc/resolv.conf": "nameserver 192.0.2.53\n", "etc/machine-id": strings.Repeat("0", 32) + "\n",
		"sys/devices/system/cpu/online": "0-1\n", "sys/devices/system/cpu/possible": "0-1\n",
	} {
		data, err := os.ReadFile(w.path(name))
		must(t, err)
		if !strings.HasPrefix(string(data), want) {
			t.Errorf("%s: %q", name, data)
		}
	}

	must(t, w.put("code/main.py", []byte("x")))
	if err := w.put("code/main.py", nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("put over what is there: %v", err)
	}
	must(t, os.Symlink("/etc/passwd", w.path("scratch", "link")))
	if err := w.put("scratch/link", []byte("x")); err == nil {
		t.Error("put through a link")
	}

	var fsys unix.Statfs_t
	must(t, unix.Statfs(dir, &fsys))
	if total := int64(fsys.Blocks) * fsys.Bsize; total != 1<<20 {
		t.Errorf("%d bytes", total)
	}
	if fsys.Files != 100+fixedInodes {
		t.Errorf("%d inodes", fsys.Files)
	}
	if fsys.Flags&unix.ST_NOSUID == 0 || fsys.Flags&unix.ST_NODEV == 0 {
		t.Errorf("flags %#x", fsys.Flags)
	}
	// One limit for all of it, and full is full.
	err = os.WriteFile(w.path("scratch", "fill"), make([]byte, 2<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than there is room for: %v", err)
	}
	if err := os.WriteFile(w.path("outputs", "more"), make([]byte, 8192), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("in another directory: %v", err)
	}
	must(t, os.Remove(w.path("scratch", "fill")))
	var n int
	for n = 0; err == nil || n == 0; n++ {
		var f *os.File
		if f, err = os.CreateTemp(w.path("tmp"), ""); err == nil {
			f.Close()
		}
	}
	if !errors.Is(err, unix.ENOSPC) || n < 100 || n > 100+fixedInodes {
		t.Errorf("after %d files: %v", n, err)
	}

	if _, err := newWorkspace(dir, limits, base, 1, resolver); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second in its place: %v", err)
	}
	if _, err := os.Stat(w.path("etc/hosts")); err != nil {
		t.Errorf("the first is gone for it: %v", err)
	}
	for range 2 {
		must(t, w.close())
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

func TestWorkspaceHalfMadeRoot(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	parent := testenv.Dir(t)
	dir := filepath.Join(parent, "w")
	// No room for the directories.
	if _, err := newWorkspace(dir, box.Limits{ScratchBytes: 4096, ScratchInodes: 1}, 1<<30, 1, resolver); err == nil {
		t.Error("made in one page")
	}
	// No file system like this.
	if _, err := newWorkspace(dir, box.Limits{ScratchBytes: -1, ScratchInodes: -100}, 1<<30, 1, resolver); err == nil {
		t.Error("made in less than nothing")
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 0 {
		t.Errorf("%d are left, %v", len(entries), err)
	}
	// What a crash leaves: the directory alone.
	must(t, os.Mkdir(dir, 0o700))
	must(t, removeWorkspace(dir))
	// Something of somebody else's stays.
	must(t, os.MkdirAll(filepath.Join(dir, "theirs"), 0o700))
	if err := removeWorkspace(dir); err == nil {
		t.Error("removed with what is in it")
	}
	must(t, os.RemoveAll(dir))
}

func TestCopyInput(t *testing.T) {
	dir := t.TempDir()
	from, err := os.Create(filepath.Join(dir, "from"))
	must(t, err)
	defer from.Close()
	content := strings.Repeat("0123456789", 1_000_000) // more than one chunk
	_, err = from.WriteString(content)
	must(t, err)
	// Where the caller has read to is its own affair: it is neither followed nor moved.
	_, err = from.Seek(5, 0)
	must(t, err)
	to, err := os.Create(filepath.Join(dir, "to"))
	must(t, err)
	defer to.Close()
	must(t, copyInput(t.Context(), to, from))
	data, err := os.ReadFile(to.Name())
	must(t, err)
	if string(data) != content {
		t.Errorf("%d bytes, want %d", len(data), len(content))
	}
	if at, err := from.Seek(0, 1); at != 5 || err != nil {
		t.Errorf("the caller's position is %d, %v", at, err)
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := copyInput(canceled, to, from); !errors.Is(err, context.Canceled) {
		t.Errorf("with nobody waiting: %v", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	if err := copyInput(t.Context(), full, from); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("without room: %v", err)
	}
}
