package container

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
	"proctor/testenv"
)

// large is content that is not small.
func large(content string) string { return content + strings.Repeat(".", smallInput) }

// inputFile makes a file and opens it.
func inputFile(t *testing.T, path, content string, uid int, mode os.FileMode) *os.File {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
	must(t, os.Chown(path, uid, uid))
	must(t, os.Chmod(path, mode))
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// mountTmpfs mounts one of a size for the test's time.
func mountTmpfs(t *testing.T, dir, size string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "size="+size))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// An input of any owner and mode is readable and not writable, and says how it got in. What the
// caller calls it elsewhere can't be seen.
func testAttachInput(t *testing.T, h *host) {
	b := h.newBox(t, "inputs")
	dir := filepath.Join(testenv.Dir(t), "secret-project")
	must(t, os.Mkdir(dir, 0o700))
	files := map[string]*os.File{
		"roots":    inputFile(t, filepath.Join(dir, "a"), large("roots"), 0, 0o600),
		"users":    inputFile(t, filepath.Join(dir, "b"), large("users"), 4711, 0o400),
		"open":     inputFile(t, filepath.Join(dir, "c"), large("open"), 4711, 0o777|os.ModeSetuid),
		"odd näme": inputFile(t, filepath.Join(dir, "d\n"), "odd", 0, 0o644),
		"-rf":      inputFile(t, filepath.Join(dir, "e"), "dash", 0, 0o644),
		"unread":   inputFile(t, filepath.Join(dir, "f"), large("unread"), 0, 0),
		"small":    inputFile(t, filepath.Join(dir, "h"), strings.Repeat("x", smallInput), 0, 0),
		"empty":    inputFile(t, filepath.Join(dir, "i"), "", 0, 0o600),
		"unlinked": inputFile(t, filepath.Join(dir, "j"), large("unlinked"), 0, 0o600),
		"d/e/f":    inputFile(t, filepath.Join(dir, "k"), large("below"), 0, 0o600),
		"d/e/g":    inputFile(t, filepath.Join(dir, "l"), "beside", 0, 0o600),
	}
	must(t, os.Remove(filepath.Join(dir, "j")))
	want := map[string]string{
		"roots": box.Mounted, "users": box.Mounted, "open": box.Mounted, "d/e/f": box.Mounted,
		"odd näme": box.Copied, "-rf": box.Copied, "small": box.Copied, "empty": box.Copied, "d/e/g": box.Copied,
		"unread": box.Copied, "unlinked": box.Copied,
	}
	for name, f := range files {
		a, err := b.AttachInput(t.Context(), name, f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// Where files are cloned, none has to be mounted or copied.
		if a.How != want[name] && a.How != box.Cloned || (a.How == box.Copied) != (a.Reason != "") {
			t.Errorf("%s: %+v, want it by %s", name, a, want[name])
		}
	}
	if _, err := b.AttachInput(t.Context(), "roots", files["users"]); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second of that name: %v", err)
	}

	_, out := h.sh(t, b, `cd /inputs
		find . -type f | while read -r f; do
			echo "$f: $(head -c 20 -- "$f" 2>&1 | tr '\n' ' ')"
			(echo x >> "./$f") 2>/dev/null && echo "$f can be written"
			chmod 666 "./$f" 2>/dev/null && echo "$f can be changed"
			mv "./$f" other 2>/dev/null && echo "$f can be moved"
			rm -f "./$f" 2>/dev/null && echo "$f can be removed"
			"./$f" 2>/dev/null && echo "$f can be run"
		done
		touch new d/new d/e/new 2>/dev/null && echo "new files can be made"
		grep -c secret-project /proc/self/mountinfo
		find . -type f | wc -l`)
	for name, f := range files {
		content := make([]byte, 20)
		n, _ := f.ReadAt(content, 0)
		if !strings.Contains(out, fmt.Sprintf("%s: %s\n", name, content[:n])) {
			t.Errorf("%s is not what it was", name)
		}
	}
	if strings.Contains(out, " can be ") || !strings.HasSuffix(out, fmt.Sprintf("\n0\n%d\n", len(files))) {
		t.Errorf("it wrote %s", out)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var st unix.Stat_t
		must(t, unix.Fstat(int(files[name].Fd()), &st))
		if data, err := os.ReadFile(files[name].Name()); name != "unlinked" && (err != nil || int64(len(data)) != st.Size) {
			t.Errorf("the caller's %s is %d bytes, %v", name, len(data), err)
		}
	}
	destroy(t, b)
	for name, f := range files {
		var st unix.Stat_t
		must(t, unix.Fstat(int(f.Fd()), &st))
		if name != "unlinked" && st.Nlink != 1 {
			t.Errorf("%s has %d names", name, st.Nlink)
		}
	}
	if entries, err := os.ReadDir(h.Staging); err != nil || len(entries) != 0 {
		t.Errorf("%d boxes' inputs are left, %v", len(entries), err)
	}
}

