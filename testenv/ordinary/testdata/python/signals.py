"""Signals and timers, faulthandler, exit handlers."""

import atexit
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

hits = []
for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP,
               signal.SIGVTALRM, signal.SIGPROF, signal.SIGRTMIN + 1):
    signal.signal(number, lambda n, frame: hits.append(n))


def until(n, seconds=5):
    deadline = time.monotonic() + seconds
    while n not in hits and time.monotonic() < deadline:
        sum(range(1000))
    assert n in hits, n
    hits.clear()


signal.alarm(1)
until(signal.SIGALRM)
for which, n in ((signal.ITIMER_REAL, signal.SIGALRM), (signal.ITIMER_VIRTUAL, signal.SIGVTALRM), (signal.ITIMER_PROF, signal.SIGPROF)):
    signal.setitimer(which, 0.02, 0.02)
    until(n)
    signal.setitimer(which, 0)
    assert signal.getitimer(which)[0] == 0
for n in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGRTMIN + 1):
    os.kill(os.getpid(), n)
    until(n)
signal.raise_signal(signal.SIGUSR2)
until(signal.SIGUSR2)
signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
until(signal.SIGUSR1)
signal.pidfd_send_signal(os.pidfd_open(os.getpid()), signal.SIGUSR1)
until(signal.SIGUSR1)
subprocess.run(["true"])
until(signal.SIGCHLD)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigpending() == {signal.SIGUSR1} and signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
assert signal.sigtimedwait([signal.SIGUSR1], 0.05) is None

# A sleep that is interrupted goes on; a Ctrl-C is KeyboardInterrupt.
signal.setitimer(signal.ITIMER_REAL, 0.05)
began = time.monotonic()
time.sleep(0.2)
assert time.monotonic() - began >= 0.2
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    signal.raise_signal(signal.SIGINT)
    sys.exit("no KeyboardInterrupt")
except KeyboardInterrupt:
    pass

with tempfile.TemporaryFile("w+") as f:
    faulthandler.dump_traceback_later(0.05, file=f)
    # The thread that writes it may be late on a machine with much to do.
    until = time.monotonic() + 10
    while "Timeout" not in os.pread(f.fileno(), 100, 0).decode() and time.monotonic() < until:
        time.sleep(0.05)
    faulthandler.cancel_dump_traceback_later()
    f.seek(0)
    assert "Timeout" in f.read()
crash = subprocess.run([sys.executable, "-X", "faulthandler", "-c", "import ctypes; ctypes.string_at(0)"], capture_output=True, text=True)
assert crash.returncode == -signal.SIGSEGV and "Segmentation fault" in crash.stderr, crash
crash = subprocess.run([sys.executable, "-c", "import os; os.abort()"], capture_output=True)
assert crash.returncode == -signal.SIGABRT
ended = subprocess.run([sys.executable, "-c", "import atexit, sys; atexit.register(print, 'bye'); sys.exit(9)"], capture_output=True)
assert ended.returncode == 9 and ended.stdout == b"bye\n"
for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID):
    assert time.clock_gettime_ns(clock) > 0 and time.clock_getres(clock) > 0
atexit.register(print, "ok")
