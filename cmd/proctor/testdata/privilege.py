# Looks around in a box as an auditor of containers does, tries what one who wants out tries, and
# prints what it got as JSON: for each attempt the name of the error, "worked", or a value.
import ctypes, errno, fcntl, json, os, resource, select, socket, stat, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
found = {}


def outcome(f):
    try:
        r = f()
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
    return "worked" if r is None else r


def attempt(section, name, f):
    found.setdefault(section, {})[name] = outcome(f)


def read(path, n=4096):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = b""
        while len(data) < n:
            more = os.read(fd, n - len(data))
            if not more:
                break
            data += more
        return data.decode("latin-1")
    finally:
        os.close(fd)


def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def open_write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def libcall(name, *args):
    def f():
        if getattr(libc, name)(*args) == -1:
            raise OSError(ctypes.get_errno(), "")
    return f


# Who the code is.
status = dict(l.split(":", 1) for l in read("/proc/self/status", 1 << 16).splitlines())
for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Uid", "Gid", "Groups", "TracerPid"):
    attempt("identity", key, lambda: " ".join(status.get(key, "").split()))
for key, option in (("dumpable", 3), ("keepcaps", 7), ("securebits", 27), ("no_new_privs", 39)):
    attempt("identity", key, lambda: libc.prctl(option, 0, 0, 0, 0))
attempt("identity", "ambient", lambda: sum(libc.prctl(47, 1, cap, 0, 0) == 1 for cap in range(64)))
attempt("identity", "bounding", lambda: sum(libc.prctl(23, cap, 0, 0, 0) == 1 for cap in range(64)))
for name in ("uid_map", "gid_map", "projid_map"):
    attempt("maps", name, lambda: [[int(x) for x in l.split()] for l in read("/proc/self/" + name).splitlines()])
for name in ("uid_map", "gid_map", "projid_map", "setgroups"):
    attempt("identity", "write " + name, lambda: write("/proc/self/" + name, b"0 0 1\n"))
attempt("identity", "setuid 0", lambda: os.setuid(0))
attempt("identity", "setgid 0", lambda: os.setgid(0))
attempt("identity", "setgroups", lambda: os.setgroups([0]))
attempt("identity", "setresuid of another", lambda: os.setresuid(1000, 1001, 1000))
attempt("identity", "gains a bounding capability", libcall("prctl", 24, 64, 0, 0, 0))
for name in ("CORE", "MEMLOCK", "NICE", "NOFILE", "RTPRIO"):
    attempt("identity", "RLIMIT_" + name, lambda: list(resource.getrlimit(getattr(resource, "RLIMIT_" + name, 13))))
# A crash is told to the host's handler unless this limit is one.
for soft in (0, resource.RLIM_INFINITY):
    attempt("identity", "core dumps %s" % soft, lambda: resource.setrlimit(resource.RLIMIT_CORE, (soft, resource.RLIM_INFINITY)))
for high in (0, 1 << 32, 0xffffffff << 32):
    pair = (ctypes.c_ulong * 2)(0, 0)
    attempt("identity", "core dumps, by prlimit64, high half %#x" % high, lambda: libc.syscall(302, 0, ctypes.c_ulong(high | 4), pair, None))
