# Python's standard library: files in every mode, threads, children by each way, sockets.
import asyncio, concurrent.futures, glob, mmap, multiprocessing, os, pathlib, shutil, socket, sqlite3, subprocess, tempfile, threading, urllib.request, zipfile

def fails(f, *a, **k):
    try:
        f(*a, **k)
    except OSError:
        return
    raise SystemExit(f"{a} did not fail")

def child(n):
    with open(f"/tmp/child-{n}", "w") as f:
        f.write(str(n))
    return n


def main():
    os.makedirs("d/e")
    for mode in "w", "a", "r", "r+", "wb", "ab", "x":
        path = "d/x" if mode == "x" else "d/f"
        with open(path, mode) as f:
            f.read() if "r" in mode else f.write(b"b" if "b" in mode else "s")
    fails(open, "d/x", "x")
    fails(open, "d/none")
    fails(open, "d")
    fails(open, "/etc/passwd", "a")
    fails(open, "d/f/below")
    os.symlink("loop", "loop")
    fails(open, "loop")
    with open("not utf-8 \udcff\n\x1b[31m", "w"), open("d/ünïcödé 漢字", "w"):
        pass
    with tempfile.TemporaryFile() as a, tempfile.NamedTemporaryFile() as b, tempfile.TemporaryDirectory() as c:
        pathlib.Path(c, "x").write_text(b.name)
        a.write(b"x")
    shutil.copytree("/usr/share/zoneinfo/Europe", "zones")
    shutil.make_archive("zones", "gztar", "zones")
    with zipfile.ZipFile("z.zip", "w") as z:
        for name in glob.glob("zones/*"):
            z.write(name)
    with open("d/f", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[0:1] = b"m"
    with sqlite3.connect("s.db") as db:
        db.execute("create table t(x)")

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: open(f"d/t{n}", "w").close(), range(200)))
        list(pool.map(lambda n: subprocess.run(["true", str(n)], check=True), range(12)))
    for context in "fork", "spawn", "forkserver":
        with multiprocessing.get_context(context).Pool(3) as pool:
            assert pool.map(child, range(9)) == list(range(9))
    assert subprocess.check_output("echo $0 | cat", shell=True) == b"/bin/sh\n"
    fails(subprocess.run, ["/none"])
    os.posix_spawn("/bin/true", ["true", "spawned"], os.environ)
    os.wait()
    if not os.fork():
        os.chdir("/usr/bin")
        os.execv("./env", ["env", "-S", "cat /dev/null"])
    os.wait()

    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    def serve():
        for _ in range(4):
            c = server.accept()[0]
            c.recv(1000)
            c.sendall(b"HTTP/1.0 200 OK\r\n\r\nx")
            c.close()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    for host in "127.0.0.1", "localhost":
        assert urllib.request.urlopen(f"http://{host}:{port}").read() == b"x"
    socket.create_connection(("127.0.0.1", port)).sendall(b"x")
    async def client():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        await reader.read()
        p = await asyncio.create_subprocess_exec("cat", "/etc/hosts", stdout=subprocess.DEVNULL)
        await p.wait()
    asyncio.run(client())
    thread.join()
    fails(socket.create_connection, ("192.0.2.1", 80))
    fails(socket.create_connection, ("127.0.0.1", 9))
    fails(socket.create_connection, ("no.such.example", 80))
    print("ok")


if __name__ == "__main__":
    main()
