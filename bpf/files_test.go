package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// step is one open: what it is for, and what it must return.
type step struct {
	name string
	want error // nil when it must succeed
	open func() (int, error)
}

func runSteps(steps []step) error {
	for _, s := range steps {
		fd, err := s.open()
		if !errors.Is(err, s.want) {
			return fmt.Errorf("%s: %w, want %v", s.name, err, s.want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
	return nil
}

// actFiles opens files in a directory in every way there is.
func actFiles(args []string) error {
	dir := args[0]
	if err := os.Chdir(dir); err != nil {
		return err
	}
	dirfd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	handle, err := unix.Open("handle", unix.O_PATH, 0)
	if err != nil {
		return err
	}
	gone, err := unix.Open("gone", unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Unlink("gone"); err != nil {
		return err
	}
	memfd, err := unix.MemfdCreate("hidden", 0)
	if err != nil {
		return err
	}
	pipe := make([]int, 2)
	if err := unix.Pipe(pipe); err != nil {
		return err
	}
	again := func(fd, flags int) func() (int, error) {
		return func() (int, error) { return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0) }
	}
	open := func(path string, flags int) func() (int, error) {
		return func() (int, error) { return unix.Open(path, flags, 0o600) }
	}
	steps := []step{
		{"absolute", nil, open(dir+"/absolute", unix.O_RDONLY)},
		{"relative", nil, open("sub/../relative", unix.O_WRONLY)},
		{"symlink", nil, open("link", unix.O_RDWR)},
		{"dirfd", nil, func() (int, error) { return unix.Openat(dirfd, "sub/by-dirfd", unix.O_RDONLY, 0) }},
		{"openat2", nil, func() (int, error) {
			return unix.Openat2(dirfd, "by-openat2", &unix.OpenHow{
				Flags: unix.O_CREAT | unix.O_WRONLY | unix.O_APPEND, Mode: 0o600, Resolve: unix.RESOLVE_NO_SYMLINKS})
		}},
		{"create", nil, open("created", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)},
		{"truncate", nil, open("truncated", unix.O_TRUNC|unix.O_WRONLY)},
		{"path alone", nil, open("kept", unix.O_PATH|unix.O_CREAT|unix.O_EXCL|unix.O_TRUNC)},
		{"directory", nil, open("sub", unix.O_DIRECTORY)},
		{"root", nil, open("/", unix.O_PATH)},
		{"temporary", nil, open("sub", unix.O_TMPFILE|unix.O_RDWR)},
		{"reopened", nil, again(handle, unix.O_RDWR)},
		{"deleted", nil, again(gone, unix.O_RDONLY)},
		{"memfd", nil, again(memfd, unix.O_RDWR)},
		{"pipe", nil, again(pipe[1], unix.O_WRONLY)},
		{"namespace", nil, open("/proc/self/ns/net", unix.O_RDONLY)},
		{"bytes", nil, open("not\xffutf8\n\x1b[31m", unix.O_RDONLY)},
		{"missing", unix.ENOENT, open("sub/../missing", unix.O_RDONLY)},
		{"exists", unix.EEXIST, open("absolute", unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)},
		{"not a directory", unix.ENOTDIR, open("absolute/below", unix.O_RDONLY)},
		{"loop", unix.ELOOP, open("loop", unix.O_RDONLY)},
		{"in a root", unix.ENOENT, func() (int, error) {
			return unix.Openat2(dirfd, "/nothing", &unix.OpenHow{Resolve: unix.RESOLVE_IN_ROOT})
		}},
		{"bad address", unix.EFAULT, func() (int, error) {
			fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), 16, unix.O_RDONLY, 0, 0, 0)
			if errno != 0 {
				return -1, errno
			}
			return int(fd), nil
		}},
	}
	return runSteps(append(steps, legacySteps()...))
}

// makeFiles lays out what actFiles opens.
func makeFiles(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"absolute", "relative", "target", "sub/by-dirfd", "truncated", "handle", "kept",
		"not\xffutf8\n\x1b[31m", "by-open"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "target", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpens(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	makeFiles(t, dir)
	b := h.box(t, "files", 0)
	b.act(t, "files", dir)
	events := b.record(t)

	got := map[audit.Text][]audit.Open{}
	for _, e := range events {
		if e.Kind == audit.KindOpen {
			got[e.Open.Path] = append(got[e.Open.Path], *e.Open)
		}
	}
	in := func(name string) audit.Text { return audit.Text(dir + "/" + name) }
	want := []audit.Open{
		{Path: in("absolute"), Access: audit.AccessRead},
		{Path: in("relative"), Access: audit.AccessWrite},
		{Path: in("target"), Access: audit.AccessBoth},
		{Path: in("sub/by-dirfd"), Access: audit.AccessRead},
		{Path: in("by-openat2"), Access: audit.AccessWrite, Flags: []string{"create", "append"}},
		{Path: in("created"), Access: audit.AccessWrite, Flags: []string{"create", "exclusive"}},
		{Path: in("truncated"), Access: audit.AccessWrite, Flags: []string{"truncate"}},
		{Path: in("kept"), Access: audit.AccessPath},
		{Path: in("sub"), Access: audit.AccessRead, Flags: []string{"directory"}},
		{Path: "/", Access: audit.AccessPath},
		{Path: in("handle"), Access: audit.AccessPath},
		{Path: in("handle"), Access: audit.AccessBoth},
		{Path: in("gone"), Access: audit.AccessBoth, Flags: []string{"create"}},
		{Path: in("gone"), Access: audit.AccessRead, Deleted: true},
		{Path: "/memfd:hidden", Access: audit.AccessBoth, Flags: []string{"memfd"}, Deleted: true},
		{Path: "/memfd:hidden", Access: audit.AccessBoth, Deleted: true},
		{Path: in("not\xffutf8\n\x1b[31m"), Access: audit.AccessRead},
		{Path: "sub/../missing", Dir: audit.Text(dir), Access: audit.AccessRead, Errno: "ENOENT", Unresolved: true},
		{Path: "absolute", Dir: audit.Text(dir), Access: audit.AccessBoth, Flags: []string{"create", "exclusive"}, Errno: "EEXIST", Unresolved: true},
		{Path: "absolute/below", Dir: audit.Text(dir), Access: audit.AccessRead, Errno: "ENOTDIR", Unresolved: true},
		{Path: "loop", Dir: audit.Text(dir), Access: audit.AccessRead, Errno: "ELOOP", Unresolved: true},
		{Path: "/nothing", Dir: audit.Text(dir), Access: audit.AccessRead, Errno: "ENOENT", Unresolved: true},
		{Path: "", Dir: audit.Text(dir), Access: audit.AccessRead, Errno: "EFAULT", Unresolved: true, Truncated: true},
	}
	want = append(want, legacyOpens(dir)...)
	wanted := map[audit.Text][]audit.Open{}
	for _, o := range want {
		wanted[o.Path] = append(wanted[o.Path], o)
	}
	for path, opens := range wanted {
		if diff := cmp.Diff(opens, got[path]); diff != "" {
			t.Errorf("%q (-want +got):\n%s", path, diff)
		}
	}
	for _, prefix := range []string{dir + "/sub/#", "pipe:[", "net:["} {
		found := matching(events, func(e audit.Event) bool {
			return e.Kind == audit.KindOpen && strings.HasPrefix(string(e.Open.Path), prefix)
		})
		if len(found) != 1 {
			t.Errorf("%d opens of %s…, want 1%s", len(found), prefix, describe(found))
		}
	}
	for name, n := range h.counters(t) {
		if n != 0 {
			t.Errorf("counter %s is %d", name, n)
		}
	}
}

// actDeep makes and opens a leaf below n directories of one name, step by step.
func actDeep(args []string) error {
	var n int
	if _, err := fmt.Sscan(args[1], &n); err != nil {
		return err
	}
	at, err := unix.Open(args[0], unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	for range n {
		if err := unix.Mkdirat(at, args[2], 0o700); err != nil {
			return err
		}
		next, err := unix.Openat(at, args[2], unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		unix.Close(at)
		at = next
	}
	_, err = unix.Openat(at, "the-leaf", unix.O_CREAT|unix.O_WRONLY, 0o600)
	return err
}

func TestDeepPaths(t *testing.T) {
	h := newHost(t)
	tests := []struct {
		name      string
		levels    int
		component string
	}{
		{"300 bytes", 3, strings.Repeat("a", 99)},
		{"120 levels", 120, "d"},
		{"longest names", 2, strings.Repeat("n", 255)},
		{"4000 bytes", 20, strings.Repeat("c", 199)},
		{"6000 bytes", 30, strings.Repeat("b", 199)},
		{"1500 levels", 1500, "x"},
		{"2500 levels", 2500, "y"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := testenv.Dir(t)
			b := h.box(t, fmt.Sprintf("deep%d", i), 32<<20)
			b.act(t, "deep", dir, fmt.Sprint(tt.levels), tt.component)
			whole := dir + strings.Repeat("/"+tt.component, tt.levels) + "/the-leaf"
			events := b.record(t)
			if doubts := matching(events, func(e audit.Event) bool { return e.Doubtful() }); len(doubts) > 0 {
				t.Errorf("%d in doubt", len(doubts))
			}
			leaf := matching(events, func(e audit.Event) bool {
				return e.Kind == audit.KindOpen && strings.HasSuffix(string(e.Open.Path), "/the-leaf")
			})
			if len(leaf) != 1 {
				t.Fatalf("%d opens of the leaf, want 1", len(leaf))
			}
			open := leaf[0].Open
			if long := len(whole) > 4096; open.Truncated != long {
				t.Errorf("truncated is %v for a path of %d bytes", open.Truncated, len(whole))
			}
			if !open.Truncated && string(open.Path) != whole {
				t.Errorf("path of %d bytes differs from the %d that it has", len(open.Path), len(whole))
			}
			if open.Truncated {
				if len(open.Path) < 3800 || open.Path[0] == '/' || !strings.HasSuffix(whole, string(open.Path)) {
					t.Errorf("truncated path of %d bytes is not the end of the whole: %.20q…", len(open.Path), open.Path)
				}
			}
		})
	}
}

// actMounts opens across mounts and below a root of its own.
func actMounts(args []string) error {
	dir := args[0]
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	inner := dir + "/new/inner"
	if err := os.MkdirAll(inner, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", inner, "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.WriteFile(inner+"/on-tmpfs", nil, 0o600); err != nil {
		return err
	}
	// A file's own mount, whose root is no directory.
	if err := unix.Mount(dir+"/source", inner+"/on-tmpfs", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	open := func(path string) func() (int, error) {
		return func() (int, error) { return unix.Open(path, unix.O_RDONLY, 0) }
	}
	if err := runSteps([]step{{"bound", nil, open(inner + "/on-tmpfs")}, {"mount root", nil, open(inner)}}); err != nil {
		return err
	}
	outside, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	if err := unix.Chroot(dir + "/new"); err != nil {
		return err
	}
	return runSteps([]step{
		{"below the root", nil, open("/inner/on-tmpfs")},
		{"outside", nil, func() (int, error) { return unix.Openat(outside, "source", unix.O_RDONLY, 0) }},
	})
}

func TestPathsAcrossMounts(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	if err := os.WriteFile(dir+"/source", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "mounts", 0)
	b.act(t, "mounts", dir)
	events := b.record(t)
	for path, n := range map[string]int{
		dir + "/new/inner/on-tmpfs": 2, // written before the mount, opened after it
		dir + "/new/inner":          1,
		"/inner/on-tmpfs":           1,
		dir + "/source":             1, // outside the root: from the top of the tree
	} {
		found := matching(events, func(e audit.Event) bool {
			return e.Kind == audit.KindOpen && string(e.Open.Path) == path
		})
		if len(found) != n {
			t.Errorf("%d opens of %s, want %d", len(found), path, n)
		}
	}
}

// actThread opens a file on a thread that is not the leader.
func actThread(args []string) error {
	done := make(chan error)
	runtime.LockOSThread() // the leader's thread stays here
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		fmt.Println(unix.Gettid())
		done <- err
	}()
	return <-done
}

func TestThreadIsNamed(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "thread", 0)
	path := filepath.Join(testenv.Dir(t), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var tid uint32
	if _, err := fmt.Sscan(b.act(t, "thread", path), &tid); err != nil {
		t.Fatal(err)
	}
	found := matching(b.record(t), func(e audit.Event) bool {
		return e.Kind == audit.KindOpen && string(e.Open.Path) == path
	})
	if len(found) != 1 {
		t.Fatalf("%d opens, want 1", len(found))
	}
	if p := found[0].Process; p.PID != 1 || p.PPID != 0 || p.Thread != tid || p.HostID <= 1 {
		t.Errorf("process is %+v, want pid 1, thread %d", *p, tid)
	}
}
