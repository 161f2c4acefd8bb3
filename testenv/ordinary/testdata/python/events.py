"""asyncio: children, streams, signals, threads, unix sockets, datagrams."""

import asyncio
import concurrent.futures
import os
import signal
import socket


async def main():
    loop = asyncio.get_running_loop()
    assert sum(await asyncio.gather(*(asyncio.sleep(0.01, i) for i in range(1000)))) == 499500

    p = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    assert await p.communicate(b"through cat") == (b"through cat", None)
    p = await asyncio.create_subprocess_shell("echo shell; exit 3", stdout=-1)
    assert (await p.communicate())[0] == b"shell\n" and p.returncode == 3
    children = [await asyncio.create_subprocess_exec("sleep", "0.1") for _ in range(20)]
    assert await asyncio.gather(*(c.wait() for c in children)) == [0] * 20
    p = await asyncio.create_subprocess_exec("sleep", "60")
    p.kill()
    assert await p.wait() == -signal.SIGKILL

    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    for host in ("127.0.0.1", "::1", "localhost"):
        server = await asyncio.start_server(echo, host, 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("::1" if host == "::1" else "127.0.0.1" if host == "127.0.0.1" else server.sockets[0].getsockname()[0], port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"HELLO\n"
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    server = await asyncio.start_unix_server(echo, "echo.sock")
    reader, writer = await asyncio.open_unix_connection("echo.sock")
    writer.write(b"unix\n")
    assert await reader.readline() == b"UNIX\n"
    writer.close()
    server.close()

    got = loop.create_future()

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data, address):
            got.set_result(data)

    receiver, _ = await loop.create_datagram_endpoint(Receiver, ("127.0.0.1", 0))
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=receiver.get_extra_info("sockname"))
    sender.sendto(b"datagram")
    assert await asyncio.wait_for(got, 5) == b"datagram"
    sender.close()
    receiver.close()

    caught = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, caught.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(caught.wait(), 5)

    assert await asyncio.to_thread(sum, range(100)) == 4950
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert await loop.run_in_executor(pool, abs, -3) == 3

    r, w = os.pipe()
    readable = asyncio.Event()
    loop.add_reader(r, readable.set)
    os.write(w, b"x")
    await asyncio.wait_for(readable.wait(), 5)
    loop.remove_reader(r)

    # What cannot be reached says so at once; it is not waited for.
    began = loop.time()
    for target in (("198.51.100.7", 80), ("no.such.example", 80)):
        try:
            await asyncio.wait_for(asyncio.open_connection(*target), 10)
            raise SystemExit("reached " + target[0])
        except (PermissionError, socket.gaierror):
            pass
    assert loop.time() - began < 2, loop.time() - began
    try:
        async with asyncio.timeout(0.05):
            await asyncio.sleep(5)
        raise SystemExit("no timeout")
    except TimeoutError:
        pass


asyncio.run(main())
print("ok")
