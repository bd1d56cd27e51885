"""NATS JetStream behind the loops. Source: NATS client protocol, JetStream wire API reference."""

from __future__ import annotations

import json
import re
import socket
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.connection import DEADLINE_S, RECEIVE_BYTES, Inbox
from bench.driver import Template
from bench.payload import message_of
from bench.scan import BrokerAnswerError

SEQUENCE: Final = re.compile(rb'"seq":(\d+)')
CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nPING\r\n'
ACK_TOKENS: Final = 9
SEQUENCE_TOKEN: Final = 5
"""Of `$JS.ACK.stream.consumer.delivered.stream-sequence.consumer-sequence.time.pending`, from 0."""


class NatsConnection:
    """A greeted socket; blocking calls for the set-up."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket: Final = socket.create_connection(address, timeout=DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = bytearray()
        if not self.line().startswith(b"INFO "):
            raise BrokerAnswerError("the server does not greet as NATS does")
        self.socket.sendall(CONNECT)
        while self.line() != b"PONG":
            pass

    def line(self) -> bytes:
        """The next line without its end."""
        while (end := self._read.find(b"\r\n")) < 0:
            self._more()
        line = bytes(self._read[:end])
        del self._read[: end + 2]
        return line

    def _more(self) -> None:
        piece = self.socket.recv(65536)
        if not piece:
            raise BrokerAnswerError("the server closed the connection")
        self._read += piece

    def call(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask JetStream; raises BrokerAnswerError for an error."""
        data = json.dumps(body).encode()
        self.socket.sendall(
            b"SUB _INBOX.call 9\r\nUNSUB 9 1\r\n"
            + f"PUB {subject} _INBOX.call {len(data)}\r\n".encode()
            + data
            + b"\r\n"
        )
        while not (head := self.line()).startswith(b"MSG _INBOX.call"):
            if head.startswith((b"-ERR", b"HMSG _INBOX.call")):
                raise BrokerAnswerError(f"{subject}: {head.decode()}; is JetStream on?")
        size = int(head.rpartition(b" ")[2])
        while len(self._read) < size + 2:
            self._more()
        answer = json.loads(self._read[:size])
        del self._read[: size + 2]
        if "error" in answer:
            raise BrokerAnswerError(f"{subject}: {answer['error']}")
        return dict(answer)

    def create(self, stream: str) -> int:
        """Make the stream of one subject, on files, unless it is there; its newest sequence."""
        answer = self.call(
            f"$JS.API.STREAM.CREATE.{stream}",
            {"name": stream, "subjects": [f"{stream}.s"], "storage": "file", "retention": "limits"},
        )
        return int(answer["state"]["last_seq"])

    def hand_over(self) -> bytes:
        """Stop blocking; what was read and not used."""
        self.socket.setblocking(False)
        return bytes(self._read)


class PublishTemplate:
    """PUB with a reply subject; NATS has no batches, so an entry is that many messages in a row."""

    def __init__(self, stream: str, message: bytes, messages_per_entry: int) -> None:
        one = f"PUB {stream}.s _INBOX.p {len(message)}\r\n".encode() + message + b"\r\n"
        self.frame: Final = one * messages_per_entry
        self.messages_per_entry: Final = messages_per_entry
        self.payload_bytes: Final = len(message) * messages_per_entry

    def renumber(self, frames: npt.NDArray[np.uint8], first_sequence_id: int, publish_time_ms: int) -> None:
        """All copies are alike: the stream counts."""


class NatsLane:
    """A producer; the sequence of every acknowledgement is compared."""

    window_messages_max: Final = 5000
    """A stream drops what comes while 10,000 messages wait to be stored (its `max_buffered_msgs`)."""

    def __init__(
        self, address: tuple[str, int], stream: str, *, payload_bytes: int, messages_per_entry: int
    ) -> None:
        connection = NatsConnection(address)
        self._first = self._last = connection.create(stream)
        self.socket: Final = connection.socket
        self.socket.sendall(b"SUB _INBOX.p 1\r\n")
        self.template: Final = PublishTemplate(stream, message_of(payload_bytes), messages_per_entry)
        self._pending = connection.hand_over()

    @property
    def acknowledged(self) -> int:
        return (self._last - self._first) // self.template.messages_per_entry

    def feed(self, data: memoryview) -> int:
        whole = bytes(data)
        # An answer is a line MSG and a line of JSON, which never holds a line's end.
        used = whole.rfind(b"}\r\n") + 3
        if used < 3:
            return self._other(whole)
        whole = whole[:used]
        if b'"error"' in whole or b"-ERR" in whole:
            raise BrokerAnswerError(whole[:500].decode(errors="replace"))
        found = np.array(SEQUENCE.findall(whole), dtype=np.int64)
        if (found != self._last + 1 + np.arange(len(found))).any():
            raise BrokerAnswerError(f"an acknowledgement is missing or out of order after {self._last}")
        self._last += len(found)
        if b"PING\r\n" in whole:
            self.socket.send(b"PONG\r\n")
        return used

    def _other(self, whole: bytes) -> int:
        if not whole.startswith(b"PING\r\n"):
            return 0
        self.socket.send(b"PONG\r\n")
        return 6

    def pending(self) -> bytes:
        return self._pending


