"""Kafka's protocol behind the loops: requests encoded once, answers compared in bulk.

The oldest versions that Kafka 4 still takes are used, since they have no tagged fields (source: Kafka
protocol guide): Produce 7, Fetch 4, ListOffsets 1, CreateTopics 4; record batches of magic 2. acks is -1.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.connection import DEADLINE_S, RECEIVE_BYTES, Inbox
from bench.driver import Template
from bench.frames import crc32c
from bench.payload import message_of, now_ms
from bench.scan import BrokerAnswerError

PRODUCE: Final = (0, 7)
FETCH: Final = (1, 4)
LIST_OFFSETS: Final = (2, 1)
CREATE_TOPICS: Final = (19, 4)

TOPIC_EXISTS: Final = 36
LATEST: Final = -1
TIMEOUT_MS: Final = 30_000
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 50 << 20
PARTITION_BYTES: Final = 1 << 20
"""Default of Kafka's own consumer."""
CORRELATION_AT: Final = 8
BATCH_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and newest time,
producer id, epoch, sequence, records."""
CRC_FROM: Final = 21


def text(value: str) -> bytes:
    """STRING of the protocol."""
    return struct.pack(">h", len(value)) + value.encode()


def request(api: tuple[int, int], correlation: int, body: bytes) -> bytes:
    """A request with its size and header."""
    head = struct.pack(">hhi", *api, correlation) + text("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


def zigzag(value: int) -> bytes:
    """A signed varint."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def record_batch(message: bytes, count: int) -> bytes:
    """`count` records with the same value, without key and headers."""
    records = bytearray()
    for i in range(count):
        body = b"\0" + zigzag(0) + zigzag(i) + zigzag(-1) + zigzag(len(message)) + message + zigzag(0)
        records += zigzag(len(body)) + body
    stamp = now_ms()
    checked = struct.pack(">hiqqqhii", 0, count - 1, stamp, stamp, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


class ProduceTemplate:
    """One Produce request for one partition; copies differ in the correlation id alone."""

    def __init__(self, topic: str, message: bytes, messages_per_entry: int) -> None:
        batch = record_batch(message, messages_per_entry)
        body = struct.pack(">hhii", -1, -1, TIMEOUT_MS, 1) + text(topic) + struct.pack(">ii", 1, 0)
        self.frame: Final = request(PRODUCE, 0, body + struct.pack(">i", len(batch)) + batch)
        self.messages_per_entry: Final = messages_per_entry
        self.payload_bytes: Final = len(message) * messages_per_entry
        self.first_sequence_id: int | None = None

    def renumber(self, frames: npt.NDArray[np.uint8], first_sequence_id: int, publish_time_ms: int) -> None:
        """Write the correlation ids: the sequence id of the first message."""
        if self.first_sequence_id is None:
            self.first_sequence_id = first_sequence_id
        count = len(frames)
        ids = first_sequence_id + np.arange(count, dtype=np.int64) * self.messages_per_entry
        frames[:, CORRELATION_AT : CORRELATION_AT + 4] = ids.astype(">i4").view(np.uint8).reshape(count, 4)


class KafkaConnection:
    """A connected socket; blocking calls for the set-up."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket: Final = socket.create_connection(address, timeout=DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, api: tuple[int, int], body: bytes) -> bytes:
        """The answer's body; raises BrokerAnswerError when the broker closes."""
        self.socket.sendall(request(api, 7, body))
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)[4:]

    def _exactly(self, count: int) -> bytes:
        out = bytearray()
        while len(out) < count:
            piece = self.socket.recv(count - len(out))
            if not piece:
                raise BrokerAnswerError("the broker closed the connection")
            out += piece
        return bytes(out)

    def create(self, topic: str) -> None:
        """Make a topic of one partition unless it is there, and wait for its leader."""
        body = struct.pack(">i", 1) + text(topic) + struct.pack(">ihii", 1, 1, 0, 0)
        answer = self.call(CREATE_TOPICS, body + struct.pack(">ib", TIMEOUT_MS, 0))
        (error,) = struct.unpack_from(">h", answer, 8 + 2 + len(topic))
        if error not in (0, TOPIC_EXISTS):
            raise BrokerAnswerError(f"the topic was not created: error {error}")
        deadline_s = time.monotonic() + DEADLINE_S
        while self.latest(topic) is None:
            if time.monotonic() > deadline_s:
                raise BrokerAnswerError(f"{topic} has no leader after {DEADLINE_S:.0f} s")
            time.sleep(0.02)

    def latest(self, topic: str) -> int | None:
        """Offset of the next record; None while the partition has no leader."""
        body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, 0, LATEST)
        answer = self.call(LIST_OFFSETS, body)
        error, _, offset = struct.unpack_from(">hqq", answer, 4 + 2 + len(topic) + 4 + 4)
        return offset if error == 0 else None


