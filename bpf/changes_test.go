package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// actChanges changes names and attributes in a directory, the n-th change as the n-th of
// changesMade says.
func actChanges(args []string) error {
	dir := args[0]
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := os.WriteFile("f", []byte("data"), 0o600); err != nil {
		return err
	}
	fd, err := unix.Open("f", unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	dirfd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	tmp, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	for i, change := range []func() error{
		func() error { return unix.Mkdir("d", 0o755) },
		func() error { return unix.Mkdirat(dirfd, dir[1:]+"/d/e", 0o700) },
		func() error { return unix.Mknod("fifo", unix.S_IFIFO|0o600, 0) },
		func() error { return unix.Truncate(dir+"/f", 3) },
		func() error { return unix.Ftruncate(fd, 1<<33) },
		func() error { return unix.Link("f", "d/hard") },
		func() error {
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", tmp), dirfd, dir[1:]+"/linked", unix.AT_SYMLINK_FOLLOW)
		},
		func() error { return unix.Linkat(fd, "", unix.AT_FDCWD, "empty", unix.AT_EMPTY_PATH) },
		func() error { return unix.Symlink("not\xffutf8\n", "soft") },
		func() error { return unix.Rename("d/hard", dir+"/moved") },
		func() error {
			return unix.Renameat2(unix.AT_FDCWD, "moved", unix.AT_FDCWD, "soft", unix.RENAME_EXCHANGE)
		},
		func() error {
			return unix.Renameat2(unix.AT_FDCWD, "empty", unix.AT_FDCWD, "left", unix.RENAME_WHITEOUT)
		},
		func() error { return unix.Chmod("f", 0o4755) },
		func() error { return unix.Fchmod(fd, 0o600) },
		func() error { return unix.Fchmodat(dirfd, dir[1:]+"/f", 0o640, 0) },
		func() error { return unix.Lchown("soft", 12, -1) },
		func() error { return unix.Fchown(fd, -1, 34) },
		func() error { return unix.Fchownat(fd, "", 1, 2, unix.AT_EMPTY_PATH) },
		func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, "f", make([]unix.Timespec, 2), 0) },
		func() error {
			_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&[2]unix.Timespec{})), 0, 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		},
		func() error { return orUnsupported(unix.Fsetxattr(fd, "user.label", []byte("x"), 0)) },
		func() error { return orUnsupported(unix.Removexattr("f", "user.label")) },
		func() error { return unix.Unlink("linked") },
		func() error { return unix.Unlinkat(dirfd, dir[1:]+"/d/e", unix.AT_REMOVEDIR) },
		func() error { return unix.Rmdir("d") },
		func() error { return unix.Unlink("f") },
		func() error { return unix.Unlink("moved") },
		func() error { return unix.Fchmod(fd, 0o400) },
		func() error { return failsWith(unix.Unlink("missing"), unix.ENOENT) },
		func() error { return failsWith(unix.Fchmod(999, 0o400), unix.EBADF) },
		func() error {
			_, _, errno := unix.Syscall(unix.SYS_UNLINKAT, uintptr(dirfd), 16, 0)
			return failsWith(errno, unix.EFAULT)
		},
	} {
		if err := change(); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	return nil
}

// orUnsupported: a tmpfs has such attributes since Linux 6.6.
func orUnsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

func failsWith(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%w, want %v", err, want)
	}
	return nil
}