class NatsConsumer:
    """A push consumer without acknowledgements that answers flow control."""

    def __init__(self, address: tuple[str, int], stream: str, *, backlog: bool) -> None:
        self._connection = NatsConnection(address)
        last = self._connection.create(stream)
        self._next = self._first = 1 if backlog else last + 1
        self.socket: Final = self._connection.socket
        self._stream = stream
        self._inbox: Inbox | None = None
        self._step = 1
        self.checks: int = 0
        if not backlog:
            self._subscribe()

    @property
    def entries_received(self) -> int:
        return (self._next - self._first) // self._step

    def _subscribe(self) -> None:
        self.socket.sendall(b"SUB _INBOX.c 1\r\n")
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._first,
            "ack_policy": "none",
            "deliver_subject": "_INBOX.c",
            "flow_control": True,
            "idle_heartbeat": 5_000_000_000,
            "mem_storage": True,
        }
        body = {"stream_name": self._stream, "config": config}
        self._connection.call(f"$JS.API.CONSUMER.CREATE.{self._stream}", body)
        self._inbox = Inbox(self._connection.hand_over(), capacity=2 * RECEIVE_BYTES)

    def start(self, template: Template) -> None:
        self._step = template.messages_per_entry
        if self._inbox is None:
            self._subscribe()

    def receive(self) -> None:
        assert self._inbox is not None
        data = self._inbox.receive(self.socket)
        if data is not None:
            self._inbox.used(self._messages(bytes(data)))

    def _messages(self, data: bytes) -> int:
        """Walk over the whole messages; the sequence of the first and the last must fit their number."""
        at = count = 0
        first = last = b""
        end = len(data)
        while (line_end := data.find(b"\r\n", at)) >= 0:
            line = data[at:line_end]
            if line.startswith(b"MSG "):
                after = line_end + 4 + int(line[line.rindex(b" ") + 1 :])
                if after > end:
                    break
                first = first or line
                last = line
                count += 1
            elif line.startswith(b"HMSG "):
                after = line_end + 4 + int(line[line.rindex(b" ") + 1 :])
                if after > end:
                    break
                self._control(line, data[line_end + 2 : after])
            else:
                after = line_end + 2
                if line == b"PING":
                    self.socket.send(b"PONG\r\n")
                elif line.startswith(b"-ERR"):
                    raise BrokerAnswerError(line.decode())
            at = after
        if count:
            if _sequence(first) != self._next or _sequence(last) != self._next + count - 1:
                raise BrokerAnswerError(f"a message is missing or out of order after {self._next - 1}")
            self._next += count
            self.checks += 2
        return at

    def _control(self, line: bytes, content: bytes) -> None:
        """Answer a request of flow control; a heartbeat may carry the subject of a stalled one."""
        words = line.split(b" ")
        reply = words[3] if len(words) == 6 else b""
        if not reply and (found := re.search(rb"Nats-Consumer-Stalled: *(\S+)", content)):
            reply = found[1]
        if reply:
            self.socket.send(b"PUB " + reply + b" 0\r\n\r\n")


def _sequence(line: bytes) -> int:
    tokens = line.split(b" ")[3].split(b".")
    return int(tokens[SEQUENCE_TOKEN]) if len(tokens) == ACK_TOKENS else -1


class NatsDriver:
    """One server with JetStream."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def lane(
        self, topic: str, *, payload_bytes: int, messages_per_entry: int, producer_id: int = 1
    ) -> NatsLane:
        return NatsLane(
            self._address,
            _name(topic),
            payload_bytes=payload_bytes,
            messages_per_entry=messages_per_entry,
        )

    def keep(self, topic: str) -> None:
        """A stream with limits keeps everything."""

    def consumer(self, topic: str, *, queue_messages: int, backlog: bool) -> NatsConsumer:
        return NatsConsumer(self._address, _name(topic), backlog=backlog)


def _name(topic: str) -> str:
    return topic.rpartition("/")[2]
