package main_test

import (
	"strings"
	"testing"
	"time"

	"proctor/audit"
)

// C1, C6: whatever a run leaves behind or has become, its end does not wait for it, and nothing
// of it stays. (That nothing stays is what root's checks are for.)
func TestLingerers(t *testing.T) {
	s := root(t)
	const deaf = `
import ctypes, os, signal, sys, time
def deaf():
    for n in range(1, 65):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    deaf() # a daemon that holds stdout
    if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)
    if os.fork() == 0: ctypes.CDLL(None).vfork() or signal.pause() # its parent waits where only SIGKILL reaches it
    os.mkfifo("/scratch/fifo")
    if os.fork() == 0: open("/scratch/fifo")
    r, w = os.pipe()
    if os.fork() == 0: os.write(w, bytes(1 << 20))
    while True:
        time.sleep(40)
        print("late", flush=True)
time.sleep(0.3)
print("main", flush=True)
`
	for name, test := range map[string]struct {
		end    string
		flags  []string
		status audit.Status
		code   int
		least  time.Duration
	}{
		"it ends":              {"os._exit(0)", nil, audit.StatusOK, 0, 0},
		"it ends with a code":  {"os._exit(9)", nil, audit.StatusExit, 9, 0},
		"its deadline ends it": {"deaf()\ntime.sleep(60)", []string{"--timeout", "4s"}, audit.StatusTimeout, 124, 4 * time.Second},
		"it is stopped, too":   {"os.kill(os.getpid(), signal.SIGSTOP)", []string{"--timeout", "4s"}, audit.StatusTimeout, 124, 4 * time.Second},
		"it waits for a vfork": {"ctypes.CDLL(None).vfork() or signal.pause()", []string{"--timeout", "4s"}, audit.StatusTimeout, 124, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			v := s.verdict(t, "python", deaf+test.end, test.flags...)
			took := time.Since(began)
			if v.Status != test.status || v.ExitCode != test.code || string(v.Stdout.Bytes()) != "main\n" {
				t.Errorf("%s, code %d: %s; %q, %s", v.Status, v.ExitCode, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes())
			}
			if took < test.least || took > test.least+20*time.Second {
				t.Errorf("the verdict came after %s", took)
			}
			if err := s.populated(v.Run); err != nil {
				t.Errorf("after the verdict: %v", err)
			}
		})
	}
}

// C2: a flood of processes stops at the limit with an error that programs know, and one that
// never stops can be ended, and keeps nothing from the next run.
func TestForkFlood(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "python", `
import errno, os, signal, threading
children = []
try:
    while True:
        child = os.fork()
        if child == 0: signal.pause()
        children.append(child)
except OSError as e: print(len(children), errno.errorcode[e.errno])
try: threading.Thread(target=print).start()
except RuntimeError as e: print(e)
for child in children: os.kill(child, 9); os.waitpid(child, 0)
print(os.system("exit 3") >> 8)`, "--pids", "40")
	// One is init, one the program.
	if got, want := string(v.Stdout.Bytes()), "38 EAGAIN\ncan't start new thread\n3\n"; v.Status != audit.StatusOK || got != want || v.Usage.ProcessesPeak != 40 {
		t.Errorf("%s: got %q, want %q; %d processes", v.Status, got, want, v.Usage.ProcessesPeak)
	}
	flood := s.background(t, `: >/scratch/up; exec python3 -c '
import os
while True:
    try: os.fork()
    except OSError: pass'`, "--image", "python-data", "--pids", "200", "--timeout", "50s")
	time.Sleep(300 * time.Millisecond)
	if v := s.verdict(t, "sh", "echo beside"); v.Status != audit.StatusOK {
		t.Errorf("a run beside a flood: %s: %s", v.Status, v.Reason)
	}
	began := time.Now()
	if r := s.proctor(t, "", "kill", flood.run); r.code != 0 {
		t.Error(r.stderr)
	}
	if v := flood.wait(t); v.Status != audit.StatusKilled || v.ExitCode != 137 || !strings.Contains(v.Reason, "proctor kill") {
		t.Errorf("a flood that was ended: %s, code %d: %s", v.Status, v.ExitCode, v.Reason)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("ending it took %s", took)
	}
	if v := s.verdict(t, "sh", "echo after"); v.Status != audit.StatusOK {
		t.Errorf("the next run: %s: %s", v.Status, v.Reason)
	}
}

