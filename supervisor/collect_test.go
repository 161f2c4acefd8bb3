package supervisor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor/box"
	"proctor/testenv"
)

var ample = collectLimits{files: 100, entries: 1000, depth: 16, name: 1024, fileBytes: 1 << 20, allBytes: 1 << 20}

// outputsDir is a directory to fill as hostile code would, with a secret beside it.
func outputsDir(t *testing.T) (from, secret string) {
	t.Helper()
	dir := t.TempDir()
	from, secret = filepath.Join(dir, "outputs"), filepath.Join(dir, "secret")
	must(t, os.Mkdir(from, 0o755))
	must(t, os.WriteFile(secret, []byte("the secret"), 0o600))
	return from, secret
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, content string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// collect collects, and checks that what is said of each file is so and that no secret is
// among them.
func collect(t *testing.T, from string, limits collectLimits) *collector {
	t.Helper()
	to := filepath.Join(t.TempDir(), "collected")
	c, err := collectOutputs(from, to, limits)
	must(t, err)
	entries, err := os.ReadDir(to)
	if len(c.files) > 0 {
		must(t, err)
	}
	if len(entries) != len(c.files) {
		t.Errorf("%d files copied, %d listed", len(entries), len(c.files))
	}
	for i, f := range c.files {
		path := filepath.Join(to, strconv.Itoa(i))
		data, err := os.ReadFile(path)
		must(t, err)
		if sum := sha256.Sum256(data); f.Bytes != int64(len(data)) || f.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%q: the copy is %d bytes of %x, said are %d of %s", f.Name, len(data), sum, f.Bytes, f.SHA256)
		}
		if bytes.Contains(data, []byte("the secret")) {
			t.Errorf("%q holds the secret", f.Name)
		}
		info, err := os.Lstat(path)
		must(t, err)
		if info.Mode() != 0o600 {
			t.Errorf("%q: mode %v", f.Name, info.Mode())
		}
	}
	return c
}

func (c *collector) names() []string {
	var names []string
	for _, f := range c.files {
		names = append(names, string(f.Name))
	}
	slices.Sort(names)
	return names
}

func (c *collector) reason(name string) string {
	for _, s := range c.skipped {
		if string(s.Name) == name {
			return s.Reason
		}
	}
	return "not skipped"
}

func TestCollectNothing(t *testing.T) {
	from, _ := outputsDir(t)
	to := filepath.Join(t.TempDir(), "collected")
	c, err := collectOutputs(from, to, ample)
	must(t, err)
	if len(c.files)+len(c.skipped)+c.more != 0 {
		t.Errorf("got %+v", c)
	}
	if _, err := os.Lstat(to); !os.IsNotExist(err) {
		t.Errorf("a directory for nothing: %v", err)
	}
}

func TestCollectFails(t *testing.T) {
	from, secret := outputsDir(t)
	must(t, os.Symlink(filepath.Dir(secret), filepath.Join(from, "link")))
	for name, dir := range map[string]string{"missing": filepath.Join(from, "none"), "a file": secret, "a link": filepath.Join(from, "link")} {
		if c, err := collectOutputs(dir, t.TempDir(), ample); err == nil || c == nil || len(c.files) > 0 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	// The destination cannot be written: that is no fault of the code, and no success.
	write(t, "x", from, "a")
	if _, err := collectOutputs(from, filepath.Join(secret, "under-a-file"), ample); err == nil {
		t.Error("no error")
	}
}

func TestCollectKinds(t *testing.T) {
	from, secret := outputsDir(t)
	write(t, "plain", from, "plain")
	write(t, "", from, "empty")
	write(t, "deep", from, "a", "b", "c")
	must(t, os.Mkdir(filepath.Join(from, "nothing-in-it"), 0o755))
	must(t, os.Link(filepath.Join(from, "plain"), filepath.Join(from, "second-name")))
	for name, target := range map[string]string{
		"absolute": secret, "up": "../secret", "etc": "/etc/passwd", "root": "/", "proc": "/proc/self/environ",
		"magic": "/proc/self/fd/0", "loop": "loop", "dot": ".", "dotdot": "..", "to-file": "plain", "to-dir": "a", "dangling": "nowhere",
	} {
		must(t, os.Symlink(target, filepath.Join(from, "ln-"+name)))
	}
	must(t, os.Symlink("../../../secret", filepath.Join(from, "a", "b", "up")))
	must(t, unix.Mkfifo(filepath.Join(from, "fifo"), 0o666))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	t.Chdir(from) // a socket's path is short
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))

	c := collect(t, from, ample)
	if diff := cmp.Diff([]string{"a/b/c", "empty", "plain", "second-name"}, c.names()); diff != "" {
		t.Error(diff)
	}
	for _, s := range c.skipped {
		name := string(s.Name)
		want := "a symbolic link"
		switch name {
		case "fifo":
			want = "a FIFO"
		case "socket":
			want = "a socket"
		}
		if !strings.HasPrefix(s.Reason, want) {
			t.Errorf("%s: %s", name, s.Reason)
		}
	}
	if len(c.skipped) != 15 || c.more != 0 {
		t.Errorf("%d skipped, %d more, want 15: %+v", len(c.skipped), c.more, c.skipped)
	}
}

