package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"proctor/audit"
	"proctor/testenv"
)

// traps fills /outputs with what a collector must not follow, wait for or choke on, and goes
// with a child that goes on changing things. What fills limits sorts before all else.
const traps = `
import errno, os, socket
os.chdir("/outputs")
def attempt(what, f):
    try: f(); print(what, "worked")
    except OSError as e: print(what, errno.errorcode[e.errno])
os.makedirs("a/many")
for i in range(3000): open("a/many/%d" % i, "w").close()
for i in range(300): os.symlink("/etc/hostname", "a/link%d" % i)
where = os.open("a", os.O_RDONLY)
for i in range(200):
    os.mkdir("d" * 30, dir_fd=where)
    where = os.open("d" * 30, os.O_RDONLY, dir_fd=where)
long = os.open(".", os.O_RDONLY)
for c in "lmnop":
    os.mkdir(c * 255, dir_fd=long)
    long = os.open(c * 255, os.O_RDONLY, dir_fd=long)
os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=long))
for name, target in dict(absolute="/etc/hostname", up="../" * 20 + "etc/hostname", proc="/proc/1/environ", fd="/proc/self/fd/0", magic="/proc/self/root/etc/hostname", loop="z-loop", folder="/etc", dangling="none").items():
    os.symlink(target, "z-" + name)
os.mkfifo("z-fifo")
socket.socket(socket.AF_UNIX).bind("z-socket")
with open("z-sparse", "wb") as f: f.truncate(1 << 40)
with open("z-good", "w") as f: f.write("good")
os.mkdir("z-shut"); open("z-shut/in", "w").write("shut"); os.chmod("z-shut", 0)
attempt("device", lambda: os.mknod("z-device", 0o20666, os.makedev(1, 5)))
attempt("hard link", lambda: os.link("/etc/hostname", "z-hard"))
attempt("hard link to code", lambda: os.link("/code/main.py", "z-hard"))
if os.fork() == 0:
    os.setsid()
    os.mkdir("z-swap"); open("z-swap/hostname", "w").write("harmless")
    while True:
        os.rename("z-swap", "z-kept"); os.symlink("/etc", "z-swap")
        os.unlink("z-swap"); os.rename("z-kept", "z-swap")
`

// F1, F3, F4, F5: each trap is named with its reason, whatever else is there in thousands, and
// what the program meant to leave arrives.
func TestOutputTraps(t *testing.T) {
	s := root(t)
	to := filepath.Join(testenv.Dir(t), "out")
	began := time.Now()
	v := s.verdict(t, "python", traps, "--output-dir", to)
	if took := time.Since(began); v.Status != audit.StatusOK || took > 30*time.Second {
		t.Fatalf("%s in %s: %s\n%s", v.Status, took, v.Reason, v.Stderr.Bytes())
	}
	if got, want := string(v.Stdout.Bytes()), "device EPERM\nhard link EXDEV\nhard link to code EXDEV\n"; got != want {
		t.Errorf("made with: %q, want %q", got, want)
	}
	if data, err := os.ReadFile(filepath.Join(to, "z-good")); err != nil || string(data) != "good" {
		t.Errorf("z-good: %q, %v", data, err)
	}
	reasons := map[string]string{}
	for _, o := range v.Skipped {
		reasons[string(o.Name)] = o.Reason
	}
	for name, want := range map[string]string{
		"z-absolute": "a symbolic link", "z-up": "a symbolic link", "z-proc": "a symbolic link", "z-fd": "a symbolic link", "z-magic": "a symbolic link",
		"z-loop": "a symbolic link", "z-folder": "a symbolic link", "z-dangling": "a symbolic link", "z-fifo": "a FIFO", "z-socket": "a socket",
		"z-sparse": "1099511627776 bytes, the limit for one file is ",
		"a" + strings.Repeat("/"+strings.Repeat("d", 30), 16): "deeper than 16 directories",
	} {
		if !strings.HasPrefix(reasons[name], want) {
			t.Errorf("%.40s: %q, want %q", name, reasons[name], want)
		}
	}
	if !slices.ContainsFunc(v.Skipped, func(o audit.SkippedOutput) bool {
		return strings.HasPrefix(o.Reason, "a name of 1284 bytes") && strings.HasSuffix(string(o.Name), "/leaf")
	}) {
		t.Error("a name that is too long is not said to be")
	}
	for _, o := range v.Outputs {
		if data, err := os.ReadFile(filepath.Join(to, string(o.Name))); err != nil || hexSum(data) != o.SHA256 || string(data) == "box\n" {
			t.Errorf("%s: %q, %v", o.Name, data, err)
		}
	}
	// Nothing goes without a word: 3,301 entries in a, the long name, eleven traps, two files, and
	// what the child was about.
	if all := len(v.Outputs) + len(v.Skipped) + v.SkippedMore; len(v.Outputs) != 1000 || all < 3315 || all > 3318 {
		t.Errorf("%d outputs, %d entries accounted for", len(v.Outputs), all)
	}
}

