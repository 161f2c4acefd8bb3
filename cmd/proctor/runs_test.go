package main_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"proctor/api"
	"proctor/audit"
	"proctor/testenv"
)

// How a program ends, and what its caller is told of it.
func TestEndings(t *testing.T) {
	s := root(t)
	for _, test := range []struct {
		name           string
		language, code string
		flags          []string
		status         audit.Status
		exit           int
		signal         string
		reason         string // contained in it
	}{
		{"ok", "sh", "exit 0", nil, audit.StatusOK, 0, "", "code 0"},
		{"own code", "sh", "exit 42", nil, audit.StatusExit, 42, "", "code 42"},
		{"124 of its own", "sh", "exit 124", nil, audit.StatusExit, 124, "", "code 124"},
		{"125 of its own", "sh", "exit 125", nil, audit.StatusExit, 125, "", "code 125"},
		{"137 of its own", "sh", "exit 137", nil, audit.StatusExit, 137, "", "code 137"},
		{"255", "sh", "exit 255", nil, audit.StatusExit, 255, "", "code 255"},
		{"exception", "python", "raise ValueError('x')", nil, audit.StatusExit, 1, "", "code 1"},
		{"SIGTERM", "sh", "kill -TERM $$", nil, audit.StatusExit, 143, "SIGTERM", "SIGTERM"},
		{"SIGSEGV", "python", "import ctypes; ctypes.string_at(0)", nil, audit.StatusExit, 139, "SIGSEGV", "SIGSEGV"},
		{"SIGABRT", "python", "import os; os.abort()", nil, audit.StatusExit, 134, "SIGABRT", "SIGABRT"},
		{"SIGKILL from inside", "sh", "kill -KILL $$", nil, audit.StatusKilled, 137, "SIGKILL", "from inside"},
		{"a child is killed, it is not", "sh", "sh -c 'kill -KILL $$'; exit 3", nil, audit.StatusExit, 3, "", "code 3"},
		{"timeout", "sh", "echo before; sleep 60", []string{"--timeout", "2s"}, audit.StatusTimeout, 124, "", "deadline of 2s"},
		{"processor time, of several together", "python", `
import os
for _ in range(3): os.fork()
while True: pass`, []string{"--cpu-time", "700ms", "--cpus", "1"}, audit.StatusCPUTime, 124, "", "had 700ms of processor time"},
		{"processor time, of those that ended, too", "sh", "while :; do (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); done", []string{"--cpu-time", "500ms"}, audit.StatusCPUTime, 124, "", "had 500ms of processor time"},
		{"asleep", "sh", "sleep 1", []string{"--cpu-time", "300ms"}, audit.StatusOK, 0, "", "code 0"},
		{"timeout, deaf and stopped and in the background", "python", `
import os, signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGSTOP)
print("before", flush=True)
time.sleep(60)`, []string{"--timeout", "5s"}, audit.StatusTimeout, 124, "", "deadline of 5s"},
		{"out of memory", "python", "x = bytearray(1 << 40 >> 11); x[::4096] = b'x' * len(x[::4096])", []string{"--memory", "64M", "--scratch", "1M"}, audit.StatusOOM, 137, "SIGKILL", "which is its 64 MiB"},
		{"a child is out of memory", "python", `
import subprocess, sys
p = subprocess.run([sys.executable, "-c", "x = bytearray(500 << 20); x[::4096] = b'x' * len(x[::4096])"])
sys.exit(-p.returncode)`, []string{"--memory", "64M", "--scratch", "1M"}, audit.StatusExit, 9, "", "the kernel ended 1 of its processes for memory"},
		{"processes", "python", `
import os, time
for i in range(100):
    if os.fork() == 0:
        time.sleep(60)`, []string{"--pids", "16"}, audit.StatusPIDs, 1, "", "limit of 16"},
		{"threads", "python", `
import threading, time
for i in range(100): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()`, []string{"--pids", "16"}, audit.StatusPIDs, 1, "", "limit of 16"},
		{"it ends with children that go on", "sh", "(trap '' TERM; sleep 60; echo late) & echo early", nil, audit.StatusOK, 0, "", "code 0"},
		{"it is the syntax that is wrong", "python", "def", nil, audit.StatusExit, 1, "", "code 1"},
		{"a wrong ABI", "python", `
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
m.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3") # getpid by int 0x80
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()`, nil, audit.StatusExit, 159, "SIGSYS", "ABI"},
	} {
		if test.signal == "SIGSYS" && unameMachine(t) != "x86_64" {
			continue // int 0x80 is x86's
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			v := s.verdict(t, test.language, test.code, test.flags...)
			if v.Status != test.status || v.ExitCode != test.exit || v.Signal != test.signal || !strings.Contains(v.Reason, test.reason) {
				t.Errorf("got %s, code %d, signal %q, %q; want %s, %d, %q, %q\nstderr: %s",
					v.Status, v.ExitCode, v.Signal, v.Reason, test.status, test.exit, test.signal, test.reason, v.Stderr.Bytes())
			}
			if (v.Status != audit.StatusOK && v.Status != audit.StatusExit && v.Status != audit.StatusKilled) != (v.Remedy != "") {
				t.Errorf("status %s has the remedy %q", v.Status, v.Remedy)
			}
			if out := string(v.Stdout.Bytes()); test.status == audit.StatusTimeout && out != "before\n" {
				t.Errorf("what was written before the deadline: %q", out)
			}
			if out := string(v.Stdout.Bytes()); strings.Contains(test.code, "late") && out != "early\n" {
				t.Errorf("stdout %q", out)
			}
			if took := time.Since(began); took > 45*time.Second {
				t.Errorf("took %s", took)
			}
			if !v.Audit.Complete || v.Audit.Lost != 0 {
				t.Errorf("the record is not complete: %+v", v.Audit)
			}
			if err := s.populated(v.Run); err != nil {
				t.Errorf("after the verdict: %v", err)
			}
		})
	}
}