attempt("identity", "core dumps after that", lambda: list(resource.getrlimit(resource.RLIMIT_CORE)))
attempt("identity", "real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("identity", "nice -1", lambda: os.setpriority(os.PRIO_PROCESS, 0, -1) and None)
attempt("identity", "oom_score_adj", lambda: int(read("/proc/self/oom_score_adj")))
attempt("oom", "lowered", lambda: write("/proc/self/oom_score_adj", b"-900"))

# What is neutral.
attempt("names", "hostname", socket.gethostname)
attempt("names", "domain", lambda: read("/proc/sys/kernel/domainname").strip())
for path in ("/etc/hostname", "/etc/machine-id", "/etc/hosts", "/proc/sys/kernel/random/boot_id", "/proc/cmdline", "/proc/self/cpuset"):
    attempt("names", path, lambda: read(path))
attempt("names", "cgroups", lambda: sorted({l.split(":", 2)[2] for l in read("/proc/self/cgroup").splitlines()}))
attempt("names", "resolv.conf", lambda: read("/etc/resolv.conf"))
attempt("names", "environment", lambda: sorted("%s=%s" % e for e in os.environ.items()))
attempt("names", "sethostname", libcall("sethostname", b"x", 1))

# What was inherited.
found["descriptors"] = {}
for fd in range(0, 4096):
    try:
        st, flags = os.fstat(fd), fcntl.fcntl(fd, fcntl.F_GETFL)
    except OSError:
        continue
    found["descriptors"][str(fd)] = "%s %o %d:%d %s" % (
        os.readlink("/proc/self/fd/%d" % fd).split(":")[0], st.st_mode, st.st_uid, st.st_gid,
        {os.O_RDONLY: "read", os.O_WRONLY: "write", os.O_RDWR: "read and write"}[flags & os.O_ACCMODE])

# Devices, set-user-id programs, programs with capabilities.
found["devices"], found["privileged programs"], found["hints"] = {}, {}, {}
for top, dirs, files in os.walk("/dev"):
    for name in dirs + files:
        path = os.path.join(top, name)
        st = os.lstat(path)
        kind = "-> " + os.readlink(path) if stat.S_ISLNK(st.st_mode) else "%o %d:%d" % (st.st_mode, os.major(st.st_rdev), os.minor(st.st_rdev))
        found["devices"][path] = kind
for major, minor, kind in ((1, 1, stat.S_IFCHR), (1, 11, stat.S_IFCHR), (1, 3, stat.S_IFCHR), (8, 0, stat.S_IFBLK), (254, 0, stat.S_IFBLK), (10, 229, stat.S_IFCHR), (10, 232, stat.S_IFCHR), (5, 1, stat.S_IFCHR), (0, 0, stat.S_IFCHR)):
    attempt("hints", "mknod %o %d:%d" % (kind, major, minor), lambda: (os.mknod("/scratch/node", kind | 0o666, os.makedev(major, minor)), os.unlink("/scratch/node")) and None)
attempt("hints", "TIOCSTI", lambda: fcntl.ioctl(0, 0x5412, b"x") and None)
attempt("hints", "terminal", lambda: open_write("/dev/tty"))
for top, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ("/proc", "/sys")]
    for name in files:
        path = os.path.join(top, name)
        st = os.lstat(path)
        try:
            caps = os.getxattr(path, "security.capability", follow_symlinks=False)
        except OSError:
            caps = b""
        if stat.S_ISREG(st.st_mode) and (st.st_mode & 0o6000 or caps):
            found["privileged programs"][path] = "%o" % st.st_mode
        if stat.S_ISSOCK(st.st_mode) or name in (".dockerenv", ".containerenv", "release_agent", "cgroup.procs", "core_pattern", "uevent_helper"):
            found["hints"]["there is " + path] = "%o" % st.st_mode
for path in ("/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/proctor/proctor.sock", "/run/secrets/kubernetes.io/serviceaccount/token", "/sys/fs/cgroup", "/sys/kernel", "/sys/firmware", "/sys/fs/bpf", "/lib/modules", "/boot/vmlinuz"):
    if os.path.exists(path):
        found["hints"]["there is " + path] = "yes"
# What a program that is set-user-id would do: with no_new_privs the bit counts for nothing.
attempt("hints", "chmod u+s", lambda: (open("/scratch/suid", "w").close(), os.chmod("/scratch/suid", 0o6755)) and None)
attempt("hints", "capabilities of a file", lambda: os.setxattr("/scratch/suid", "security.capability", struct.pack("<5I", 0x02000001, 1 << 21, 0, 0, 0)))
attempt("hints", "trusted attribute", lambda: os.setxattr("/scratch/suid", "trusted.x", b"x"))
for host, port in (("169.254.169.254", 80), ("100.100.100.200", 80), ("kubernetes.default.svc", 443)):
    attempt("hints", "reach " + host, lambda: socket.create_connection((host, port), 5).close())

# Where things are mounted, and what is.
found["mounts"] = read("/proc/self/mountinfo", 1 << 20).splitlines()
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/ns_last_pid", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/pressure/memory", "/proc/self/loginuid"):
    if os.path.exists(path): # not all kernels have all
        attempt("kernel writes", path, lambda: write(path, b"some 150000 2000000\0" if "pressure" in path else b"0"))
