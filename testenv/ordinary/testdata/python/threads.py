"""Threads, their locks and pools."""

import concurrent.futures
import contextvars
import queue
import sys
import threading
import time

# Many at a time, all alive together.
n = 150
barrier = threading.Barrier(n + 1)
seen = set()
lock = threading.Lock()


def work(i):
    barrier.wait()
    with lock:
        seen.add((i, threading.get_native_id()))


many = [threading.Thread(target=work, args=(i,)) for i in range(n)]
for t in many:
    t.start()
barrier.wait()
for t in many:
    t.join()
assert len({i for i, _ in seen}) == len({t for _, t in seen}) == n

# And thousands one after another: none may linger.
for _ in range(3000):
    t = threading.Thread(target=int)
    t.start()
    t.join()

q = queue.Queue(10)
total = 0


def consume():
    global total
    while (item := q.get()) is not None:
        total += item


c = threading.Thread(target=consume, daemon=True)
c.start()
for i in range(10000):
    q.put(i)
q.put(None)
c.join()
assert total == sum(range(10000))

condition, ready = threading.Condition(), []
waiter = threading.Thread(target=lambda: [condition.acquire(), condition.wait_for(lambda: ready, 5), condition.release()])
waiter.start()
with condition:
    ready.append(1)
    condition.notify_all()
waiter.join()
assert not threading.Semaphore(0).acquire(timeout=0.05)
fired = threading.Event()
threading.Timer(0.05, fired.set).start()
assert fired.wait(5)
local = threading.local()
local.x = 1
threading.stack_size(256 * 1024)
t = threading.Thread(target=lambda: sys.exit())
t.start()
t.join()
threading.stack_size(0)

with concurrent.futures.ThreadPoolExecutor() as pool:
    assert list(pool.map(lambda x: x * x, range(1000))) == [x * x for x in range(1000)]
with concurrent.futures.ThreadPoolExecutor(max_workers=64) as pool:
    began = time.monotonic()
    list(pool.map(lambda _: time.sleep(0.05), range(64)))
    assert time.monotonic() - began < 2
assert contextvars.copy_context() is not None
print("ok")