func TestCollectNames(t *testing.T) {
	from, _ := outputsDir(t)
	names := []string{
		"-rf", "..\\..\\x", "...", "a\nb", "\x1b[2J", "caf\xe9", "\xff\xfe", "\u202egnp.exe", "A", "a", " ", "{\"run\":\"x\"}", "*",
		strings.Repeat("n", 255), strings.Repeat("\xff", 255),
	}
	for _, name := range names {
		write(t, name, from, name)
	}
	write(t, "x", from, "d\xff\n", "..x")
	c := collect(t, from, ample)
	want := append(slices.Clone(names), "d\xff\n/..x")
	slices.Sort(want)
	if diff := cmp.Diff(want, c.names()); diff != "" {
		t.Error(diff)
	}
}

func TestCollectModes(t *testing.T) {
	from, _ := outputsDir(t)
	write(t, "x", from, "none")
	write(t, "x", from, "closed", "in")
	write(t, "x", from, "setuid")
	must(t, os.Chmod(filepath.Join(from, "none"), 0))
	must(t, os.Chmod(filepath.Join(from, "setuid"), 0o777|os.ModeSetuid))
	must(t, os.Chmod(filepath.Join(from, "closed"), 0))
	t.Cleanup(func() { os.Chmod(filepath.Join(from, "closed"), 0o700) })

	c := collect(t, from, ample)
	want, skipped := []string{"closed/in", "none", "setuid"}, 0
	if os.Geteuid() != 0 {
		// Without root's rights they are named.
		want, skipped = []string{"setuid"}, 2
	}
	if diff := cmp.Diff(want, c.names()); diff != "" {
		t.Error(diff)
	}
	if len(c.skipped) != skipped {
		t.Errorf("skipped %+v", c.skipped)
	}
}

func TestCollectFileLimit(t *testing.T) {
	for n, skipped := range map[int]int{4: 0, 5: 0, 6: 1, 9: 4} {
		from, _ := outputsDir(t)
		for i := range n {
			write(t, "x", from, fmt.Sprint(i))
		}
		limits := ample
		limits.files = 5
		c := collect(t, from, limits)
		if len(c.files) != n-skipped || len(c.skipped) != skipped {
			t.Errorf("of %d files %d are taken and %d skipped", n, len(c.files), len(c.skipped))
		}
		if skipped > 0 && c.reason("5") != "more than 5 files" {
			t.Errorf("reason: %s", c.reason("5"))
		}
	}
}

func TestCollectEntryLimit(t *testing.T) {
	limits := ample
	limits.entries = 5
	for n, more := range map[int]bool{4: false, 5: false, 6: true, 2000: true} {
		from, _ := outputsDir(t)
		for i := range n {
			must(t, unix.Mkfifo(filepath.Join(from, fmt.Sprintf("%04d", i)), 0o600)) // links and FIFOs count, too
		}
		c := collect(t, from, limits)
		if c.entries != min(n, 5) {
			t.Errorf("of %d entries %d are looked at", n, c.entries)
		}
		said := slices.ContainsFunc(c.skipped, func(s audit.SkippedOutput) bool {
			return s.Reason == "not looked at: more than 5 entries"
		})
		if said != more {
			t.Errorf("of %d entries, that there are more is said: %v", n, said)
		}
		if len(c.skipped) > 6 {
			t.Errorf("%d skipped", len(c.skipped))
		}
	}

	// The limit is one for the whole tree, and what is above comes first.
	from, _ := outputsDir(t)
	for _, d := range []string{"a", "b", "c", "d"} {
		write(t, "x", from, d, "1")
		write(t, "x", from, d, "2")
	}
	if c := collect(t, from, limits); c.entries != 5 || len(c.files) != 1 {
		t.Errorf("%d entries looked at, %v taken", c.entries, c.names())
	}
}