// C7: all of these are a process that SIGKILL ended. Each is told, and recorded, as what it was.
func TestReasonsOfSIGKILL(t *testing.T) {
	s := root(t)
	const eat = "x = bytearray(500 << 20); x[::4096] = b'x' * len(x[::4096])"
	small := []string{"--memory", "64M", "--scratch", "1M"}
	verdicts := map[string]*audit.Verdict{
		"memory":            s.verdict(t, "python", eat, small...),
		"a child's memory":  s.verdict(t, "sh", "echo begin; python3 -c \""+eat+"\"", append(small, "--image", "python-data")...),
		"one that survived": s.verdict(t, "sh", "python3 -c \""+eat+"\"; echo $?", append(small, "--image", "python-data")...),
		"itself":            s.verdict(t, "sh", "kill -KILL $$"),
		"deadline":          s.verdict(t, "sh", "while :; do :; done", "--timeout", "300ms"),
		"processor time":    s.verdict(t, "sh", "while :; do :; done", "--cpu-time", "300ms"),
	}
	killed := s.background(t, busy)
	if r := s.proctor(t, "", "kill", killed.run); r.code != 0 {
		t.Error(r.stderr)
	}
	verdicts["an operator"] = killed.wait(t)
	seen := map[string]string{}
	for name, want := range map[string]struct {
		status audit.Status
		code   int
		reason string
		ooms   int64
	}{
		"memory":            {audit.StatusOOM, 137, "which is its 64 MiB of memory", 1},
		"a child's memory":  {audit.StatusOOM, 137, "which is its 64 MiB of memory", 1},
		"one that survived": {audit.StatusOK, 0, "code 0; the kernel ended 1 of its processes for memory", 1},
		"itself":            {audit.StatusKilled, 137, "SIGKILL from inside", 0},
		"deadline":          {audit.StatusTimeout, 124, "its deadline of 300ms", 0},
		"processor time":    {audit.StatusCPUTime, 124, "300ms of processor time", 0},
		"an operator":       {audit.StatusKilled, 137, "proctor kill", 0},
	} {
		v := verdicts[name]
		if v.Status != want.status || v.ExitCode != want.code || !strings.Contains(v.Reason, want.reason) || v.Usage.OOMKills != want.ooms {
			t.Errorf("%s: %s, code %d, %d OOM kills: %s", name, v.Status, v.ExitCode, v.Usage.OOMKills, v.Reason)
		}
		events := s.events(t, v.Run)
		if end := events[len(events)-1].End; end == nil || end.Status != string(v.Status) || end.Reason != v.Reason {
			t.Errorf("%s: the record ends %+v", name, end)
		}
		if other, same := seen[v.Reason]; same && name != "a child's memory" && other != "a child's memory" {
			t.Errorf("%s and %s have one reason: %s", name, other, v.Reason)
		}
		seen[v.Reason] = name
	}
}

// What a run may have of processors and open files is what it gets.
func TestShares(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "python", "import os\nfor _ in range(3): os.fork()\nwhile True: pass", "--cpus", "0.25", "--timeout", "6s")
	if share := float64(v.Usage.CPUMS) / float64(v.Usage.WallMS); v.Status != audit.StatusTimeout || share > 0.4 {
		t.Errorf("%s; with a quarter of a processor eight processes had %.2f", v.Status, share)
	}
	v = s.verdict(t, "python", `
import errno, os, resource
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e: held, n = [], os.close(held[0]) or len(held); print(errno.errorcode[e.errno], n + 3, *resource.getrlimit(resource.RLIMIT_NOFILE))
for n in range(3, 3000):
    try: os.close(n)
    except OSError: pass
try: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))
except (OSError, ValueError) as e: print("no more")`)
	if got, want := string(v.Stdout.Bytes()), "EMFILE 1024 1024 4096\nno more\n"; got != want {
		t.Errorf("%s: got %q, want %q; %s", v.Status, got, want, v.Stderr.Bytes())
	}
}
