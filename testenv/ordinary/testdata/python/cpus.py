"""The processors that code sees fit the limit, which is the first argument; pools sized by them fit the process limit."""

import concurrent.futures
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time

limit = float(sys.argv[1])
# The machine may have fewer.
want = min(math.ceil(limit), int(sys.argv[2]))
counts = {
    "affinity": len(os.sched_getaffinity(0)),
    "nproc": int(subprocess.check_output(["nproc"])),
    "cpu_count": os.cpu_count(),
    "SC_NPROCESSORS_ONLN": os.sysconf("SC_NPROCESSORS_ONLN"),
    "SC_NPROCESSORS_CONF": os.sysconf("SC_NPROCESSORS_CONF"),
    "multiprocessing": multiprocessing.cpu_count(),
}
if hasattr(os, "process_cpu_count"):
    counts["process_cpu_count"] = os.process_cpu_count()
assert set(counts.values()) == {want}, (counts, want)

import numpy as np

before = threading.active_count()
a = np.random.default_rng(1).standard_normal((700, 700))
for _ in range(3):
    a @ a
tasks = len(os.listdir("/proc/self/task"))
assert tasks <= want, (tasks, want)  # OpenBLAS counts the caller as one of its threads

with concurrent.futures.ThreadPoolExecutor() as pool:
    list(pool.map(lambda _: time.sleep(0.001), range(100)))
    assert len(os.listdir("/proc/self/task")) <= tasks + want + 4
if __name__ == "__main__":
    with multiprocessing.Pool() as pool:
        assert pool.map(abs, range(-10, 0)) == list(range(10, 0, -1))

# And what it gets is what it was promised.
began, used = time.monotonic(), time.process_time()
stop = began + 1.5


def burn():
    while time.monotonic() < stop:
        pass


burners = [subprocess.Popen([sys.executable, "-c", "import time\ns=time.monotonic()+1.2\nwhile time.monotonic()<s: pass"]) for _ in range(4)]
for b in burners:
    b.wait()
elapsed = time.monotonic() - began
t = os.times()
assert t.children_user + t.children_system < limit * elapsed * 1.2 + 1.0, (t, elapsed, limit)
print("ok")
