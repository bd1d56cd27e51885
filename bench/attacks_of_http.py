"""Attacks on the HTTP and HTTPS ports by clients without any right; told by `python -m bench hostile`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from bench.neighbours import Count, counted

_LINES: Final = 16
"""Connections that send something giant beside each other."""
_GIANT_BYTES: Final = 256 << 20
"""Written of one request, unless the broker ends the connection before."""
_WRITE: Final = 1 << 18
_HOLDERS: Final = 8
_HELD: Final = 100
"""Slow peers of each holder."""
_TURN_S: Final = 0.05
"""The pace of slow peers: each sends a byte in so many seconds."""
_DEADLINE_S: Final = 30.0
_JSON: Final = (
    b"PUT /admin/v2/tenants/giant HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
_GIANTS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"GET /", b"a" * _WRITE),
    (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Giant: ", b"a" * _WRITE),
    (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n", b"X-Giant: a\r\n" * (_WRITE // 12)),
    (_JSON + b"Content-Length: %d\r\n\r\n" % _GIANT_BYTES, b"[" * _WRITE),
    (_JSON + b"Content-Length: 4000000\r\n\r\n", b"[" * _WRITE),
    (_JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n" % (_WRITE, b"9" * _WRITE)),
    (_JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n[\r\n" * (_WRITE // 6)),
    (_JSON + b"Transfer-Encoding: chunked\r\n\r\n1;x=", b"a" * _WRITE),
)
"""What a request begins with, and what follows again and again: a long target, a long header, many headers,
bodies of a length, and bodies in chunks, in tiny chunks and with a long extension of a chunk."""


def _opened(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname or "", address.port or 0), _DEADLINE_S)


def giant_http(service_url: str, http_url: str, count: Count) -> None:
    """Heads and bodies that are too large for any broker, one request of each connection. One that is
    answered or ended counts as refused, one that was taken whole as done."""
    del service_url
    giants = itertools.cycle(_GIANTS)
    lock = threading.Lock()

    def line() -> None:
        while True:
            with lock:
                head, more = next(giants)
            with contextlib.suppress(OSError), _opened(http_url) as opened:
                counted(count, good=_sent_whole(opened, head, more))

    for _ in range(_LINES):
        threading.Thread(target=line, daemon=True).start()
    count.say_for_ever()


def _sent_whole(opened: socket.socket, head: bytes, more: bytes) -> bool:
    """Whether all of it was taken before there was an answer or an end."""
    try:
        opened.sendall(head)
        for _ in range(_GIANT_BYTES // len(more)):
            if select.select([opened], [], [], 0)[0]:
                return False
            opened.sendall(more)
    except OSError:
        return False
    return True


@functools.cache
def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@functools.cache
def client_hello() -> bytes:
    """The first message of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    begun = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    return outgoing.read()


Peer = tuple[socket.socket, Iterator[bytes]]
"""A connection, and what it sends next."""


def _silent(url: str) -> Peer:
    return _opened(url), iter(())


def _half_hello(url: str) -> Peer:
    return _opened(url), iter((client_hello()[:100],))


def _whole_hello(url: str) -> Peer:
    return _opened(url), iter((client_hello(),))


def _hello_by_bytes(url: str) -> Peer:
    hello = client_hello()
    return _opened(url), (hello[at : at + 1] for at in range(len(hello)))


def _head_by_bytes(url: str) -> Peer:
    secured = _trusting().wrap_socket(_opened(url))
    return secured, itertools.chain((b"GET /metrics HTTP/1.1\r\nX-Slow: ",), itertools.repeat(b"a"))


def _reads_nothing(url: str) -> Peer:
    secured = _trusting().wrap_socket(_opened(url))
    return secured, iter((b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,))


_PEERS: Final[tuple[Callable[[str], Peer], ...]] = (
    _silent,
    _half_hello,
    _whole_hello,
    _hello_by_bytes,
    _head_by_bytes,
    _reads_nothing,
)


def slow_https(service_url: str, http_url: str, count: Count) -> None:
    """Connections to the HTTPS port that say nothing, stop within the handshake, send a byte at a time, or
    read no answer. Each that was opened counts as done, each that the broker ended as refused."""
    del service_url

    def holder(kinds: Iterator[Callable[[str], Peer]]) -> None:
        held: dict[int, Peer] = {}
        closed = select.poll()

        def leave(descriptor: int) -> None:
            closed.unregister(descriptor)
            held.pop(descriptor)[0].close()
            counted(count, good=False)

        while True:
            while len(held) < _HELD:
                try:
                    peer = next(kinds)(http_url)
                except OSError:
                    counted(count, good=False)
                    break
                counted(count, good=True)
                peer[0].settimeout(1)
                held[peer[0].fileno()] = peer
                closed.register(peer[0].fileno(), select.POLLRDHUP)
            for descriptor, _ in closed.poll(0):
                leave(descriptor)
            for descriptor, (opened, more) in list(held.items()):
                try:
                    opened.sendall(next(more, b""))
                except OSError:
                    leave(descriptor)
            time.sleep(_TURN_S)  # the pace of the attack

    for number in range(_HOLDERS):
        kinds = itertools.islice(itertools.cycle(_PEERS), number, None)
        threading.Thread(target=holder, args=(kinds,), daemon=True).start()
    count.say_for_ever()


ATTACKS: Final[dict[str, Callable[[str, str, Count], None]]] = {
    "giant-http": giant_http,
    "slow-https": slow_https,
}
