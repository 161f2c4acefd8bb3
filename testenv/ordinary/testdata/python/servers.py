"""Servers inside the run, and their clients: by both loopback addresses, and by the name localhost."""

import http.client
import http.server
import json
import socket
import socketserver
import threading
import time
import urllib.error
import urllib.request
import xmlrpc.client
import xmlrpc.server


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Six(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


def serve(kind, host):
    server = kind((host, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, server.server_address[1]


for kind, bind, hosts in (
    (http.server.ThreadingHTTPServer, "127.0.0.1", ["127.0.0.1", "localhost"]),
    (http.server.ThreadingHTTPServer, "localhost", ["127.0.0.1"]),
    (http.server.ThreadingHTTPServer, "0.0.0.0", ["127.0.0.1", "localhost", "127.0.0.2", socket.gethostname()]),
    (http.server.ThreadingHTTPServer, "", ["127.0.0.1", "localhost"]),
    (Six, "::1", ["[::1]", "localhost"]),
    (Six, "::", ["[::1]", "127.0.0.1", "localhost"]),
):
    server, port = serve(kind, bind)
    for host in hosts:
        with urllib.request.urlopen(f"http://{host}:{port}/a?b=c", timeout=5) as r:
            assert json.load(r) == {"path": "/a?b=c"}
        big = b"x" * 3000000
        with urllib.request.urlopen(f"http://{host}:{port}/", big, timeout=10) as r:
            assert r.read() == big
    server.shutdown()
    server.server_close()
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        raise SystemExit("a closed port answered")
    except urllib.error.URLError as e:
        assert isinstance(e.reason, ConnectionRefusedError), e

connection = http.client.HTTPConnection("127.0.0.1", serve(http.server.ThreadingHTTPServer, "127.0.0.1")[1])
connection.request("GET", "/")
assert connection.getresponse().status == 200

rpc = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)
rpc.register_function(pow)
threading.Thread(target=rpc.serve_forever, daemon=True).start()
assert xmlrpc.client.ServerProxy("http://127.0.0.1:%d" % rpc.server_address[1]).pow(2, 10) == 1024


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(self.request[0], self.client_address)


for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    class UDP(socketserver.ThreadingUDPServer):
        address_family = family

    server = UDP((host, 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.sendto(b"hi", server.server_address)
        assert s.recv(10) == b"hi"
        s.connect(server.server_address)
        s.send(b"again")
        assert s.recv(10) == b"again"
    server.shutdown()

with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as s:
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, s.getsockname()[1]), 5) as c:
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
assert [name for _, name in socket.if_nameindex()] == ["lo"]

# Outside is refused at once, and as a refusal, not as an outage.
began = time.monotonic()
for url in ("http://198.51.100.7/", "http://[2001:db8::5]/", "http://no.such.example/"):
    try:
        urllib.request.urlopen(url, timeout=10)
        raise SystemExit("reached " + url)
    except urllib.error.URLError as e:
        assert isinstance(e.reason, (PermissionError, socket.gaierror)), (url, e.reason)
assert time.monotonic() - began < 2, time.monotonic() - began
print("ok")