class KafkaLane:
    """A producer of one partition; each answer's correlation id, error and offset are compared."""

    window_messages_max: Final = 1 << 30

    def __init__(
        self, address: tuple[str, int], topic: str, *, payload_bytes: int, messages_per_entry: int
    ) -> None:
        connection = KafkaConnection(address)
        connection.create(topic)
        self._offset = connection.latest(topic) or 0
        self.socket: Final = connection.socket
        self.socket.setblocking(False)
        self.template: Final = ProduceTemplate(topic, message_of(payload_bytes), messages_per_entry)
        # size, correlation, 1 topic, name, 1 partition, index | error, offset | times, start, throttle
        self._error_at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
        self._length = self._error_at + 2 + 8 + 8 + 8 + 4
        self.acknowledged: int = 0

    def feed(self, data: memoryview) -> int:
        count = len(data) // self._length
        if not count:
            return 0
        used = count * self._length
        rows = np.frombuffer(data[:used], dtype=np.uint8).reshape(count, self._length)
        sizes = rows[:, :4].copy().view(">i4")[:, 0]
        errors = rows[:, self._error_at : self._error_at + 2].copy().view(">i2")[:, 0]
        if (sizes != self._length - 4).any() or errors.any():
            raise BrokerAnswerError(f"a Produce answer has error {int(errors[np.argmax(errors != 0)])}")
        ids = rows[:, 4:8].copy().view(">i4")[:, 0].astype(np.int64)
        offsets = rows[:, self._error_at + 2 : self._error_at + 10].copy().view(">i8")[:, 0]
        step = self.template.messages_per_entry
        steps = (self.acknowledged + np.arange(count, dtype=np.int64)) * step
        if (ids - (self.template.first_sequence_id or 0) != steps).any() or (
            offsets - self._offset != steps
        ).any():
            raise BrokerAnswerError(f"an answer is missing or out of order after {self.acknowledged}")
        self.acknowledged += count
        return used

    def pending(self) -> bytes:
        return b""


class KafkaConsumer:
    """Fetches one partition, one request at a time, as Kafka's consumers do; commits nothing."""

    def __init__(self, address: tuple[str, int], topic: str, *, backlog: bool) -> None:
        connection = KafkaConnection(address)
        connection.create(topic)
        self._next = self._first = 0 if backlog else connection.latest(topic) or 0
        self.socket: Final = connection.socket
        self.socket.setblocking(False)
        self._topic = topic
        self._step = 1
        self._inbox = Inbox(capacity=2 * RECEIVE_BYTES)
        self.checks: int = 0
        # size, correlation, throttle, 1 topic, name, 1 partition, index
        self._error_at = 4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4

    @property
    def entries_received(self) -> int:
        return (self._next - self._first) // self._step

    def start(self, template: Template) -> None:
        self._step = template.messages_per_entry
        self._fetch()

    def _fetch(self) -> None:
        body = struct.pack(">iiiibi", -1, FETCH_WAIT_MS, 1, FETCH_BYTES, 0, 1) + text(self._topic)
        body += struct.pack(">iiqi", 1, 0, self._next, PARTITION_BYTES)
        self.socket.send(request(FETCH, 7, body))

    def receive(self) -> None:
        data = self._inbox.receive(self.socket)
        if data is None or len(data) < 4:
            return
        size = int.from_bytes(data[:4], "big") + 4
        if len(data) < size:
            return
        at = self._error_at
        error, _, _, aborted = struct.unpack_from(">hqqi", data, at)
        if error:
            raise BrokerAnswerError(f"Fetch was answered by error {error}")
        at += 22 + max(0, aborted) * 16
        length = struct.unpack_from(">i", data, at)[0]
        self._batches(data[at + 4 : at + 4 + max(0, length)])
        self._inbox.used(size)
        self._fetch()

    def _batches(self, data: memoryview) -> None:
        """Count the whole batches; the first and the last have their checksums verified."""
        at = last = 0
        while len(data) - at >= BATCH_HEAD.size:
            head = BATCH_HEAD.unpack_from(data, at)
            end = at + 12 + head[1]
            if end > len(data):
                break
            if head[0] != self._next or head[6] != head[12] - 1:
                raise BrokerAnswerError(f"a batch begins at offset {head[0]} where {self._next} was due")
            if at == 0:
                self._verify(data[at:end])
            self._next += head[12]
            last, at = at, end
        if last:
            self._verify(data[last:at])

    def _verify(self, batch: memoryview) -> None:
        if crc32c(batch[CRC_FROM:]) != int.from_bytes(batch[CRC_FROM - 4 : CRC_FROM], "big"):
            raise BrokerAnswerError(f"the checksum of the batch at offset {self._next} does not match")
        self.checks += 1


class KafkaDriver:
    """One broker that leads every partition."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def lane(
        self, topic: str, *, payload_bytes: int, messages_per_entry: int, producer_id: int = 1
    ) -> KafkaLane:
        return KafkaLane(
            self._address,
            _name(topic),
            payload_bytes=payload_bytes,
            messages_per_entry=messages_per_entry,
        )

    def keep(self, topic: str) -> None:
        """Kafka keeps a week by default."""

    def consumer(self, topic: str, *, queue_messages: int, backlog: bool) -> KafkaConsumer:
        return KafkaConsumer(self._address, _name(topic), backlog=backlog)


def _name(topic: str) -> str:
    return topic.rpartition("/")[2]