func unameMachine(t *testing.T) string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Machine[:])
}

// Runs at the same time see and record themselves alone.
func TestParallelRuns(t *testing.T) {
	s := root(t)
	const runs, atOnce = 24, 8
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			own := fmt.Sprintf("own-%02d", i)
			v := s.verdict(t, "sh", "cat /etc/hostname > /scratch/"+own+"; ls /scratch /tmp /outputs; exit "+fmt.Sprint(i))
			if v.ExitCode != i || string(v.Stdout.Bytes()) != "/outputs:\n\n/scratch:\n"+own+"\n\n/tmp:\n" {
				t.Errorf("%s, code %d, want %d: %s; stdout %q", v.Status, v.ExitCode, i, v.Reason, v.Stdout.Bytes())
				return
			}
			events := s.events(t, v.Run)
			checkRecord(t, v, events)
			for _, e := range events {
				if e.Open != nil && strings.Contains(string(e.Open.Path), "own-") && string(e.Open.Path) != "/scratch/"+own {
					t.Errorf("the record of %s has %s", own, e.Open.Path)
				}
			}
		})
	}
	wg.Wait()
}

// The verdict's JSON is an interface: agents read these names.
func TestVerdictFields(t *testing.T) {
	s := root(t)
	r := s.proctor(t, `
import socket, sys
print("out"); print("err", file=sys.stderr)
open("/outputs/a.txt", "w").write("content")
import os; os.symlink("/etc/passwd", "/outputs/link")
try: socket.create_connection(("198.51.100.7", 4660))
except OSError as e: print(e)
sys.exit(3)`, "run", "--json", "--lang", "python", "-")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"status": "exit", "exit_code": 3.0,
		"reason": "the program ended with code 3; policy refused 1 connection attempts (no network granted)",
		"stdout": "out\n[Errno 1] Operation not permitted\n", "stderr": "err\n",
		"stdout_truncated_bytes": 0.0, "stderr_truncated_bytes": 0.0,
		"image.name": "python-data", "outputs.0.name": "a.txt", "outputs.0.bytes": 7.0,
		"outputs.0.sha256":       hexSum([]byte("content")),
		"outputs_skipped.0.name": "link", "outputs_skipped.0.reason": "a symbolic link, only regular files are handed out",
		"egress.blocked.0.address": "198.51.100.7", "egress.blocked.0.port": 4660.0, "egress.blocked.0.protocol": "tcp",
		"egress.blocked.0.count": 1.0, "egress.blocked.0.rule": "no network granted",
		"audit.lost": 0.0, "audit.complete": true,
	} {
		var at any = got
		for _, key := range strings.Split(path, ".") {
			switch v := at.(type) {
			case map[string]any:
				at = v[key]
			case []any:
				var i int
				fmt.Sscan(key, &i)
				if at = nil; i < len(v) {
					at = v[i]
				}
			default:
				at = nil
			}
		}
		if at != want {
			t.Errorf("%s: got %v, want %v", path, at, want)
		}
	}
	for _, name := range []string{"run", "remedy", "usage", "files", "image"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no %s in %s", name, r.stdout)
		}
	}
	if seal, _ := got["audit"].(map[string]any)["seal"].(string); !strings.HasPrefix(seal, "sha256:") || len(seal) != 7+64 {
		t.Errorf("seal %q", seal)
	}
	if ms := got["usage"].(map[string]any)["wall_ms"].(float64); ms <= 0 || ms > 60_000 {
		t.Errorf("wall_ms %v", ms)
	}
	if n := got["usage"].(map[string]any)["memory_peak_bytes"].(float64); n < 1<<20 || n > 1<<30 {
		t.Errorf("memory_peak_bytes %v", n)
	}
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// What hostile outputs are handed out as.
func TestOutputs(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	to := filepath.Join(dir, "new", "results")
	code := `
import os, socket
os.chdir("/outputs")
os.makedirs("a/b/c"); open("a/b/c/deep", "w").write("deep")
open("good", "w").write("good")
for name in (b"new\nline", b"\x1b[31mred", b"not \xff utf8", b"-rf", "\u202egpj".encode(), b"..\\x", b"Case", b"case"):
    open(name, "wb").write(name)
os.symlink("/etc/passwd", "link"); os.symlink("..", "up"); os.symlink("loop", "loop"); os.symlink("a", "dirlink")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("socket")
os.link("good", "hard")
with open("sparse", "w") as f: f.truncate(1 << 40)
os.makedirs("/".join("d" * 30)); open("/".join("d" * 30) + "/f", "w")
open("secret", "w").write("0600"); os.chmod("secret", 0)
os.mkdir("closed"); open("closed/f", "w").write("closed"); os.chmod("closed", 0)
open("suid", "w").write("suid"); os.chmod("suid", 0o6777)
`
	v := s.verdict(t, "python", code, "--output-dir", to)
	if v.Status != audit.StatusOK {
		t.Fatalf("%s: %s\n%s", v.Status, v.Reason, v.Stderr.Bytes())
	}
	want := map[string]string{
		"a/b/c/deep": "deep", "good": "good", "hard": "good", "secret": "0600", "closed/f": "closed", "suid": "suid",
		"new\nline": "new\nline", "\x1b[31mred": "\x1b[31mred", "not \xff utf8": "not \xff utf8", "-rf": "-rf",
		"\u202egpj": "\u202egpj", `..\x`: `..\x`, "Case": "Case", "case": "case",
	}
	got := map[string]string{}
	for _, o := range v.Outputs {
		data, err := os.ReadFile(filepath.Join(to, string(o.Name)))
		if err != nil {
			t.Error(err)
			continue
		}
		if hexSum(data) != o.SHA256 || int64(len(data)) != o.Bytes {
			t.Errorf("%q: sha256 or size differ from the verdict's", o.Name)
		}
		got[string(o.Name)] = string(data)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("outputs:\n got %q\nwant %q", got, want)
	}
	skipped := map[string]bool{}
	for _, o := range v.Skipped {
		skipped[string(o.Name)] = true
	}
	for _, name := range []string{"link", "up", "loop", "dirlink", "fifo", "socket", "sparse", strings.Repeat("d/", 16) + "d"} {
		if !skipped[name] {
			t.Errorf("%s is not named among what is refused: %q", name, v.Skipped)
		}
	}
	for _, f := range tree(to) {
		info, err := os.Lstat(f)
		if err != nil || !(info.IsDir() || info.Mode().IsRegular()) || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%q was written as %v, %v", f, info.Mode(), err)
		}
	}

	// What is there stays; what can be written is.
	if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "trap")); err != nil {
		t.Fatal(err)
	}
	r := s.proctor(t, "mkdir /outputs/trap; for f in mine other trap/proctor-was-here; do echo theirs > /outputs/$f; done",
		"run", "--lang", "sh", "--output-dir", dir, "-")
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	if r.code != 125 || len(lines) != 2 || !strings.HasPrefix(lines[1], `proctor: output "mine": exists already and is not replaced: choose an empty --output-dir (2 of 3 outputs not written`) {
		t.Errorf("exit code %d, stderr:\n%s", r.code, r.stderr)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "mine")); string(data) != "mine" {
		t.Errorf("the file that was there now holds %q", data)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "other")); string(data) != "theirs\n" {
		t.Errorf("the other output holds %q", data)
	}
	if _, err := os.Lstat("/etc/proctor-was-here"); err == nil {
		t.Error("an output was written through a link")
	}
}