func changesMade(dir string) []audit.Change {
	d := audit.Text(dir)
	length := func(n int64) *int64 { return &n }
	return []audit.Change{
		{Act: audit.ChangeMkdir, Path: "d", Dir: d, Mode: "0755", Unresolved: true},
		{Act: audit.ChangeMkdir, Path: d[1:] + "/d/e", Dir: "/", Mode: "0700", Unresolved: true},
		{Act: audit.ChangeMknod, Path: "fifo", Dir: d, Mode: "010600", Unresolved: true},
		{Act: audit.ChangeTruncate, Path: d + "/f", Length: length(3), Unresolved: true},
		{Act: audit.ChangeTruncate, Path: d + "/f", Length: length(1 << 33)},
		{Act: audit.ChangeLink, Path: "f", Dir: d, To: "d/hard", ToDir: d, Unresolved: true},
		{Act: audit.ChangeLink, Path: "/proc/self/fd/", To: d[1:] + "/linked", ToDir: "/", Unresolved: true},
		{Act: audit.ChangeLink, Path: d + "/f", To: "empty", ToDir: d},
		{Act: audit.ChangeSymlink, Path: "soft", Dir: d, Target: "not\xffutf8\n", Unresolved: true},
		{Act: audit.ChangeRename, Path: "d/hard", Dir: d, To: d + "/moved", Unresolved: true},
		{Act: audit.ChangeExchange, Path: "moved", Dir: d, To: "soft", ToDir: d, Unresolved: true},
		{Act: audit.ChangeRename, Path: "empty", Dir: d, To: "left", ToDir: d, Whiteout: true, Unresolved: true},
		{Act: audit.ChangeMode, Path: "f", Dir: d, Mode: "04755", Unresolved: true},
		{Act: audit.ChangeMode, Path: d + "/f", Mode: "0600"},
		{Act: audit.ChangeMode, Path: d[1:] + "/f", Dir: "/", Mode: "0640", Unresolved: true},
		{Act: audit.ChangeOwner, Path: "soft", Dir: d, Owner: "12:-1", Unresolved: true},
		{Act: audit.ChangeOwner, Path: d + "/f", Owner: "-1:34"},
		{Act: audit.ChangeOwner, Path: d + "/f", Owner: "1:2"},
		{Act: audit.ChangeTimes, Path: "f", Dir: d, Unresolved: true},
		{Act: audit.ChangeTimes, Path: d + "/f"},
		{Act: audit.ChangeSetXattr, Path: d + "/f", Attribute: "user.label"},
		{Act: audit.ChangeRemoveXattr, Path: "f", Dir: d, Attribute: "user.label", Unresolved: true},
		{Act: audit.ChangeUnlink, Path: "linked", Dir: d, Unresolved: true},
		{Act: audit.ChangeRmdir, Path: d[1:] + "/d/e", Dir: "/", Unresolved: true},
		{Act: audit.ChangeRmdir, Path: "d", Dir: d, Unresolved: true},
		{Act: audit.ChangeUnlink, Path: "f", Dir: d, Unresolved: true},
		{Act: audit.ChangeUnlink, Path: "moved", Dir: d, Unresolved: true},
		{Act: audit.ChangeMode, Path: d + "/f", Mode: "0400", Deleted: true},
		{Act: audit.ChangeUnlink, Path: "missing", Dir: d, Errno: "ENOENT", Unresolved: true},
		{Act: audit.ChangeMode, Mode: "0400", Errno: "EBADF", Unresolved: true},
		{Act: audit.ChangeUnlink, Dir: "/", Errno: "EFAULT", Unresolved: true, Truncated: true},
	}
}

func TestChanges(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	b := h.box(t, "changes", 0)
	b.act(t, "changes", dir)

	var got []audit.Change
	for _, e := range b.record(t) {
		if e.Kind == audit.KindChange {
			c := *e.Change
			if c.Act == audit.ChangeLink && len(c.Path) > 14 && c.Path[:14] == "/proc/self/fd/" {
				c.Path = c.Path[:14] // which descriptor it was is the Go runtime's affair
			}
			if c.Errno == "EOPNOTSUPP" || c.Errno == "ENOTSUP" {
				c.Errno = ""
			}
			got = append(got, c)
		}
	}
	if diff := cmp.Diff(changesMade(dir), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// actRepeat does a few things again and again.
func actRepeat(args []string) error {
	for i := range 1000 {
		for _, path := range args {
			fd, err := unix.Open(path, unix.O_RDONLY, 0)
			if err == nil {
				unix.Close(fd)
			}
		}
		if i == 500 { // the same name, and another file
			if err := os.Rename(args[0], args[0]+".old"); err != nil {
				return err
			}
			if err := os.WriteFile(args[0], nil, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestRepeatsAreFolded(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	file := dir + "/f"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := h.box(t, "repeat", 0)
	began := time.Now()
	b.act(t, "repeat", file, dir+"/missing")
	events := b.record(t)

	acts := map[audit.Text]uint64{}
	records := map[audit.Text]int{}
	bySeq := map[uint64]audit.Event{}
	var folded uint64
	for _, e := range events {
		bySeq[e.Seq] = e
		if e.Repeat != nil {
			folded += e.Repeat.Count
			of, known := bySeq[e.Repeat.Of]
			if !known || !cmp.Equal(of.Open, e.Open) || e.Repeat.First.After(e.Time) || e.Repeat.First.Before(began.Add(-time.Second)) {
				t.Errorf("%d repeats %+v: %+v %+v", e.Seq, of.Open, e.Open, e.Repeat)
			}
		}
		if e.Kind == audit.KindOpen && e.Open.Access == audit.AccessRead {
			acts[e.Open.Path] += e.Acts()
			records[e.Open.Path]++
		}
	}
	for _, path := range []audit.Text{audit.Text(file), audit.Text(dir + "/missing")} {
		if acts[path] != 1000 || records[path] > 40 {
			t.Errorf("%s: %d opens in %d records", path, acts[path], records[path])
		}
	}
	if records[audit.Text(file)] < 3 {
		t.Errorf("two files of one name are one: %d records", records[audit.Text(file)])
	}
	counts, err := b.Counts()
	if err != nil || counts.Folded != folded {
		t.Errorf("%+v, %v; the records have %d repeats", counts, err, folded)
	}
}

// What a live reader sees of a loop that has not ended.
func TestRepeatsAreToldEverySecond(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "long", 0)
	cmd := b.command("/bin/sh", "-c", "while :; do : </etc/passwd; done")
	if err := testenv.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		events, err := b.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Repeat != nil && e.Repeat.Count > 10 {
				return
			}
		}
	}
	t.Error("no count came while the loop went on")
}
