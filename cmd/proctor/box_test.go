package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// probe looks around in a box and prints what it found as JSON: for each attempt the name
// of the error, or "worked", or a value.
const probe = `
import ctypes, errno, json, os, socket, struct, sys, platform
libc = ctypes.CDLL(None, use_errno=True)
found = {}
found["fds"] = sorted(int(f) for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f))

def attempt(name, f):
    try:
        r = f()
        found[name] = "worked" if r is None or not isinstance(r, (str, int, list)) else r
    except OSError as e:
        found[name] = errno.errorcode.get(e.errno, str(e.errno))
    except Exception as e:
        found[name] = repr(e)

def call(number, *args):
    def f():
        args_ = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in args]
        r = libc.syscall(ctypes.c_long(number), *args_)
        if r == -1:
            raise OSError(ctypes.get_errno(), "")
    return f

def read(path, n=100):
    with open(path, "rb") as f: return f.read(n).decode("latin-1")

def write(path, data=b"x"):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, data)

def create(path):
    open(path, "w").close()
    os.unlink(path)

# The file system.
for d in ("/", "/usr", "/etc", "/root", "/home", "/var", "/run", "/code", "/inputs", "/dev", "/sys", "/.proctor", "/.proctor/ctl", "/proc", "/opt"):
    attempt("create " + d, lambda: create(d + "/x"))
for d in ("/scratch", "/tmp", "/var/tmp", "/outputs", "/dev/shm"):
    attempt("create " + d, lambda: create(d + "/x"))
attempt("append code", lambda: open(sys.argv[0], "a"))
attempt("write init", lambda: open("/.proctor/init", "r+"))
attempt("write passwd", lambda: open("/etc/passwd", "a"))
attempt("mknod", lambda: os.mknod("/scratch/null", 0o20666, os.makedev(1, 3)))
attempt("mknod block", lambda: os.mknod("/scratch/disk", 0o60666, os.makedev(254, 0)))
found["dev"] = sorted(os.listdir("/dev"))
found["inputs"] = sorted(os.listdir("/inputs"))
found["mounts"] = [l.rstrip("\n") for l in open("/proc/self/mountinfo")]
found["control"] = os.listdir("/.proctor/ctl")
found["masked"] = {p: (os.listdir(p) if os.path.isdir(p) else read(p)) for p in
    ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kallsyms", "/proc/cmdline", "/proc/modules", "/proc/interrupts", "/proc/sysvipc") if os.path.exists(p)}
for p in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/irq/default_smp_affinity", "/proc/self/oom_score_adj"):
    if os.path.exists(p): attempt("write " + p, lambda: write(p, b"-1000"))
found["firmware"] = os.path.exists("/sys/firmware")
found["cgroupfs"] = os.path.exists("/sys/fs/cgroup")
attempt("write cgroup.procs", lambda: write("/sys/fs/cgroup/cgroup.procs", b"1"))

# Rights.
status = dict(l.split(":", 1) for l in read("/proc/self/status", 10000).splitlines())
found["status"] = {k: status[k].strip() for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups")}
attempt("setuid", lambda: os.setuid(0))
attempt("setgid", lambda: os.setgid(0))

# What was inherited.
found["fd kinds"] = [os.readlink("/proc/self/fd/%d" % i).split(":")[0] for i in (0, 1, 2)]
found["environment"] = dict(os.environ)
found["core"] = __import__("resource").getrlimit(__import__("resource").RLIMIT_CORE)

# Process 1 and its relatives.
for f in ("mem", "environ", "maps", "auxv", "syscall", "stack", "pagemap"):
    attempt("read init " + f, lambda: read("/proc/1/" + f))
attempt("list init fd", lambda: os.listdir("/proc/1/fd"))
attempt("init exe", lambda: os.readlink("/proc/1/exe"))
attempt("init root", lambda: os.listdir("/proc/1/root"))
for sig in (9, 15, 19, 11, 2):
    attempt("signal init %d" % sig, lambda: os.kill(1, sig))
found["init lives"] = os.path.exists("/proc/1")
found["pid"] = os.getpid()
found["ppid"] = os.getppid()
found["processes"] = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
pidfd = os.pidfd_open(1)
attempt("pidfd_getfd", call(438, pidfd, 0, 0))

# Kernel surface.
x86 = platform.machine() == "x86_64"
numbers = dict(
    ptrace=101, mount=165, umount2=166, pivot_root=155, chroot=161, unshare=272, setns=308, bpf=321, perf_event_open=298,
    userfaultfd=323, keyctl=250, add_key=248, request_key=249, io_uring_setup=425, io_uring_enter=426, io_uring_register=427,
    open_tree=428, move_mount=429, fsopen=430, fsconfig=431, fsmount=432, fspick=433, mount_setattr=442, open_by_handle_at=304,
    name_to_handle_at=303, process_vm_readv=310, process_vm_writev=311, kcmp=312, fanotify_init=300, init_module=175,
    finit_module=313, kexec_load=246, reboot=169, swapon=167, acct=163, syslog=103, iopl=172, ioperm=173, modify_ldt=154, vhangup=153,
    settimeofday=164, clock_settime=227, sethostname=170, setdomainname=171, quotactl=179, memfd_secret=447, process_madvise=440) if x86 else dict(
    ptrace=117, mount=40, umount2=39, pivot_root=41, chroot=51, unshare=97, setns=268, bpf=280, perf_event_open=241, userfaultfd=282,
    keyctl=219, io_uring_setup=425, open_tree=428, fsopen=430, open_by_handle_at=265, process_vm_readv=270, kcmp=272)
found["calls"] = {}
for name, n in numbers.items():
    attempt("call", call(n, 0, 0, 0, 0, 0))
    found["calls"][name] = found.pop("call")
attempt("clone3", call(435, 0, 0))
attempt("clone NEWUSER", call(56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0))
attempt("x32", call(0x40000000 | 39)) if False else None
attempt("personality 32", call(135 if x86 else 92, 8))
found["families"] = []
for family in range(1, 48):
    for kind in (1, 2, 3, 4, 5):
        for protocol in (0, 1, 6, 17, 132, 136, 255, 262):
            try:
                socket.socket(family, kind, protocol).close()
                found["families"].append([family, kind, protocol])
            except OSError as e:
                pass

# The network.
found["interfaces"] = [n for _, n in socket.if_nameindex()]
found["routes"] = read("/proc/net/route", 10000).count("\n") - 1
found["hostname"] = socket.gethostname()
found["unix sockets"] = read("/proc/net/unix", 10000).count("\n") - 1
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
found["loopback"] = "worked"
found["cpus"] = [len(os.sched_getaffinity(0)), os.cpu_count()]
found["namespaces"] = {n: os.stat("/proc/self/ns/" + n).st_ino for n in ("net", "pid", "mnt", "ipc", "uts", "user", "cgroup")}
json.dump(found, sys.stdout)
`