// Of a huge directory not even all names are read.
func TestCollectHugeDirectory(t *testing.T) {
	from, _ := outputsDir(t)
	for i := range 1000 {
		must(t, unix.Mkfifo(filepath.Join(from, fmt.Sprint(i)), 0o600))
	}
	limits := ample
	limits.entries = 5
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := collectOutputs(from, t.TempDir(), limits)
	must(t, err)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 30_000 || c.entries != 5 {
		t.Errorf("%d entries looked at, %d bytes used", c.entries, n)
	}
}

func TestCollectDepthLimit(t *testing.T) {
	limits := ample
	limits.depth = 3
	for depth, taken := range map[int]bool{2: true, 3: true, 4: false, 200: false} {
		from, _ := outputsDir(t)
		write(t, "x", from, strings.Repeat("d/", depth)+"f")
		c := collect(t, from, limits)
		if got := len(c.files) == 1; got != taken {
			t.Errorf("at depth %d: taken %v, want %v", depth, got, taken)
		}
		if !taken && c.reason("d/d/d/d") != "deeper than 3 directories" {
			t.Errorf("skipped %+v", c.skipped)
		}
	}
}

func TestCollectByteLimits(t *testing.T) {
	limits := ample
	limits.fileBytes, limits.allBytes = 100, 250
	from, _ := outputsDir(t)
	for name, n := range map[string]int{"a": 99, "b": 100, "c": 101, "d": 52, "e": 51, "f": 1, "g": 0} {
		write(t, strings.Repeat("x", n), from, name)
	}
	c := collect(t, from, limits)
	if diff := cmp.Diff([]string{"a", "b", "e", "g"}, c.names()); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{
		"c": "101 bytes, the limit for one file is 100",
		"d": "52 bytes, the limit for all files together is 250",
		"f": "1 bytes, the limit for all files together is 250",
	} {
		if got := c.reason(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// What counts is how large a file says it is: 1 TiB of nothing would be read for hours.
func TestCollectSparse(t *testing.T) {
	from, _ := outputsDir(t)
	write(t, "", from, "sparse")
	must(t, os.Truncate(filepath.Join(from, "sparse"), 1<<40))
	began := time.Now()
	c := collect(t, from, collectFrom(box.Limits{ScratchBytes: 512 << 20}))
	if len(c.files) != 0 || !strings.Contains(c.reason("sparse"), "1099511627776 bytes") {
		t.Errorf("%+v", c.skipped)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// What is a hole stays one: a run must not fill the disk with what cost it nothing.
func TestCollectHoles(t *testing.T) {
	from, _ := outputsDir(t)
	const size = 64 << 20
	sum := func(data []byte) string { s := sha256.Sum256(data); return hex.EncodeToString(s[:]) }
	for name, parts := range map[string]map[int64]string{
		"nothing": {}, "first": {0: "begin"}, "last": {size - 3: "end"}, "between": {1 << 20: "a", 40<<20 + 5: "b"},
	} {
		path := filepath.Join(from, name)
		must(t, os.WriteFile(path, nil, 0o644))
		must(t, os.Truncate(path, size))
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		want := make([]byte, size)
		for at, text := range parts {
			_, err := f.WriteAt([]byte(text), at)
			must(t, err)
			copy(want[at:], text)
		}
		must(t, f.Close())
		c := collect(t, from, collectFrom(box.Limits{ScratchBytes: 512 << 20}))
		must(t, os.Remove(path))
		if len(c.files) != 1 || c.files[0].Bytes != size || c.files[0].SHA256 != sum(want) {
			t.Errorf("%s: %+v, %+v", name, c.files, c.skipped)
			continue
		}
		kept := filepath.Join(c.to, "0")
		got, err := os.ReadFile(kept)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the content is another", name)
		}
		var st unix.Stat_t
		must(t, unix.Stat(kept, &st))
		if st.Blocks*512 > 1<<20 {
			t.Errorf("%s takes %d bytes on disk", name, st.Blocks*512)
		}
		must(t, os.RemoveAll(c.to))
	}
}

func TestCollectFromLimits(t *testing.T) {
	for scratch, want := range map[int64][2]int64{
		1 << 20: {1 << 20, 1 << 20}, 512 << 20: {512 << 20, 512 << 20}, 1 << 30: {1 << 30, 1 << 30}, 8 << 30: {1 << 30, 2 << 30},
	} {
		if l := collectFrom(box.Limits{ScratchBytes: scratch}); l.fileBytes != want[0] || l.allBytes != want[1] {
			t.Errorf("with %d bytes of scratch: %d for one, %d for all", scratch, l.fileBytes, l.allBytes)
		}
	}
}

func TestCollectNamesOnlySoManySkipped(t *testing.T) {
	from, _ := outputsDir(t)
	for i := range skippedNamed + 7 {
		must(t, os.Symlink("x", filepath.Join(from, fmt.Sprint(i))))
	}
	write(t, "x", from, "zzz")
	c := collect(t, from, ample)
	if len(c.skipped) != skippedNamed || c.more != 7 || len(c.files) != 1 {
		t.Errorf("%d named, %d more, %d taken", len(c.skipped), c.more, len(c.files))
	}
}

// What is refused by one rule, however often, does not keep what is refused by another from
// being named; and what fills a directory uses nothing up that is needed above it.
func TestCollectFloodHidesNothing(t *testing.T) {
	from, _ := outputsDir(t)
	for i := range skippedNamed + 50 {
		write(t, "x", from, "a", fmt.Sprint(i))
		must(t, os.Symlink("x", filepath.Join(from, "a", fmt.Sprintf("link-%d", i))))
	}
	must(t, unix.Mkfifo(filepath.Join(from, "zz-fifo"), 0o600))
	must(t, unix.Mkfifo(filepath.Join(from, "b-fifo"), 0o600))
	write(t, "report", from, "z-report")
	write(t, "", from, "zz-sparse")
	must(t, os.Truncate(filepath.Join(from, "zz-sparse"), 1<<40))
	write(t, "deep", from, strings.Repeat("zd/", 10)+"f")
	limits := ample
	limits.files, limits.depth = 5, 3
	c := collect(t, from, limits)
	if got := c.names(); len(got) != 5 || !slices.Contains(got, "z-report") {
		t.Errorf("taken: %q", got)
	}
	for name, want := range map[string]string{
		"zz-fifo": "a FIFO, only regular files are handed out", "b-fifo": "a FIFO, only regular files are handed out",
		"zz-sparse":   "1099511627776 bytes, the limit for one file is " + fmt.Sprint(limits.fileBytes),
		"zd/zd/zd/zd": "deeper than 3 directories",
	} {
		if got := c.reason(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if all := len(c.files) + len(c.skipped) + c.more; all != 2*(skippedNamed+50)+5 {
		t.Errorf("%d entries are accounted for", all)
	}
}

func TestCollectNameLimit(t *testing.T) {
	from, _ := outputsDir(t)
	limits := ample
	limits.name = 30
	for dir, taken := range map[string]bool{strings.Repeat("d", 28): true, strings.Repeat("e", 29): false, "f/f/f/" + strings.Repeat("f", 22): true, "g/g/g/" + strings.Repeat("g", 23): false} {
		write(t, "x", from, dir+"/x")
		name := dir + "/x"
		c := collect(t, from, limits)
		if got := slices.Contains(c.names(), name); got != taken {
			t.Errorf("%s: taken %v", name, got)
		}
		if want := fmt.Sprintf("a name of %d bytes with its directories, the limit is 30", len(name)); !taken && c.reason(name) != want {
			t.Errorf("%s: %s, want %s", name, c.reason(name), want)
		}
	}
}

func TestCollectLeavesNoDescriptor(t *testing.T) {
	from, secret := outputsDir(t)
	write(t, "x", from, "a", "b", "c")
	must(t, os.Symlink(secret, filepath.Join(from, "a", "link")))
	before := descriptors(t)
	for range 20 {
		collect(t, from, ample)
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// A device is not opened, and what is mounted below is not entered.
func TestCollectRoot(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	from, mounted := filepath.Join(dir, "outputs"), filepath.Join(dir, "outputs", "mounted")
	must(t, os.MkdirAll(mounted, 0o755))
	must(t, unix.Mknod(filepath.Join(from, "zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	must(t, unix.Mknod(filepath.Join(from, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 99))))
	must(t, unix.Mount("tmpfs", mounted, "tmpfs", 0, "size=64k"))
	defer unix.Unmount(mounted, 0)
	write(t, "the secret", mounted, "in")
	write(t, "x", from, "zzz")

	c := collect(t, from, ample)
	if diff := cmp.Diff([]string{"zzz"}, c.names()); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"zero", "disk"} {
		if !strings.HasPrefix(c.reason(name), "a device") {
			t.Errorf("%s: %s", name, c.reason(name))
		}
	}
	if c.reason("mounted") != unix.EXDEV.Error() {
		t.Errorf("a mount: %s", c.reason("mounted"))
	}
}
