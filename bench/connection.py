"""One connection to a broker: the conversation before the load, with blocking calls and a deadline."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from bench import frames as f
from bench import protobuf as pb
from bench.scan import BrokerAnswerError, Command, refuse, split_command

DEADLINE_S: Final = 30.0
REDIRECTS_MAX: Final = 5
RECEIVE_BYTES: Final = 4 << 20
PROTOCOL_VERSION: Final = 21


def address(service_url: str) -> tuple[str, int]:
    """Host and port of a `pulsar://host:port` URL; raises ValueError for anything else."""
    parts = urlsplit(service_url)
    if parts.scheme != "pulsar" or not parts.hostname:
        raise ValueError(f"not a pulsar:// URL: {service_url}")
    return parts.hostname, parts.port or 6650


class Connection:
    """A connected and greeted socket.

    `request` serves the set-up; after `hand_over` the caller owns the socket, which no longer blocks.
    """

    def __init__(self, service_url: str, *, deadline_s: float = DEADLINE_S) -> None:
        """Connect and exchange CONNECT and CONNECTED; raises OSError or BrokerAnswerError."""
        self.service_url: Final = service_url
        self.socket: Final = socket.create_connection(address(service_url), timeout=deadline_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending = bytearray()
        self._request_id = 0
        self._send(f.CONNECT, pb.field(1, "magnetar-bench") + pb.field(4, PROTOCOL_VERSION))
        kind, fields = self._receive()
        if kind != f.CONNECTED:
            raise BrokerAnswerError(f"CONNECT was answered by command {kind}: {pb.text(fields, 3)}")
        self.server_version: Final = pb.text(fields, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def _send(self, kind: int, body: bytes) -> None:
        self.socket.sendall(f.command_frame(kind, body))

    def _receive(self) -> tuple[int, pb.Fields]:
        while True:
            if len(self._pending) >= 4:
                length = int.from_bytes(self._pending[:4], "big") + 4
                if len(self._pending) >= length:
                    frame = bytes(self._pending[:length])
                    del self._pending[:length]
                    kind, fields, _ = split_command(memoryview(frame))
                    if kind == f.PING:
                        self._send(f.PONG, b"")
                        continue
                    return kind, fields
            chunk = self.socket.recv(65536)
            if not chunk:
                raise BrokerAnswerError("the broker closed the connection")
            self._pending += chunk

    def _request(self, kind: int, head: bytes, tail: bytes, request_field: int, answer: int) -> pb.Fields:
        self._request_id += 1
        self._send(kind, head + pb.field(request_field, self._request_id) + tail)
        while True:
            got, fields = self._receive()
            if got == f.ERROR:
                raise BrokerAnswerError(f"ERROR {pb.number(fields, 2)}: {pb.text(fields, 3)}")
            if got == answer:
                return fields
            # ACTIVE_CONSUMER_CHANGE and the like may come in between.

    def lookup(self, topic: str) -> tuple[bool, str]:
        """(is the answer final, URL of the broker that owns the topic or knows more)."""
        fields = self._request(f.LOOKUP, pb.field(1, topic), b"", 2, f.LOOKUP_RESPONSE)
        response = pb.number(fields, 3)
        if response == 2:
            raise BrokerAnswerError(f"lookup failed {pb.number(fields, 6)}: {pb.text(fields, 7)}")
        return response == 1, pb.text(fields, 1) or self.service_url

    def open_producer(self, topic: str, producer_id: int) -> str:
        """Open a producer; return the name that the broker gave it."""
        fields = self._request(
            f.PRODUCER, pb.field(1, topic) + pb.field(2, producer_id), b"", 3, f.PRODUCER_SUCCESS
        )
        if not pb.number(fields, 6, 1):
            raise BrokerAnswerError("another producer has the topic for itself")
        return pb.text(fields, 2)

    def subscribe(self, topic: str, subscription: str, *, durable: bool, earliest: bool) -> None:
        """Subscribe exclusively as consumer 1; a reader is a subscription that is not durable."""
        tail = pb.field(8, int(durable))
        if not durable:
            # (-1, -1) is the beginning, (2**63-1, 2**63-1) the end.
            place = (1 << 64) - 1 if earliest else (1 << 63) - 1
            tail += pb.field(9, pb.field(1, place) + pb.field(2, place))
        tail += pb.field(13, int(earliest))
        head = pb.field(1, topic) + pb.field(2, subscription) + pb.field(3, 0) + pb.field(4, 1)
        self._request(f.SUBSCRIBE, head, tail, 5, f.SUCCESS)

    def flow(self, messages: int) -> None:
        """Let the broker send so many more messages to consumer 1."""
        self._send(f.FLOW, pb.field(1, 1) + pb.field(2, messages))

    def hand_over(self) -> bytes:
        """Stop blocking; return what was already read and is not yet handled."""
        self.socket.setblocking(False)
        pending = bytes(self._pending)
        self._pending.clear()
        return pending


def connect_to_owner(service_url: str, topic: str) -> Connection:
    """A connection to the broker that owns `topic`, as every client finds it."""
    deadline = time.monotonic() + DEADLINE_S
    url = service_url
    for _ in range(REDIRECTS_MAX):
        connection = Connection(url, deadline_s=max(0.1, deadline - time.monotonic()))
        final, owner = connection.lookup(topic)
        if address(owner) == address(url):
            return connection
        connection.socket.close()
        url = owner
        if final:
            connection = Connection(url)
            connection.lookup(topic)
            return connection
    raise BrokerAnswerError(f"no owner of {topic} after {REDIRECTS_MAX} lookups")


class Inbox:
    """Received bytes of a connection that does not block; what a scanner has not used waits for the rest."""

    def __init__(self, pending: bytes = b"", capacity: int = RECEIVE_BYTES) -> None:
        """`capacity`: bytes of the buffer; more than the largest frame."""
        self._buffer = bytearray(capacity)
        self._view = memoryview(self._buffer)
        self._end = len(pending)
        self._buffer[: self._end] = pending

    def receive(self, source: socket.socket) -> memoryview | None:
        """All bytes at hand after one read, or None when there was nothing to read.

        Raises BrokerAnswerError when the broker closed the connection.
        """
        try:
            count = source.recv_into(self._view[self._end :])
        except BlockingIOError:
            return None
        if count == 0:
            raise BrokerAnswerError("the broker closed the connection")
        self._end += count
        return self._view[: self._end]

    def used(self, count: int) -> None:
        """Drop the first `count` bytes."""
        if count:
            rest = self._end - count
            self._view[:rest] = self._view[count : self._end]
            self._end = rest


def answer_commands(target: socket.socket, commands: list[Command]) -> None:
    """Take `commands` out of the list and answer PINGs; raises BrokerAnswerError for a fatal one."""
    for command in commands:
        refuse(command)
        if command.kind == f.PING:
            # 14 bytes: they fit unless the broker reads nothing at all, and then the measurement is lost
            # anyway.
            target.send(f.command_frame(f.PONG, b""))
    commands.clear()