// What is on another file system is copied onto that of the inputs. Another mount of the same
// one, as a container's caller has, is none.
func testAttachForeign(t *testing.T, h *host) {
	b := h.newBox(t, "foreign")
	dir := testenv.Dir(t)
	mountTmpfs(t, filepath.Join(dir, "tmpfs"), "4m")
	other := filepath.Join(dir, "other")
	must(t, os.MkdirAll(other, 0o700))
	must(t, os.Mkdir(filepath.Join(dir, "same"), 0o700))
	must(t, unix.Mount(filepath.Join(dir, "same"), other, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(other, unix.MNT_DETACH)) })

	for name, want := range map[string]struct {
		f   *os.File
		how string
		why string
	}{
		"tmpfs":  {inputFile(t, filepath.Join(dir, "tmpfs", "a"), large("tmpfs"), 0, 0o600), box.Copied, "another file system"},
		"memory": {memory(t, large("memory")), box.Copied, "another file system"},
		"mount":  {inputFile(t, filepath.Join(other, "b"), large("mount"), 0, 0o600), box.Mounted, ""},
	} {
		a, err := b.AttachInput(t.Context(), name, want.f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if a.How != want.how && a.How != box.Cloned || !strings.Contains(a.Reason, want.why) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	_, out := h.sh(t, b, `cd /inputs; for f in *; do head -c 7 $f; stat -c ' %s' $f; done`)
	if want := fmt.Sprintf("memory. %d\nmount.. %d\ntmpfs.. %d\n", smallInput+6, smallInput+5, smallInput+5); out != want {
		t.Errorf("it wrote %q, want %q", out, want)
	}
}

func memory(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { f.Close() })
	_, err = f.WriteString(content)
	must(t, err)
	return f
}

// A copy that there is no room for is said before any of it is made, and leaves the box to be destroyed.
func testAttachInputTooLarge(t *testing.T, h *host) {
	staging := h.Staging
	defer func() { h.Staging, h.StagingReserve = staging, 0 }()
	h.Staging = filepath.Join(testenv.Dir(t), "small")
	mountTmpfs(t, h.Staging, "8m")
	h.StagingReserve = 3 << 20
	b := h.newBox(t, "large")
	for _, size := range []int64{1 << 50, 20 << 20, 6 << 20} {
		f := memory(t, "x")
		must(t, f.Truncate(size))
		if _, err := b.AttachInput(t.Context(), fmt.Sprintf("of %d", size), f); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), fmt.Sprintf(`"of %d"`, size)) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if used := usedBytes(t, h.Staging); used > 1<<20 {
			t.Errorf("for %d bytes that there is no room for, %d are gone", size, used)
		}
	}
	// What there is room for is had, and takes the room that the next one might.
	f := memory(t, "x")
	must(t, f.Truncate(4<<20))
	if how, err := b.AttachInput(t.Context(), "fits", f); err != nil || how.How != box.Copied {
		t.Errorf("got %+v, %v", how, err)
	}
	if _, err := b.AttachInput(t.Context(), "second", f); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a second one: %v", err)
	}
	destroy(t, b)
	if entries, err := os.ReadDir(h.Staging); err != nil || len(entries) != 0 {
		t.Errorf("%d boxes' inputs are left, %v", len(entries), err)
	}
}

func usedBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(dir, &fs))
	return int64(fs.Blocks-fs.Bfree) * fs.Bsize
}

// What a crash left of inputs is found by itself.
func testSweepInputs(t *testing.T, h *host) {
	dir := filepath.Join(h.Staging, "crashed")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "0"), nil, 0o400))
	ids, err := h.Sweep(t.Context())
	must(t, err)
	if !slices.Equal(ids, []string{"crashed"}) {
		t.Errorf("swept %q", ids)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
