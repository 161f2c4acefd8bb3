# What ordinary programs seldom do with the same calls.
import ctypes, errno, os, signal, socket, struct, subprocess, threading, time

libc = ctypes.CDLL(None, use_errno=True)
SYS = {"x86_64": {"openat2": 437, "execveat": 322}, "aarch64": {"openat2": 437, "execveat": 281}}[os.uname().machine]


def fails(f, *a, want=None):
    try:
        f(*a)
    except OSError as e:
        assert want in (None, e.errno), (a, e)
        return
    raise SystemExit(f"{a} did not fail")


def openat2(directory, path, flags, mode=0, resolve=0):
    how = struct.pack("QQQ", flags, mode, resolve)
    fd = libc.syscall(SYS["openat2"], directory, path, how, len(how))
    if fd < 0:
        raise OSError(ctypes.get_errno(), path)
    return fd


def again(fd, flags):
    return os.open(f"/proc/self/fd/{fd}", flags)


# Files without a name, with another one, or with several.
memfd = os.memfd_create("hidden")
again(memfd, os.O_RDWR)
gone = os.open("gone", os.O_CREAT | os.O_RDWR)
os.unlink("gone")
again(gone, os.O_RDONLY)
os.open(".", os.O_TMPFILE | os.O_RDWR)
again(os.open("/tmp", os.O_TMPFILE | os.O_WRONLY), os.O_RDONLY)
handle = os.open("/etc/passwd", os.O_PATH)
again(handle, os.O_RDONLY)
r, w = os.pipe()
again(w, os.O_WRONLY)
again(r, os.O_RDONLY | os.O_NONBLOCK)
os.open("/proc/self/ns/net", os.O_RDONLY)
os.open("/proc/self/status", os.O_RDONLY)
os.open("/proc/thread-self/comm", os.O_WRONLY)
os.open("/dev/stdout", os.O_WRONLY)
unix = socket.socket(socket.AF_UNIX)
fails(again, unix.fileno(), os.O_RDONLY, want=errno.ENXIO)
os.close(os.open("one", os.O_CREAT | os.O_WRONLY))
os.link("one", "two")
os.open("two", os.O_RDONLY)
os.rename("two", "three")
os.open("three", os.O_WRONLY | os.O_APPEND | os.O_SYNC)

# Directories and what is beside them.
d = os.open("/usr", os.O_RDONLY | os.O_DIRECTORY)
os.open("bin/../bin/env", os.O_RDONLY, dir_fd=d)
os.open("/", os.O_PATH)
os.chdir("/usr/share")
os.open(".", os.O_RDONLY)
os.open("..//./lib", os.O_RDONLY)
os.fchdir(d)
os.open("bin", os.O_RDONLY)
openat2(d, b"bin/env", os.O_RDONLY)
openat2(d, b"bin/env", os.O_PATH | os.O_CLOEXEC, resolve=8)
fails(openat2, d, b"../etc/passwd", os.O_RDONLY, 0, 8, want=errno.EXDEV)
fails(openat2, d, b"bin/env", os.O_RDONLY, 0, 1 << 40, want=errno.EINVAL)
os.chdir("/scratch")

# Opens that fail in other ways.
fails(os.open, "x" * 300, os.O_RDONLY, want=errno.ENAMETOOLONG)
fails(os.open, "/" + "y/" * 3000, os.O_RDONLY, want=errno.ENAMETOOLONG)
fails(os.open, "", os.O_RDONLY, want=errno.ENOENT)
fails(os.open, "/usr", os.O_WRONLY, want=errno.EISDIR)
fails(os.open, "/usr/new", os.O_CREAT | os.O_WRONLY)
fails(os.open, "one", os.O_RDONLY | os.O_DIRECTORY, want=errno.ENOTDIR)
fails(os.open, "x", os.O_RDONLY, 0o777, want=errno.ENOENT)
os.symlink("one", "link")
fails(os.open, "link", os.O_RDONLY | os.O_NOFOLLOW, want=errno.ELOOP)
os.open("link", os.O_PATH | os.O_NOFOLLOW)
assert libc.open(ctypes.c_void_p(16), 0) == -1
assert libc.openat(12345, b"x", 0) == -1
assert libc.syscall(SYS["openat2"], -100, ctypes.c_void_p(16), ctypes.c_void_p(16), 24) == -1
if os.uname().machine == "x86_64":  # calls that today's libraries go around
    assert libc.syscall(2, b"/etc/passwd", 0) > 0
    assert libc.syscall(2, b"none", 0) == -1
    assert libc.syscall(85, b"made", 0o600) > 0
    child = libc.syscall(57)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
