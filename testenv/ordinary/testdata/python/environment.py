"""Where programs put things by themselves, who they are, and what they ask of the system."""

import getpass
import grp
import locale
import os
import platform
import pwd
import socket
import sys
import tempfile
import time
import uuid
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

# Every place that programs write to unasked.
for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
    path = os.environ[name]
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, ".probe"), "w") as f:
        f.write("x")
    os.remove(os.path.join(path, ".probe"))
runtime_dir = os.environ.get("XDG_RUNTIME_DIR")
if runtime_dir:
    assert os.stat(runtime_dir).st_mode & 0o777 == 0o700, oct(os.stat(runtime_dir).st_mode)
assert os.getcwd() == os.environ["PWD"] == "/scratch", os.getcwd()
assert os.path.expanduser("~") == os.environ["HOME"]
assert tempfile.gettempdir() == "/tmp"
for path in ("/tmp", "/var/tmp", "/dev/shm", "/scratch", "/outputs"):
    with tempfile.NamedTemporaryFile(dir=path) as f:
        f.write(b"x")

# Who we are.
me = pwd.getpwuid(os.getuid())
assert me.pw_name == getpass.getuser() == os.environ["USER"] == "agent", me
assert me.pw_dir == os.environ["HOME"], me
assert os.access(me.pw_shell, os.X_OK), me
assert grp.getgrgid(os.getgid()).gr_name, os.getgid()
assert os.getuid() == os.geteuid() != 0
try:
    os.getlogin()
except OSError:
    pass  # there is no terminal; getpass.getuser is what works everywhere

# The host's name, without a resolver.
began = time.monotonic()
host = socket.gethostname()
assert host and socket.getfqdn(), host
assert socket.gethostbyname(host).startswith("127."), host
assert socket.gethostbyname("localhost") == "127.0.0.1"
assert {a[4][0] for a in socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)} == {"127.0.0.1", "::1"}
assert socket.getfqdn("127.0.0.1") and socket.gethostbyaddr("127.0.0.1")[0] == "localhost"
for call in (lambda: socket.gethostbyaddr("198.51.100.7"), lambda: socket.getaddrinfo("no.such.example", 443)):
    try:
        call()
        sys.exit("the resolver answered")
    except (socket.gaierror, socket.herror):
        pass
assert time.monotonic() - began < 2, time.monotonic() - began

# The system, as libraries ask for it.
assert platform.system() == "Linux" and platform.machine() and platform.platform() and platform.libc_ver()[0] == "glibc"
assert platform.node() == host and platform.processor() is not None
assert platform.freedesktop_os_release()["ID"] == "debian"
assert uuid.uuid1() != uuid.uuid1() and uuid.getnode() and uuid.uuid4().version == 4
assert os.getloadavg() and os.sysconf("SC_PAGE_SIZE") >= 4096 and os.sysconf("SC_OPEN_MAX") >= 256
for path in ("/proc/self/status", "/proc/self/maps", "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/self/limits",
             "/proc/self/io", "/proc/self/smaps", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg",
             "/proc/uptime", "/proc/version", "/proc/filesystems", "/proc/mounts", "/proc/net/dev",
             "/proc/sys/kernel/pid_max", "/proc/sys/vm/overcommit_memory",
             "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols",
             "/etc/machine-id", "/etc/localtime", "/etc/ssl/certs/ca-certificates.crt"):
    with open(path, "rb") as f:
        assert f.read(), path
assert "MemTotal" in open("/proc/meminfo").read()
assert socket.getservbyname("https") == 443 and socket.getprotobyname("tcp") == 6

# Text and time.
assert sys.getfilesystemencoding() == sys.stdout.encoding == locale.getpreferredencoding() == "utf-8" or \
    locale.getpreferredencoding() == "UTF-8", (sys.stdout.encoding, locale.getpreferredencoding())
assert all(locale.setlocale(locale.LC_ALL, name) for name in ("C", "", "C.UTF-8"))
name = "données-数据-данные.txt"
with open(name, "w") as f:
    f.write("naïve 日本語 🐍")
assert name in os.listdir(".") and open(name).read().endswith("🐍")
assert len(available_timezones()) > 400
new_york = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("America/New_York"))
assert new_york.utcoffset() == timedelta(hours=-4) and new_york.astimezone(ZoneInfo("Asia/Kolkata")).hour == 21
os.environ["TZ"] = "Europe/Berlin"
time.tzset()
assert time.strftime("%Z", time.localtime(1720000000)) == "CEST"
print("ok")