attempt("writes", "remount", libcall("mount", b"none", b"/", None, 32 | 1 << 12, None))
attempt("writes", "umount", libcall("umount2", b"/proc/sys", 2))

# Sockets, queues and memory of others.
found["unix sockets"] = sorted(l.split()[7] if len(l.split()) > 7 else "" for l in read("/proc/net/unix", 1 << 20).splitlines()[1:])
for name, call, at in (("shm", lambda b: libc.shmctl(0, 14, b), 0), ("sem", lambda b: libc.semctl(0, 0, 19, b), 7), ("msg", lambda b: libc.msgctl(0, 12, b), 0)):
    info = (ctypes.c_int * 64)()
    attempt("ipc", name + " of others", lambda: info[at] if call(info) >= 0 else "refused")
attempt("ipc", "private memory", lambda: libc.shmctl(libc.shmget(0, 4096, 0o1600), 0, None))
attempt("ipc", "queue", lambda: (libc.mq_open(b"/q", os.O_CREAT | os.O_RDWR, 0o600, None) < 0) or libc.mq_unlink(b"/q"))

# Init, which is the same user.
found["init"] = {}
for name in sorted(os.listdir("/proc/1")):
    path = "/proc/1/" + name
    if os.path.islink(path):
        r = outcome(lambda: os.readlink(path))
        found["init"][name] = "read" if r.startswith("/") or ":" in r else r
    elif os.path.isdir(path):
        r = outcome(lambda: os.listdir(path))
        found["init"][name] = "read" if isinstance(r, list) else r
    else:
        r = outcome(lambda: "read" if read(path) is not None else "")
        w = outcome(lambda: write(path, b"0"))
        found["init"][name] = r + (", written" if w == "worked" else "")
found["own"] = {}
for name in sorted(os.listdir("/proc/self")):
    path = "/proc/self/" + name
    if not os.path.islink(path) and not os.path.isdir(path):
        found["own"][name] = outcome(lambda: open_write(path))
buf = ctypes.create_string_buffer(16)
iov = (ctypes.c_ulong * 2)(ctypes.addressof(buf), 16)
pidfd = os.pidfd_open(1)
for name, args in (("ptrace attach", (101, 16, 1, 0, 0)), ("ptrace seize", (101, 0x4206, 1, 0, 0)), ("ptrace traceme", (101, 0, 0, 0, 0)),
                   ("process_vm_readv", (310, 1, iov, 1, iov, 1, 0)), ("process_vm_writev", (311, 1, iov, 1, iov, 1, 0)),
                   ("pidfd_getfd", (438, pidfd, 0, 0)), ("kcmp", (312, 1, os.getpid(), 0, 0, 0)), ("process_madvise", (440, pidfd, iov, 1, 4, 0)),
                   ("setns", (308, pidfd, 0x10000000)), ("migrate_pages", (256, 1, 1, iov, iov)), ("move_pages", (279, 1, 0, 0, 0, 0, 0))):
    def f():
        if libc.syscall(*args) == -1:
            raise OSError(ctypes.get_errno(), "")
    attempt("init calls", name, f)
attempt("init calls", "namespace", lambda: os.close(os.open("/proc/1/ns/mnt", os.O_RDONLY)))

# All of /proc and /sys but the processes.
found["kernel"] = {}
for root in ("/proc", "/sys"):
    for top, dirs, files in os.walk(root):
        if top == "/proc":
            dirs[:] = [d for d in dirs if not d.isdigit()]
        for name in files:
            path = os.path.join(top, name)
            if os.path.islink(path):
                continue
            r = outcome(lambda: "empty" if read(path, 1) == "" else "read")
            w = outcome(lambda: open_write(path))
            # What is masked is /dev/null.
            null = stat.S_ISCHR(os.stat(path).st_mode) and os.stat(path).st_rdev == os.makedev(1, 3)
            found["kernel"][path] = "masked" if null else r + (", written" if w == "worked" else "")
        if not files and not dirs:
            found["kernel"][top] = "empty directory"

json.dump(found, sys.stdout)