func TestBox(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	input := filepath.Join(dir, "data.csv")
	if err := os.WriteFile(input, []byte("a,b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	v := s.verdict(t, "python", probe, "--input", input, "--cpus", "1")
	if v.Status != audit.StatusOK {
		t.Fatalf("%s: %s\n%s", v.Status, v.Reason, v.Stderr.Bytes())
	}
	var found map[string]any
	if err := json.Unmarshal(v.Stdout.Bytes(), &found); err != nil {
		t.Fatalf("%v\n%s", err, v.Stdout.Bytes())
	}
	expect := func(want string, names ...string) {
		t.Helper()
		for _, name := range names {
			if got := fmt.Sprint(found[name]); !regexp.MustCompile("^(" + want + ")$").MatchString(got) {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	refused := "EPERM|EACCES|EROFS|ENOENT"
	for name := range found {
		if strings.HasPrefix(name, "create /") {
			switch strings.TrimPrefix(name, "create ") {
			case "/scratch", "/tmp", "/var/tmp", "/outputs", "/dev/shm":
				expect("worked", name)
			default:
				expect(refused, name)
			}
		}
		if strings.HasPrefix(name, "write ") || strings.HasPrefix(name, "read init ") {
			if name == "read init maps" { // without a right to it, the file is there and empty
				expect(refused+"|", name)
				continue
			}
			expect(refused, name)
		}
		// A signal to PID 1 without a handler is taken and ignored, or refused.
		if strings.HasPrefix(name, "signal init ") {
			expect("worked|EPERM", name)
		}
	}
	expect(refused, "append code", "write init", "write passwd", "list init fd", "init exe", "init root", "setuid", "setgid", "mknod", "mknod block")
	expect("EPERM", "pidfd_getfd", "clone NEWUSER", "personality 32")
	expect("ENOSYS", "clone3")
	expect("true", "init lives")
	expect("false", "firmware", "cgroupfs")
	expect(`\[data.csv\]`, "inputs")
	expect(`\[\]`, "control")
	expect(`\[fd full null ptmx random shm stderr stdin stdout tty urandom zero\]`, "dev")
	expect(`\[0 1 2\]`, "fds")
	expect(`\[pipe pipe pipe\]`, "fd kinds")
	expect(`\[1 1\]`, "core") // see docs/privilege.md
	expect("1", "ppid")
	expect(`\[1 \d+\]`, "processes")
	expect(`\[lo\]`, "interfaces")
	expect("0", "routes")
	expect("box", "hostname")
	expect("worked", "loopback")
	expect("map[[]CapAmb:0000000000000000 CapBnd:0000000000000000 CapEff:0000000000000000 CapInh:0000000000000000 CapPrm:0000000000000000 Gid:1000\t1000\t1000\t1000 Groups:(1000)? NoNewPrivs:1 Seccomp:2 Uid:1000\t1000\t1000\t1000[]]", "status")
	if cpus := fmt.Sprint(found["cpus"]); !strings.HasPrefix(cpus, "[1 ") {
		t.Errorf("with --cpus 1 a program sees %s processors", cpus)
	}
	for name, got := range found["calls"].(map[string]any) {
		if got != "EPERM" && got != "ENOSYS" {
			t.Errorf("system call %s: %v", name, got)
		}
	}
	for path, content := range found["masked"].(map[string]any) {
		if s := fmt.Sprint(content); s != "" && s != "[]" {
			t.Errorf("%s shows %.60q", path, s)
		}
	}
	for _, f := range found["families"].([]any) {
		switch family := int(f.([]any)[0].(float64)); family {
		case unix.AF_UNIX:
		case unix.AF_INET, unix.AF_INET6:
			if g := fmt.Sprint(f); !regexp.MustCompile(`^\[\d+ (1 0|1 6|2 0|2 17)\]$`).MatchString(g) {
				t.Errorf("socket%s", g)
			}
		case unix.AF_NETLINK:
			if g := fmt.Sprint(f); !regexp.MustCompile(`^\[16 [23] 0\]$`).MatchString(g) {
				t.Errorf("socket%s", g)
			}
		default:
			t.Errorf("socket%v", f)
		}
	}
	for name, inode := range found["namespaces"].(map[string]any) {
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/"+name, &st); err != nil || st.Ino == uint64(inode.(float64)) {
			t.Errorf("the %s namespace is the host's, %v", name, err)
		}
	}
	for key, value := range found["environment"].(map[string]any) {
		if strings.Contains(fmt.Sprint(value), dir) || strings.HasPrefix(key, "PROCTOR_") || strings.HasPrefix(key, "SUDO_") {
			t.Errorf("the environment has %s=%v", key, value)
		}
	}
	checkMounts(t, s, found["mounts"].([]any))
}

// checkMounts looks for paths of the host in a box's mount table. Three are known: the
// directories of the overlay, the init program's, and the inputs' own, where they are
// mounted.
func checkMounts(t *testing.T, s *supervisor, mounts []any) {
	t.Helper()
	for _, m := range mounts {
		line := m.(string)
		f := strings.Fields(line)
		before, _, _ := strings.Cut(line, " - ")
		point, options := f[4], strings.Split(f[5], ",")
		switch {
		case point == "/" || point == "/.proctor/init" || strings.HasPrefix(point, "/inputs/"):
		case strings.Contains(line, s.dir) || strings.Contains(line, s.bin):
			t.Errorf("the mount table names a path of the host: %s", line)
		}
		switch point {
		case "/scratch", "/tmp", "/var/tmp", "/outputs", "/dev/shm":
		case "/proc", "/dev": // guarded by the user
		default:
			if !slices.Contains(options, "ro") && !strings.HasPrefix(point, "/dev/") && !strings.Contains(line, " /null /proc/") {
				t.Errorf("mounted writable: %s", line)
			}
		}
		if strings.Contains(before, "shared:") || strings.Contains(before, "master:") {
			t.Errorf("mounts propagate: %s", line)
		}
		if point != "/" && !strings.HasPrefix(point, "/dev") && !strings.HasPrefix(point, "/proc/") && !slices.Contains(options, "nosuid") {
			t.Errorf("without nosuid: %s", line)
		}
	}
}

// A full scratch is an error that programs know, not an end by the kernel.
func TestScratchFull(t *testing.T) {
	s := root(t)
	for name, code := range map[string]string{
		"bytes": `
import errno, os
wrote = 0
try:
    for d in ("/scratch", "/tmp", "/dev/shm", "/outputs"):
        with open(d + "/fill", "wb", buffering=0) as f:
            while True: wrote += f.write(b"x" * 65536)
except OSError as e: print(errno.errorcode[e.errno], wrote >> 20)
try: open("/dev/x", "wb").write(b"x" * 65536)
except OSError as e: print(errno.errorcode[e.errno])
for d in ("/tmp", "/dev/shm", "/outputs"):
    try: open(d + "/more", "wb", buffering=0).write(b"x" * 8192); print(d, "holds more")
    except OSError as e: print(errno.errorcode[e.errno])`,
		"inodes": `
import errno
n = 0
try:
    while True:
        open(f"/scratch/{n}", "x").close(); n += 1
except OSError as e: print(errno.errorcode[e.errno], n)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// With memory that is filled as well, at its limit.
			v := s.verdict(t, "python", code, "--scratch", "48M", "--memory", "64M")
			out := string(v.Stdout.Bytes())
			want := `^ENOSPC 4[78]\nEACCES\nENOSPC\nENOSPC\nENOSPC\n$`
			if name == "inodes" {
				want = `^ENOSPC 6\d{4}\n$`
			}
			if v.Status != audit.StatusOK || !regexp.MustCompile(want).MatchString(out) || v.Usage.OOMKills != 0 {
				t.Errorf("%s: %s; stdout %q, stderr %s", v.Status, v.Reason, out, v.Stderr.Bytes())
			}
		})
	}
}

// What users of sandboxes complain of: honest code that dies of the sandbox.
func TestOrdinaryCode(t *testing.T) {
	s := root(t)
	for name, code := range map[string]string{
		"pandas": `
import pandas as pd, numpy as np, matplotlib.pyplot as plt
df = pd.DataFrame({"x": np.arange(100), "y": np.arange(100) ** 2})
df.plot(x="x", y="y", title="日本語"); plt.savefig("/outputs/plot.png")
print(df.y.sum())`,
		"multiprocessing": `
import multiprocessing as mp
from multiprocessing import shared_memory
def square(x): return x * x
if __name__ == "__main__":
    with mp.Pool(4) as p: assert p.map(square, range(50))[7] == 49
    m = shared_memory.SharedMemory(create=True, size=1 << 20); m.buf[0] = 1; m.close(); m.unlink()
    s = mp.Semaphore(2); s.acquire(); q = mp.Queue(); q.put(1); assert q.get() == 1`,
		"the rest": `
import asyncio, sqlite3, tempfile, mmap, subprocess, threading, signal, os, locale, time, zoneinfo, datetime, socket, http.server, urllib.request, pathlib
async def main(): return await asyncio.gather(*(asyncio.sleep(0, i) for i in range(100)))
assert asyncio.run(main())[99] == 99
db = sqlite3.connect("/scratch/x.db"); db.execute("pragma journal_mode=wal"); db.execute("create table t(x)"); db.commit()
with tempfile.NamedTemporaryFile() as f:
    f.truncate(4096); mmap.mmap(f.fileno(), 4096)[0:1] = b"x"
assert subprocess.run(["sh", "-c", "echo $((6*7))"], capture_output=True, text=True).stdout == "42\n"
ts = [threading.Thread(target=time.sleep, args=(.01,)) for _ in range(50)]; [t.start() for t in ts]; [t.join() for t in ts]
signal.signal(signal.SIGALRM, lambda *a: print("alarm")); signal.setitimer(signal.ITIMER_REAL, .01); time.sleep(.05)
assert locale.getpreferredencoding() == "UTF-8" and "ü".encode(), locale.getpreferredencoding()
assert datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).utcoffset().seconds == 7200
(pathlib.Path.home() / "x").write_text("x")
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"hello")
    def log_message(self, *a): pass
server = http.server.HTTPServer(("127.0.0.1", 0), H)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert urllib.request.urlopen("http://localhost:%d/" % server.server_port).read() == b"hello"
assert open("/dev/stdout", "w").write("x") == 1
os.execvp("nproc", ["nproc"])`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := s.verdict(t, "python", code)
			if v.Status != audit.StatusOK || v.Egress.Blocked == nil || len(v.Egress.Blocked) != 0 {
				t.Errorf("%s: %s\n%s%s", v.Status, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes())
			}
		})
	}
}

// Init has the code's user, so the code can take its processor time away. The run ends all
// the same when its main process does: by the kernel's word.
func TestStalledInit(t *testing.T) {
	s := root(t)
	began := time.Now()
	v := s.verdict(t, "python", `
import os
os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))
os.setpriority(os.PRIO_PROCESS, 1, 19)
for _ in range(40):
    if os.fork() == 0:
        os.setsid()
        while True: pass
os._exit(5)
`, "--timeout", "60s")
	if v.Status != audit.StatusExit || v.ExitCode != 5 {
		t.Errorf("%s, code %d: %s", v.Status, v.ExitCode, v.Reason)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A lease or a hint on an input would be one on the caller's own file; the kernel's buffers
// for sockets are memory, too.
func TestReachesNoFurther(t *testing.T) {
	s := root(t)
	input := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(input, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	v := s.verdict(t, "python", `
import fcntl, os, socket, struct, errno
f = open("/inputs/mine")
for what, command, arg in (("lease", fcntl.F_SETLEASE, fcntl.F_RDLCK), ("hint", 1036, struct.pack("Q", 4))):
    try:
        fcntl.fcntl(f, command, arg)
        print(what)
    except OSError as e:
        if e.errno != errno.EPERM: print(what, e)
fcntl.fcntl(f, fcntl.F_GETFL)
fcntl.fcntl(os.open("/scratch", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_MULTISHOT) # as CPython's own test does
server = socket.create_server(("127.0.0.1", 0), backlog=128)
queued, held = 0, []
for _ in range(60):
    a = socket.socket()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    a.connect(server.getsockname())
    b, _ = server.accept()
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    a.setblocking(False)
    held += [a, b]
    try:
        while True: queued += a.send(bytes(1 << 16))
    except OSError: pass
if queued > 160 << 20: print("queued", queued)
`, "--memory", "64M", "--scratch", "1M", "--input", input)
	if v.Status != audit.StatusOK || len(v.Stdout.Bytes()) > 0 {
		t.Errorf("%s, %q: %s", v.Status, v.Stdout.Bytes(), v.Stderr.Bytes())
	}
}