// 5,000 outputs and 200 levels are counted, and neither stalls nor fails the run.
func TestManyOutputs(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "python", `
import os
for i in range(5000): open(f"/outputs/{i:04}", "w").write("x")
`)
	if v.Status != audit.StatusOK || len(v.Outputs) != 1000 || len(v.Skipped) != 100 || v.SkippedMore != 3900 {
		t.Errorf("%s: %s; %d outputs, %d skipped and %d more", v.Status, v.Reason, len(v.Outputs), len(v.Skipped), v.SkippedMore)
	}
}

// Arguments are the program's, byte for byte.
func TestArguments(t *testing.T) {
	s := root(t)
	args := []string{"", "-x", "--json", "--", "a b", "new\nline", "\xff", "ü", `back\slash`, "*", strings.Repeat("a", 128<<10-1)}
	v := s.verdict(t, "python", "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))", append([]string{"--"}, args...)...)
	if got, want := string(v.Stdout.Bytes()), strings.Join(args, "\x00"); got != want {
		t.Errorf("got %.200q\nwant %.200q", got, want)
	}
	// More than the kernel takes at once, which only another client can ask for.
	q := &api.RunRequest{Language: "sh", Name: "x.sh", Code: []byte("true")}
	for range 30 {
		q.Args = append(q.Args, audit.Text(strings.Repeat("b", 100<<10)))
	}
	nothing := func([]byte) error { return nil }
	_, err := (&api.Client{Socket: s.socket}).Run(t.Context(), q, nil, api.RunHandler{Admitted: func(string) {}, Stdout: nothing, Stderr: nothing})
	if want := "arguments of more than 1048576 bytes together: at most that many: pass them in an input file"; err == nil || err.Error() != want {
		t.Errorf("3 MB of arguments:\n got %v\nwant %s", err, want)
	}
}

