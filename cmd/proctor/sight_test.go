package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"proctor/audit"
	"proctor/testenv"
)

// flood loads the record with failing opens of names that are too long to be folded, from six
// processes, and then tries to connect 300 times.
const flood = `
import os, socket, time
name = b"/" + b"\xff" * 200
path = name * 19
for _ in range(6):
    if os.fork() == 0:
        while True:
            try: os.open(path, 0)
            except OSError: pass
time.sleep(2)
for _ in range(300):
    try: socket.socket().connect(("198.51.100.7", 443))
    except PermissionError: pass
os._exit(0)
`

func TestFloodEndsTheRun(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "python", flood)
	if v.Status != audit.StatusAuditLimit || v.ExitCode != 137 || v.Audit.Complete {
		t.Errorf("%s, %d, complete %v: %s", v.Status, v.ExitCode, v.Audit.Complete, v.Reason)
	}
	if v.Audit.Lost == 0 && v.Audit.Events <= 250_000 {
		t.Errorf("ended without a reason: %+v", v.Audit)
	}
}

// Where the policy lets a run go on, what it hides behind a flood is counted by kind.
func TestFloodHidesNothing(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	config := filepath.Join(dir, "proctor.yaml")
	if err := os.WriteFile(config, []byte("on_audit_loss: mark\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := describe(t, dir, pickImages(t, dir, "python-data"))
	s.flags = []string{"--config", config}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}()
	s.showLog(t)
	v := s.verdict(t, "python", flood, "--audit-events", "20000")
	if v.Status != audit.StatusOK {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	var seen int64
	for _, d := range v.Egress.Blocked {
		seen += d.Count
	}
	if lost := v.Audit.LostByKind[audit.KindConnect]; seen == 0 && lost == 0 {
		t.Errorf("300 refused attempts are neither listed nor counted as lost: %+v", v.Audit)
	} else if lost > 0 && !strings.Contains(v.Reason, fmt.Sprintf("%d connection attempts among them", lost)) {
		t.Errorf("the reason is %q", v.Reason)
	}
	if !strings.Contains(v.Reason, " of its acts are not in its record, which may have 20000 (--audit-events)") {
		t.Errorf("the reason is %q", v.Reason)
	}
	var lost uint64
	for _, n := range v.Audit.LostByKind {
		lost += n
	}
	if lost != v.Audit.Lost || v.Audit.Complete || lost == 0 {
		t.Errorf("lost %d by kind, %d in all, complete %v", lost, v.Audit.Lost, v.Audit.Complete)
	}
	if got := uint64(len(s.events(t, v.Run))) - 2; got != v.Audit.Events-v.Audit.Lost || got > 20_000 {
		t.Errorf("the record has %d events, the verdict %+v", got, v.Audit.Counts)
	}
}

func TestAuditLimit(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "python", `
import os
for i in range(100000):
    try: os.open(f"/none/{i}", 0)
    except OSError: pass
`, "--audit-events", "2000")
	if v.Status != audit.StatusAuditLimit || v.ExitCode != 137 || !strings.Contains(v.Reason, "more than the 2000 recorded acts") || !strings.Contains(v.Remedy, "--audit-events") {
		t.Errorf("%s, %d: %s; %s", v.Status, v.ExitCode, v.Reason, v.Remedy)
	}
	if v.Audit.Complete || v.Audit.Events-v.Audit.Lost != 2000 {
		t.Errorf("%+v", v.Audit)
	}
}

// A loop costs the record little, and nothing of it is missing.
func TestLoopIsFolded(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "python", `
import os, socket
for _ in range(50000):
    os.close(os.open("/etc/passwd", 0))
for _ in range(500):
    s = socket.socket()
    try: s.connect(("198.51.100.7", 443))
    except PermissionError: pass
    s.close()
`)
	if v.Status != audit.StatusOK || !v.Audit.Complete || v.Audit.Folded < 50_000 || v.Audit.Events > 5_000 {
		t.Errorf("%s: %+v", v.Status, v.Audit)
	}
	if len(v.Egress.Blocked) != 1 || v.Egress.Blocked[0].Count != 500 {
		t.Errorf("blocked: %+v", v.Egress.Blocked)
	}
	var opens, connects uint64
	for _, e := range s.events(t, v.Run) {
		switch {
		case e.Open != nil && e.Open.Path == "/etc/passwd":
			opens += e.Acts()
		case e.Kind == audit.KindConnect:
			connects += e.Acts()
			if !strings.HasPrefix(string(e.Process.File), "/usr/bin/python3") || len(e.Process.Argv) != 2 {
				t.Errorf("process is %+v", *e.Process)
			}
		}
	}
	if opens < 50_000 || connects != 500 {
		t.Errorf("%d opens, %d connects", opens, connects)
	}
}

// foreignCalls tries what a box does not have. The 32-bit call is made by machine code: in a
// process of one thread, and in one thread of two.
const foreignCalls = `
import ctypes, mmap, os, socket, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    r = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    assert r == -1, number
for number in NUMBERS:
    call(number, 0x10, 0x20, 0x30)
buf = ctypes.create_string_buffer(88)
buf[0:8] = (0x10000000).to_bytes(8, "little") # CLONE_NEWUSER
libc.syscall(ctypes.c_long(435), buf, ctypes.c_long(88))
for family, kind, protocol in (17, 3, 768), (40, 1, 0), (2, 3, 1), (2, 1, 262), (16, 3, 9):
    try: socket.socket(family, kind, protocol)
    except OSError: pass
    else: raise SystemExit("socket %d made" % family)
try: os.setuid(0)
except PermissionError: pass
if MACHINE:
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3")) # mov $20, %eax; int $0x80; ret
    foreign = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    if os.fork() == 0:
        foreign()
        os._exit(0)
    if os.fork() == 0:
        # Not Python's: a thread that never ends would hold its lock.
        threading.Thread(target=foreign, daemon=True).start()
        import time
        time.sleep(0.5)
        os._exit(0)
    os.wait(); os.wait()
`

