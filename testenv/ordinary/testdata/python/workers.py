"""multiprocessing with each start method, and process pools."""

import concurrent.futures
import multiprocessing as mp
import os
import sys
from multiprocessing import shared_memory


def square(x):
    return x * x


def add(counter, lock, queue):
    for _ in range(100):
        with lock:
            counter.value += 1
    queue.put(os.getpid())


def fill(name):
    block = shared_memory.SharedMemory(name)
    block.buf[0] = 42
    block.close()


def talk(connection):
    connection.send({"got": connection.recv()})
    connection.close()


def wait(event, semaphore, barrier):
    event.wait(10)
    with semaphore:
        barrier.wait(10)


def check(method):
    ctx = mp.get_context(method)
    with ctx.Pool() as pool:
        assert pool.map(square, range(100)) == [x * x for x in range(100)]
        assert sorted(pool.imap_unordered(square, range(10))) == [x * x for x in range(10)]
        assert pool.apply_async(square, (7,)).get(20) == 49
    with ctx.Pool(4, maxtasksperchild=2) as pool:
        assert sum(pool.map(square, range(20), chunksize=1)) == 2470

    counter, lock, queue = ctx.Value("i", 0, lock=False), ctx.Lock(), ctx.Queue()
    workers = [ctx.Process(target=add, args=(counter, lock, queue)) for _ in range(4)]
    for w in workers:
        w.start()
    pids = {queue.get(timeout=20) for _ in workers}
    for w in workers:
        w.join()
        assert w.exitcode == 0
    assert counter.value == 400 and len(pids) == 4
    assert list(ctx.Array("d", [1, 2, 3])) == [1, 2, 3]

    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    p = ctx.Process(target=fill, args=(block.name,))
    p.start()
    p.join()
    assert block.buf[0] == 42
    block.close()
    block.unlink()

    here, there = ctx.Pipe()
    p = ctx.Process(target=talk, args=(there,))
    p.start()
    here.send([1, "two", b"3"])
    assert here.recv() == {"got": [1, "two", b"3"]}
    p.join()

    event, semaphore, barrier = ctx.Event(), ctx.BoundedSemaphore(2), ctx.Barrier(3)
    workers = [ctx.Process(target=wait, args=(event, semaphore, barrier)) for _ in range(2)]
    for w in workers:
        w.start()
    event.set()
    barrier.wait(20)
    for w in workers:
        w.join()

    with ctx.Manager() as manager:
        shared = manager.dict(a=1)
        names = manager.list([1, 2])
        names.append(3)
        shared["b"] = 2
        assert dict(shared) == {"a": 1, "b": 2} and list(names) == [1, 2, 3]

    with concurrent.futures.ProcessPoolExecutor(mp_context=ctx) as pool:
        assert list(pool.map(square, range(50))) == [x * x for x in range(50)]


if __name__ == "__main__":
    for method in sys.argv[1:] or mp.get_all_start_methods():
        check(method)
    print("ok")