deep = os.open(".", os.O_RDONLY)
for _ in range(25):  # longer than any string can name at once
    os.mkdir("n" * 200, dir_fd=deep)
    deep = os.open("n" * 200, os.O_RDONLY, dir_fd=deep)
os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=deep)

# An open that a signal interrupts, and that the kernel starts again.
os.mkfifo("fifo")
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
reader = threading.Timer(0.5, lambda: os.close(os.open("fifo", os.O_RDONLY)))
reader.start()
os.close(os.open("fifo", os.O_WRONLY))
reader.join()
signal.setitimer(signal.ITIMER_REAL, 0)
fails(os.open, "fifo", os.O_WRONLY | os.O_NONBLOCK, want=errno.ENXIO)

# Programs started from a descriptor, from memory, by a thread, with much, with nothing.
def run(f):
    pid = os.fork()
    if not pid:
        f()
        os._exit(99)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, status


def execveat(fd, path, *argv, flags=0):
    vector = (ctypes.c_char_p * (len(argv) + 1))(*argv, None)
    libc.syscall(SYS["execveat"], fd, path, vector, None, flags)


true = os.open("/bin/true", os.O_RDONLY)
run(lambda: execveat(true, b"", b"from a descriptor", flags=0x1000))
run(lambda: execveat(d, b"bin/true", b"", b"beside", flags=0))
program = os.memfd_create("program")  # one that nobody has opened for writing
os.sendfile(program, true, 0, 1 << 20)
run(lambda: execveat(program, b"", b"from memory", flags=0x1000))
run(lambda: execveat(true, b"", flags=0x1000))
run(lambda: os.execv("/bin/../bin/sh", ["sh", "-c", "exit 0", "", "\udcff\n"]))
run(lambda: os.execv("/bin/true", ["true"] + ["argument %d" % i for i in range(9000)]))
run(lambda: (threading.Thread(target=os.execv, args=("/bin/true", ["by a thread"])).start(), time.sleep(10)))
fails(subprocess.run, ["/etc/passwd"], want=errno.EACCES)
killed = subprocess.Popen(["sleep", "100"])
killed.send_signal(9)
assert killed.wait() == -9
assert subprocess.run(["sh", "-c", "kill -SEGV $$"]).returncode == -11

# Connections in other ways than connect, and connects that are none.
def udp(family, *to):
    s = socket.socket(family, socket.SOCK_DGRAM)
    return s.sendto(b"x", *to)


udp(socket.AF_INET, ("127.0.0.1", 4660))
udp(socket.AF_INET, ("0.0.0.0", 4660))
udp(socket.AF_INET6, ("::1", 4660))
udp(socket.AF_INET6, ("::", 4660))
udp(socket.AF_INET6, ("::ffff:127.0.0.1", 4660))
for to in ("192.0.2.1", 4660), ("192.0.2.1", 0), ("255.255.255.255", 4660), ("224.0.0.1", 4660):
    fails(udp, socket.AF_INET, to)
for to in ("2001:db8::5", 4660), ("::ffff:192.0.2.1", 4660):
    fails(udp, socket.AF_INET6, to)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", 4660))
s.send(b"x")
fails(s.sendmsg, [b"y"], [], 0, ("192.0.2.1", 4661))
libc.connect(s.fileno(), b"\0" * 16, 16)
fails(s.send, b"z")
server = socket.create_server(("::", 4662), family=socket.AF_INET6, dualstack_ipv6=True)
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
    c = socket.socket(family)
    c.connect((address, 4662))
    fails(c.connect, (address, 4662), want=errno.EISCONN)
    server.accept()[0].close()
v4 = struct.pack("=H2s4s8x", socket.AF_INET, struct.pack("!H", 4662), socket.inet_aton("127.0.0.1"))
for kind in socket.SOCK_DGRAM, socket.SOCK_STREAM:  # an IPv4 address on an IPv6 socket
    s = socket.socket(socket.AF_INET6, kind)
    if kind == socket.SOCK_DGRAM:
        assert libc.sendto(s.fileno(), b"x", 1, 0, v4, len(v4)) == 1
    assert libc.connect(s.fileno(), v4, len(v4)) == (0 if kind == socket.SOCK_DGRAM else -1)
c = socket.socket()
c.setblocking(False)
c.connect_ex(("127.0.0.1", 4662))
c.connect_ex(("127.0.0.1", 4662))
for to in ("127.0.0.1", 4662), ("192.0.2.1", 80):
    try:
        socket.socket().sendto(b"fast", 0x20000000, to)
    except OSError:
        pass
fails(socket.socket(socket.AF_INET6).connect, ("::ffff:192.0.2.1", 80), want=errno.EPERM)
fails(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
fails(socket.socket(socket.AF_UNIX).connect, "/none")
print("ok")