func TestRefusedCallsAreSeen(t *testing.T) {
	s := root(t)
	calls := map[string]int{ // x86-64
		"ptrace": 101, "mount": 165, "unshare": 272, "setns": 308, "keyctl": 250, "add_key": 248, "bpf": 321, "perf_event_open": 298,
		"io_uring_setup": 425, "io_uring_enter": 426, "userfaultfd": 323, "open_by_handle_at": 304, "name_to_handle_at": 303,
		"process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438, "open_tree": 428, "fsopen": 430, "pivot_root": 155,
		"chroot": 161, "umount2": 166, "syslog": 103, "sethostname": 170, "reboot": 169, "iopl": 172, "kcmp": 312,
		"fanotify_init": 300, "swapon": 167, "acct": 163, "quotactl": 179, "modify_ldt": 154, "settimeofday": 164, "memfd_secret": 447,
	}
	if runtime.GOARCH != "amd64" {
		t.Fatal("the numbers are those of x86-64: add this architecture's")
	}
	var numbers []string
	for _, n := range calls {
		numbers = append(numbers, fmt.Sprint(n))
	}
	v := s.verdict(t, "python", "NUMBERS = ["+strings.Join(numbers, ",")+"]\nMACHINE = True\n"+foreignCalls)
	if v.Status != audit.StatusOK || !v.Audit.Complete {
		t.Fatalf("%s: %s\n%s", v.Status, v.Reason, v.Stderr.Bytes())
	}
	seen := map[string][]audit.Refused{}
	for _, e := range s.events(t, v.Run) {
		if e.Kind == audit.KindRefused {
			seen[e.Refused.Call] = append(seen[e.Refused.Call], *e.Refused)
			if e.Process.File == "" || e.Process.PID < 2 {
				t.Errorf("%s was tried by %+v", e.Refused.Call, *e.Process)
			}
		}
	}
	for call, number := range calls {
		want := audit.Refused{Call: call, Number: uint32(number), ABI: "x86_64", Errno: "EPERM"}
		got := seen[call]
		if len(got) != 1 || got[0].Number != want.Number || got[0].ABI != want.ABI || got[0].Errno != want.Errno || !slices.Equal(got[0].Args[:3], []string{"0x10", "0x20", "0x30"}) {
			t.Errorf("%s: %+v", call, got)
		}
	}
	if got := seen["clone3"]; len(got) != 1 || got[0].Errno != "ENOSYS" {
		t.Errorf("clone3: %+v", got)
	}
	if got := seen["setuid"]; len(got) != 1 || got[0].Errno != "EPERM" {
		t.Errorf("setuid: %+v", got)
	}
	var sockets []audit.Socket
	for _, r := range seen["socket"] {
		sockets = append(sockets, *r.Socket)
	}
	if want := []audit.Socket{{Family: "AF_PACKET", Type: "SOCK_RAW", Protocol: 768}, {Family: "AF_VSOCK", Type: "SOCK_STREAM", Protocol: 0}, {Family: "AF_INET", Type: "SOCK_RAW", Protocol: 1}, {Family: "AF_INET", Type: "SOCK_STREAM", Protocol: 262}, {Family: "AF_NETLINK", Type: "SOCK_RAW", Protocol: 9}}; !slices.Equal(sockets, want) {
		t.Errorf("sockets: %+v", sockets)
	}
	// 20 is getpid there, and writev here.
	var foreign int
	for _, r := range seen["getpid"] {
		if r.ABI == "i386" && r.Number == 20 && r.Signal == "SIGSYS" {
			foreign++
		}
	}
	if foreign != 2 {
		t.Errorf("i386: %+v", seen["getpid"])
	}
	if !slices.ContainsFunc(v.Refused, func(r audit.RefusedCall) bool { return r.Call == "bpf" && r.Count == 1 }) ||
		!slices.ContainsFunc(v.Refused, func(r audit.RefusedCall) bool { return r.Call == "getpid (i386)" && r.Count == 2 }) {
		t.Errorf("the verdict has %+v", v.Refused)
	}
}

// A process cannot leave its cgroup, and what it tries then is still its run's.
func TestCgroupIsNotLeft(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "python", `
import os, socket
for path in "/sys/fs/cgroup", "/sys/fs/cgroup/x", "/proc/self/cgroup":
    try: os.mkdir(path)
    except OSError as e: print(path, e.errno)
for path in "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs":
    try: open(path, "w").write(str(os.getpid()))
    except OSError as e: print(path, e.errno)
try: socket.socket().connect(("198.51.100.7", 443))
except PermissionError: print("blocked")
`)
	if v.Status != audit.StatusOK || !strings.Contains(string(v.Stdout.Bytes()), "blocked") || len(v.Egress.Blocked) != 1 {
		t.Errorf("%s: %s\n%s%s", v.Status, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes())
	}
}
