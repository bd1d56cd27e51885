"""Attacks of a tenant that may use its own namespace and nothing else; told by `python -m bench hostile`.

Each works in the namespace of `neighbours.py`, and says what was done and what was refused. What a broker
refuses or closes is tried again.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from bench import frames as f
from bench import protobuf as pb
from bench.connection import PROTOCOL_VERSION, Connection
from bench.neighbours import NAMESPACE, Count, counted, never_acks, topics
from bench.scan import BrokerAnswerError

_LINES: Final = 4
"""Connections that work beside each other."""
_BLOCK: Final = 50
"""Requests that are sent before their answers are waited for."""
_PER_CONNECTION: Final = 2_000
"""Requests until a connection is left open, and another one goes on."""
_PROPERTIES: Final = 256
_PROPERTY_CHARS: Final = 58
"""As many and as long as a subscription may have."""
_METADATA_BYTES: Final = 1_000_000
"""Properties of one message."""
_WATCHED: Final = 60
_WATCHED_CHARS: Final = 2_000
_LISTED: Final = 2_000
"""Topics in the list that is asked for."""
_CALLERS: Final = 192
_FLOODS: Final = 32
"""Connections that write without waiting for answers."""
_LOOP_BLOCK: Final = 200
_FLOOD_BLOCK: Final = 1_000
"""Requests of one write."""
_GET_PATHS: Final = (
    f"/admin/v2/namespaces/{NAMESPACE}",
    f"/admin/v2/persistent/{NAMESPACE}/asked-0/stats",
    f"/lookup/v2/topic/persistent/{NAMESPACE}/asked-0",
    "/metrics",
)
_UNSUBSCRIBE: Final = 12
_GET_TOPICS: Final = 32
_WATCH_TOPICS: Final = 64
_PATTERNS: Final = (
    ".*a.{120}b",
    "(.*a){20}.*b",
    "((a|b)?){40}(a|b){40}",
    "(a|ab|abb|b|bb)*a.{60}",
    "[ab]*a[ab]{150}",
)
"""Each has another state after nearly every character of a name of a's and b's."""

Request = Callable[[int], bytes]


class Line(Connection):
    """A connection whose requests are answered later."""

    def ask(self, blocks: bytes, answers: int, count: Count) -> None:
        """Sends requests and waits for so many answers."""
        self.socket.sendall(blocks)
        while answers:
            kind, _ = self._receive()
            if kind != f.ACTIVE_CONSUMER_CHANGE:
                answers -= 1
                counted(count, good=kind not in (f.ERROR, f.SEND_ERROR))


def _ask_without_end(service_url: str, count: Count, requests: Iterator[bytes]) -> None:
    """On several connections, each of which stays open when it has asked enough."""
    lock = threading.Lock()
    kept = []

    def line() -> None:
        while True:
            with contextlib.suppress(OSError, BrokerAnswerError):
                connection = Line(service_url, deadline_s=60)
                kept.append(connection)
                for _ in range(_PER_CONNECTION // _BLOCK):
                    with lock:
                        asked = b"".join(itertools.islice(requests, _BLOCK))
                    connection.ask(asked, _BLOCK, count)

    for _ in range(_LINES):
        threading.Thread(target=line, daemon=True).start()
    count.say_for_ever()


def _subscribe(number: int, more: bytes = b"") -> bytes:
    head = pb.field(1, f"persistent://{NAMESPACE}/subscribed-{number % 10}") + pb.field(
        2, f"endless-{number}"
    )
    return f.command_frame(
        f.SUBSCRIBE, head + pb.field(3, 1) + pb.field(4, number) + pb.field(5, number) + more
    )


def subscriptions(service_url: str, http_url: str, count: Count) -> None:
    """Durable subscriptions of ten topics, each with a consumer."""
    del http_url
    _ask_without_end(service_url, count, (_subscribe(number) for number in itertools.count()))


def subscribe_loop(service_url: str, http_url: str, count: Count) -> None:
    """Subscriptions that are made and deleted, hundreds with each write."""
    del http_url
    numbers = itertools.count()

    def line() -> None:
        while True:
            with contextlib.suppress(OSError, BrokerAnswerError):
                connection = Line(service_url, deadline_s=60)
                while True:
                    made = list(itertools.islice(numbers, _LOOP_BLOCK))
                    connection.ask(b"".join(map(_subscribe, made)), len(made), count)
                    connection.ask(b"".join(map(_unsubscribe, made)), len(made), count)

    for _ in range(_LINES):
        threading.Thread(target=line, daemon=True).start()
    count.say_for_ever()


def _unsubscribe(number: int) -> bytes:
    return f.command_frame(_UNSUBSCRIBE, pb.field(1, number) + pb.field(2, (1 << 40) + number))


def _flood(url: str, count: Count, begin: bytes, repeated: Callable[[int], bytes], answer: bytes) -> None:
    """Writes `begin` and then again and again what `repeated` gives for the number of the connection, as fast
    as is taken, on many connections. Answers are counted by these bytes, and thrown away."""

    def drain(opened: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while answers := opened.recv(1 << 20):
                count.done += answers.count(answer)

    def line(number: int) -> None:
        block = repeated(number)
        while True:
            with contextlib.suppress(OSError):
                address = urlsplit(url)
                opened = socket.create_connection((address.hostname or "", address.port or 0), 60)
                threading.Thread(target=drain, args=(opened,), daemon=True).start()
                opened.sendall(begin)
                while True:
                    opened.sendall(block)

    for number in range(_FLOODS):
        threading.Thread(target=line, args=(number,), daemon=True).start()
    count.say_for_ever()


def wide_lookups(service_url: str, http_url: str, count: Count) -> None:
    """Look-ups of a thousand topics for each connection, each after the other."""
    del http_url

    def block(number: int) -> bytes:
        names = (f"persistent://{NAMESPACE}/asked-{number}-{n}" for n in range(_FLOOD_BLOCK))
        return b"".join(
            f.command_frame(f.LOOKUP, pb.field(1, name) + pb.field(2, n)) for n, name in enumerate(names)
        )

    connect = f.command_frame(f.CONNECT, pb.field(1, "magnetar-bench") + pb.field(4, PROTOCOL_VERSION))
    _flood(service_url, count, connect, block, bytes((8, f.LOOKUP_RESPONSE)))


def gets(service_url: str, http_url: str, count: Count) -> None:
    """GETs of the admin API, of look-ups and of metrics, each behind the other without waiting."""
    del service_url
    _call(http_url, "PUT", f"/admin/v2/persistent/{NAMESPACE}/asked-0")
    asked = b"".join(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        for path in itertools.islice(itertools.cycle(_GET_PATHS), _FLOOD_BLOCK)
    )
    _flood(http_url, count, b"", lambda number: asked, b"HTTP/1.1 200")


def subscription_properties(service_url: str, http_url: str, count: Count) -> None:
    """The same, with all the properties that a subscription and its consumer may have."""
    del http_url
    pairs = [pb.field(1, f"{n:03}") + pb.field(2, "v" * _PROPERTY_CHARS) for n in range(_PROPERTIES)]
    more = b"".join(pb.field(10, pair) + pb.field(18, pair) for pair in pairs)
    _ask_without_end(service_url, count, (_subscribe(number, more) for number in itertools.count()))


def patterns(service_url: str, http_url: str, count: Count) -> None:
    """Lists of topics and watchers of them by patterns that have very many states, over long names."""
    del http_url
    chance = random.Random(1)
    with Connection(service_url) as opener:
        for number in range(_WATCHED):
            name = "".join(chance.choices("ab", k=_WATCHED_CHARS))
            opener.open_producer(f"persistent://{NAMESPACE}/{name}", number)

    def request(number: int) -> bytes:
        pattern = f"{NAMESPACE}/{_PATTERNS[number % len(_PATTERNS)]}"
        if number % 2:
            body = pb.field(1, number) + pb.field(2, NAMESPACE) + pb.field(4, pattern)
            return f.command_frame(_GET_TOPICS, body)
        body = pb.field(1, number) + pb.field(2, number) + pb.field(3, NAMESPACE) + pb.field(4, pattern)
        return f.command_frame(_WATCH_TOPICS, body)

    _ask_without_end(service_url, count, (request(number) for number in itertools.count()))


def _publish(service_url: str, count: Count, block: Callable[[str], list[bytes]]) -> None:
    """Publishes what `block` gives for a producer of this name, again and again; a group reads the topic
    and acknowledges nothing."""
    topic = f"persistent://{NAMESPACE}/published"

    def reader() -> None:
        with contextlib.suppress(OSError, BrokerAnswerError), Connection(service_url) as connection:
            connection.subscribe(topic, "reads", durable=True, earliest=True)
            connection.flow(1_000_000)
            while connection.socket.recv(1 << 20):
                pass

    def line() -> None:
        while True:
            with contextlib.suppress(OSError, BrokerAnswerError):
                connection = Line(service_url, deadline_s=60)
                name = connection.open_producer(topic, 1)
                while True:
                    frames = block(name)
                    connection.ask(b"".join(frames), len(frames), count)

    for work in (reader, *[line] * _LINES):
        threading.Thread(target=work, daemon=True).start()
    count.say_for_ever()


def sent(metadata: bytes, payload: bytes, sequence_id: int, *, messages: int = 1) -> bytes:
    """A SEND of producer 1 with this metadata."""
    checked = len(metadata).to_bytes(4, "big") + metadata + payload
    command = pb.field(1, f.SEND) + pb.field(
        f.SEND, pb.field(1, 1) + pb.field(2, sequence_id) + pb.field(3, messages)
    )
    head = len(command).to_bytes(4, "big") + command
    tail = f.MAGIC_CRC32C + f.crc32c(checked).to_bytes(4, "big") + checked
    return (len(head) + len(tail)).to_bytes(4, "big") + head + tail


def chunks(service_url: str, http_url: str, count: Count) -> None:
    """First pieces of messages whose other pieces never come."""
    del http_url
    numbers = itertools.count()

    def block(name: str) -> list[bytes]:
        made = []
        for number in itertools.islice(numbers, _BLOCK):
            metadata = pb.field(1, name) + pb.field(2, number) + pb.field(3, time.time_ns() // 1_000_000)
            metadata += pb.field(26, f"{name}-{number}-{os.urandom(32).hex()}")
            metadata += pb.field(27, 1_000) + pb.field(28, 100_000) + pb.field(29, 0)
            made.append(sent(metadata, b"x" * 100, number))
        return made

    _publish(service_url, count, block)


def message_properties(service_url: str, http_url: str, count: Count) -> None:
    """Messages that are properties: tens of thousands of short ones, or one of a megabyte."""
    del http_url
    few = pb.field(4, pb.field(1, "k") + pb.field(2, "v" * _METADATA_BYTES))
    many = b"".join(
        pb.field(4, pb.field(1, f"{n:05}") + pb.field(2, "v")) for n in range(_METADATA_BYTES // 12)
    )
    numbers = itertools.count()

    def block(name: str) -> list[bytes]:
        begin = pb.field(1, name) + pb.field(2, 0) + pb.field(3, time.time_ns() // 1_000_000)
        return [sent(begin + (few if next(numbers) % 2 else many), b"", 0)]

    _publish(service_url, count, block)


def calls(service_url: str, http_url: str, count: Count) -> None:
    """As many calls at a time as an address may make, each of which lists thousands of topics."""
    del service_url
    names = {f"persistent://{NAMESPACE}/listed-{n:05}{'x' * 100}": 1 for n in range(_LISTED)}
    for name in names:
        path = name.replace("://", "/")
        _call(http_url, "PUT", f"/admin/v2/{path}")

    def line() -> None:
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                counted(count, good=_call(http_url, "GET", f"/admin/v2/persistent/{NAMESPACE}") == 200)

    for _ in range(_CALLERS):
        threading.Thread(target=line, daemon=True).start()
    count.say_for_ever()


def _call(http_url: str, method: str, path: str) -> int:
    address = urlsplit(http_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


ATTACKS: Final[dict[str, Callable[[str, str, Count], None]]] = {
    "calls": calls,
    "gets": gets,
    "wide-lookups": wide_lookups,
    "subscribe-loop": subscribe_loop,
    "subscriptions": subscriptions,
    "topics": topics,
    "unacked": never_acks,
    "patterns": patterns,
    "chunks": chunks,
    "subscription-properties": subscription_properties,
    "message-properties": message_properties,
}