// F2, F7: what is full is ENOSPC wherever it is written, also with the memory used that the run
// may use, and other runs that fill theirs at the same time have all of their own.
func TestScratchFullEverywhere(t *testing.T) {
	s := root(t)
	const code = `
import errno, os, shutil, sys
held = bytearray(32 << 20); held[::4096] = b"x" * len(held[::4096])
where, n = sys.argv[1] + "/fill", 0
os.mkdir(where)
try:
    while True: os.close(os.open(f"{where}/{n}", os.O_CREAT | os.O_WRONLY)); n += 1
except OSError as e: print("files", errno.errorcode[e.errno], n)
try: os.mkdir("/outputs/x")
except OSError as e: print("elsewhere", errno.errorcode[e.errno])
for i in range(10): os.unlink(f"{where}/{i}")
n = 0
try:
    with open(where + "/big", "wb", buffering=0) as f:
        while True: n += f.write(held[:1 << 16])
except OSError as e: print("bytes", errno.errorcode[e.errno], n >> 20)
try:
    with open("/tmp/more", "wb", buffering=0) as f: f.write(held[:1 << 16]); print("worked")
except OSError as e: print("elsewhere", errno.errorcode[e.errno])
try: open("/etc/x", "w")
except OSError as e: print("root", errno.errorcode[e.errno])`
	want := regexp.MustCompile(`^files ENOSPC 6\d{4}\nelsewhere ENOSPC\nbytes ENOSPC 4[78]\nelsewhere ENOSPC\nroot (EROFS|EACCES)\n$`)
	for _, dir := range []string{"/scratch", "/tmp", "/dev/shm", "/outputs"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			v := s.verdict(t, "python", code, "--scratch", "48M", "--memory", "64M", "--", dir)
			if v.Status != audit.StatusOK || v.Usage.OOMKills != 0 || !want.Match(v.Stdout.Bytes()) {
				t.Errorf("%s: %s; stdout %q, stderr %s; %d OOM kills", v.Status, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes(), v.Usage.OOMKills)
			}
		})
	}
}

// F8: what the caller may do with a file, a run may not: of two names of one file it has the
// content, of a set-user-id one neither that nor the right to run it.
func TestInputsAreContentOnly(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	file, second := filepath.Join(dir, "file"), filepath.Join(dir, "-rf")
	if err := os.WriteFile(file, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(file, second); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o777|os.ModeSetuid|os.ModeSetgid|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if v := s.verdict(t, "sh", "true", "--input", file+":../x"); v.Status != audit.StatusRefused || !strings.Contains(v.Reason, `"../x"`) {
		t.Errorf("a name that leads out: %s: %s", v.Status, v.Reason)
	}
	v := s.verdict(t, "python", `
import os
for n in sorted(os.listdir("/inputs")):
    f = "/inputs/" + n
    try: os.execv(f, [f])
    except OSError as e: print(n, open(f).read(), bin(os.statvfs(f).f_flag & (os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)), e.errno)`,
		"--input", file, "--input", second)
	// Read-only, no set-user-id, no devices, nothing executable; EACCES.
	if got, want := string(v.Stdout.Bytes()), "-rf content 0b1111 13\nfile content 0b1111 13\n"; got != want {
		t.Errorf("%s: got %q, want %q; %s", v.Status, got, want, v.Stderr.Bytes())
	}
	if info, err := os.Stat(file); err != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Errorf("the caller's file is now %v, %v", info.Mode(), err)
	}
}
