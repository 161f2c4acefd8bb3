"""Files: databases, mappings, temporary files, archives, devices."""

import bz2
import contextlib
import ctypes
import ctypes.util
import dbm
import fcntl
import gzip
import lzma
import mmap
import os
import random
import secrets
import select
import shelve
import shutil
import socket
import sqlite3
import stat
import struct
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib

# sqlite, with a write-ahead log (shared memory) and a second connection.
with contextlib.closing(sqlite3.connect("data.db")) as db:
    assert db.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    db.execute("create table t (x integer primary key, y text)")
    with db:
        db.executemany("insert into t (y) values (?)", ((str(i),) for i in range(10000)))

    def read():
        with contextlib.closing(sqlite3.connect("data.db")) as other:
            rows.append(other.execute("select count(*) from t").fetchone()[0])

    rows = []
    readers = [threading.Thread(target=read) for _ in range(5)]
    for t in readers:
        t.start()
    for t in readers:
        t.join()
    assert rows == [10000] * 5
    with contextlib.closing(sqlite3.connect("copy.db")) as copy:
        db.backup(copy)
    db.execute("vacuum")
with contextlib.closing(sqlite3.connect(":memory:")) as db:
    assert db.execute("select sum(value) from json_each('[1,2,3]')").fetchone() == (6,)
with shelve.open("shelf") as s:
    s["k"] = [1, 2]
with dbm.open("names", "c") as d:
    d["a"] = "b"

# Temporary files, also unnamed ones.
with tempfile.TemporaryDirectory() as d, tempfile.TemporaryFile() as f, tempfile.SpooledTemporaryFile(10) as s:
    f.write(b"x" * 100)
    s.write(b"x" * 100)
    assert f.tell() == s.tell() == 100 and os.listdir(d) == []
fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b"unnamed")
os.link(f"/proc/self/fd/{fd}", "/tmp/named", src_dir_fd=os.open("/", os.O_RDONLY))
assert open("/tmp/named").read() == "unnamed"

# Mappings: private, shared with a child, of a file.
with mmap.mmap(-1, 1 << 20) as m:
    if os.fork() == 0:
        m[0] = 7
        os._exit(0)
    os.wait()
    assert m[0] == 7
with open("mapped", "wb+") as f:
    f.truncate(1 << 20)
    with mmap.mmap(f.fileno(), 0) as m:
        m[:5] = b"bytes"
        m.flush()
        m.madvise(mmap.MADV_WILLNEED)
        m.resize(2 << 20)
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        m[:5] = b"other"
    assert f.read(5) == b"bytes"
fd = os.memfd_create("memory", os.MFD_ALLOW_SEALING)
os.write(fd, b"x")
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)

# Locks, links, attributes, space.
with open("lock", "w") as f:
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(f, fcntl.LOCK_UN)
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.posix_fallocate(f.fileno(), 0, 4096)
    os.fsync(f.fileno())
os.symlink("lock", "soft")
os.link("lock", "hard")
assert os.path.realpath("soft") == "/scratch/lock" and os.stat("hard").st_nlink == 2
os.chmod("lock", 0o600)
os.utime("lock", ns=(1, 2))
os.chown("lock", os.getuid(), os.getgid())
os.mkfifo("fifo")
assert stat.S_ISFIFO(os.stat("fifo").st_mode)
assert shutil.disk_usage("/scratch").free > 1 << 20
os.makedirs("a/b/c")
shutil.copytree("a", "copy")
shutil.rmtree("a")
shutil.move("copy", "moved")
shutil.copyfile("data.db", "data2.db")
assert os.copy_file_range(os.open("data.db", os.O_RDONLY), os.open("part", os.O_CREAT | os.O_WRONLY), 4096) == 4096
for path in ("/usr", "/code", "/inputs", "/etc", "/proc/sys/kernel", "/sys"):
    try:
        open(path + "/x", "w")
        sys.exit("wrote to " + path)
    except OSError:
        pass

# Compression and archives.
data = b"some text " * 10000
for module in (gzip, bz2, lzma, zlib):
    assert module.decompress(module.compress(data)) == data
with tarfile.open("a.tar.gz", "w:gz") as t:
    t.add("moved")
with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.write("data.db")
shutil.unpack_archive("a.zip", "unzipped")
shutil.make_archive("again", "xztar", "moved")

# Devices, and standard streams opened again by name.
assert len(os.urandom(1000)) == len(os.getrandom(1000)) == len(secrets.token_bytes(1000)) == len(random.SystemRandom().randbytes(1000))
assert open("/dev/zero", "rb").read(10) == bytes(10) and open("/dev/urandom", "rb").read(10) and open("/dev/random", "rb").read(10)
open("/dev/null", "w").write("x")
try:
    with open("/dev/full", "w") as f:
        f.write("x")
    sys.exit("/dev/full took it")
except OSError:
    pass
open("/dev/shm/x", "w").write("x")
for name in ("/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"):
    with open(name, "w") as f:
        f.write("")
with open("/dev/stderr", "w") as f:
    f.write("")
assert open("/dev/stdin").read() == ""
assert "0" in os.listdir("/dev/fd")
assert not sys.stdin.isatty() and not sys.stdout.isatty()

# Foreign functions.
libc = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6")
assert libc.abs(-3) == 3 and ctypes.CDLL(None).getpid() == os.getpid()
assert ctypes.CDLL("libm.so.6").cos and ctypes.util.find_library("m")
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))(lambda a, b: a[0] - b[0])
numbers = (ctypes.c_int * 3)(3, 1, 2)
libc.qsort(numbers, 3, 4, compare)
assert list(numbers) == [1, 2, 3]

# Unix sockets, with a descriptor passed along, and every kind of waiting.
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [os.open("lock", os.O_RDONLY)])
assert len(socket.recv_fds(b, 1, 1)[1]) == 1
s = socket.socket(socket.AF_UNIX)
s.bind("\0abstract")
s.listen()
c = socket.socket(socket.AF_UNIX)
c.connect("\0abstract")
peer, _ = s.accept()
assert struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0] == os.getpid()
a.send(b"y")
assert select.select([b], [], [], 5)[0] == [b]
poll = select.poll()
poll.register(b)
assert poll.poll(5000)
with select.epoll() as e:
    e.register(b, select.EPOLLIN)
    assert e.poll(5)
os.eventfd(1)
print("ok")