// The streams: raw bytes, both apart, an end of file on stdin, and a cap that stalls nothing.
func TestStreams(t *testing.T) {
	s := root(t)
	t.Run("passed through", func(t *testing.T) {
		r := s.proctor(t, `printf 'out\377\033[31m\n'; printf 'err\r\n' >&2; exit 7`, "run", "--lang", "sh", "-")
		lines := strings.SplitAfter(r.stderr, "\n")
		if r.code != 7 || r.stdout != "out\xff\x1b[31m\n" || len(lines) != 3 || lines[0] != "err\r\n" ||
			!strings.HasPrefix(lines[1], "proctor: run ") || !strings.Contains(lines[1], ": exit, exit code 7, in ") {
			t.Errorf("code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("live", func(t *testing.T) {
		cmd := s.command(t.Context(), "run", "--lang", "sh", "-")
		cmd.Stdin = strings.NewReader("echo first; sleep 60")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 6)
		if _, err := out.Read(line); err != nil || string(line) != "first\n" {
			t.Errorf("read %q, %v", line, err)
		}
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
	t.Run("stdin", func(t *testing.T) {
		if v := s.verdict(t, "python", "import sys; print(repr(sys.stdin.read()))"); string(v.Stdout.Bytes()) != "''\n" {
			t.Errorf("a program read %q", v.Stdout.Bytes())
		}
	})
	t.Run("not UTF-8", func(t *testing.T) {
		want := "a\xff\x00\xe2\x82b\n"
		r := s.proctor(t, `printf 'a\377\000\342\202b\n'`, "run", "--json", "--lang", "sh", "-")
		if !json.Valid([]byte(r.stdout)) {
			t.Fatalf("not JSON: %q", r.stdout)
		}
		if got := string(parseVerdict(t, r.stdout).Stdout.Bytes()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		var raw struct {
			Base64 []byte `json:"stdout_base64"`
		}
		if err := json.Unmarshal([]byte(r.stdout), &raw); err != nil || string(raw.Base64) != want {
			t.Errorf("stdout_base64 is %q, %v", raw.Base64, err)
		}
	})
	t.Run("2 GB", func(t *testing.T) {
		before := residentPeak(t, s)
		const size = 2 << 30
		v := s.verdict(t, "python", `
import os, sys, threading
def write(fd, end):
    block = b"x" * 65536
    for i in range(1 << 14): os.write(fd, block)
    os.write(fd, end)
threads = [threading.Thread(target=write, args=a) for a in ((1, b"OUT"), (2, b"ERR"))]
[x.start() for x in threads]; [x.join() for x in threads]`)
		for _, o := range []audit.Output{v.Stdout, v.Stderr} {
			if o.Total != size/2+3 || o.Truncated() != size/2+3-1<<20 || len(o.Bytes()) != 1<<20 {
				t.Errorf("%d bytes in all, %d kept", o.Total, len(o.Bytes()))
			}
		}
		if !bytes.HasSuffix(v.Stdout.Tail, []byte("xOUT")) || !bytes.HasSuffix(v.Stderr.Tail, []byte("xERR")) {
			t.Errorf("the tails end %q and %q", last(v.Stdout.Tail), last(v.Stderr.Tail))
		}
		if v.Status != audit.StatusOK {
			t.Errorf("%s: %s", v.Status, v.Reason)
		}
		if grown := residentPeak(t, s) - before; grown > 32<<20 {
			t.Errorf("the supervisor's memory grew by %d MiB", grown>>20)
		}
	})
	// What is kept ends and begins again within a character: nothing of its bytes is lost.
	t.Run("a character split at the cap", func(t *testing.T) {
		const head, tail = 3 << 18, 1 << 18
		r := s.proctor(t, `print("a" + "é" * (1 << 19) + "日" * (1 << 19) + "bc", end="")`, "run", "--json", "--lang", "python", "-")
		wrote := []byte("a" + strings.Repeat("é", 1<<19) + strings.Repeat("日", 1<<19) + "bc")
		if !json.Valid([]byte(r.stdout)) || !utf8.ValidString(r.stdout) {
			t.Fatalf("not JSON in UTF-8: %.200q", r.stdout)
		}
		o := parseVerdict(t, r.stdout).Stdout
		if !bytes.Equal(o.Head, wrote[:head]) || !bytes.Equal(o.Tail, wrote[len(wrote)-tail:]) || o.Total != int64(len(wrote)) {
			t.Errorf("%d, %d and %d bytes; the head ends %q, the tail begins %.12q", len(o.Head), len(o.Tail), o.Total, last(o.Head), o.Tail)
		}
		if utf8.Valid(o.Head) || utf8.Valid(o.Tail) {
			t.Error("no character was split")
		}
	})
	t.Run("stdout is closed", func(t *testing.T) {
		cmd := exec.Command("/bin/sh", "-c", `"$0" run --lang sh - | head -c 1 >/dev/null`, filepath.Join(s.bin, "proctor"))
		cmd.Env = append(cleanEnv(), "PROCTOR_SOCKET="+s.socket)
		began := time.Now()
		finish(t, cmd, "while :; do echo y; done")
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("a client whose reader has gone went on for %s", took)
		}
	})
}

func last(b []byte) []byte { return b[max(0, len(b)-8):] }

// residentPeak resets the supervisor's peak of resident memory, after reading it.
func residentPeak(t *testing.T, s *supervisor) int {
	t.Helper()
	pid := s.cmd.Process.Pid
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	for line := range strings.Lines(string(data)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
