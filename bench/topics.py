"""Many topics: how long it takes to open them, what they hold, what a trickle of messages to each costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

from bench import frames as f
from bench import protobuf as pb
from bench.connection import Connection, Inbox
from bench.histogram import Latencies, due_count, intended_ns
from bench.meter import MEGA, Meter, no_garbage_collection
from bench.payload import message_of, now_ms
from bench.scan import BrokerAnswerError, Command, refuse, split_command

if TYPE_CHECKING:
    from bench.scenario import TopicsLoad

DRAIN_S: Final = 10.0
OPEN_DEADLINE_S: Final = 120.0
OPENING_MAX: Final = 500
"""Topics that are being opened at a time: clients limit their lookups under way too."""


class Topics:
    """One connection with a producer on each of many topics."""

    def __init__(self, service_url: str, stem: str, count: int) -> None:
        """`stem`: what the names of the topics begin with."""
        connection = Connection(service_url)
        self.socket: Final = connection.socket
        self._inbox = Inbox(connection.hand_over())
        self._out = bytearray()
        self._names = [f"{stem}-{i}" for i in range(count)]
        self._producers = [""] * count
        self._prefixes: list[bytes] = []

    def open(self) -> None:
        """Look every topic up and open its producer, as a client does: metadata, lookup, producer.

        Request id 3 * i + step is step 0, 1 or 2 for topic i. Raises BrokerAnswerError.
        """
        count = len(self._names)
        begun = opened = 0
        deadline_s = time.monotonic() + OPEN_DEADLINE_S
        while opened < count:
            if time.monotonic() > deadline_s:
                raise BrokerAnswerError(f"{opened} of {count} topics are open after {OPEN_DEADLINE_S:.0f} s")
            while begun < count and begun - opened < OPENING_MAX:
                self._ask(begun, 0)
                begun += 1
            self._flush()
            for command in self._read():
                opened += self._opened(command)
        self._prefixes = [pb.field(1, name) + pb.varint(2 << 3) for name in self._producers]

    def _ask(self, topic: int, step: int) -> None:
        name = self._names[topic]
        request = 3 * topic + step
        if step == 0:
            body, kind = pb.field(1, name) + pb.field(2, request), f.PARTITIONED_METADATA
        elif step == 1:
            body, kind = pb.field(1, name) + pb.field(2, request), f.LOOKUP
        else:
            body, kind = pb.field(1, name) + pb.field(2, topic) + pb.field(3, request), f.PRODUCER
        self._out += f.command_frame(kind, body)

    def _opened(self, command: Command) -> int:
        """Ask what comes next; 1 when this was the last answer for a topic."""
        fields = command.fields
        if command.kind == f.PARTITIONED_METADATA_RESPONSE:
            if pb.number(fields, 3) != 0:
                raise BrokerAnswerError(f"partition metadata: {pb.text(fields, 5)}")
            self._ask(pb.number(fields, 2) // 3, 1)
        elif command.kind == f.LOOKUP_RESPONSE:
            if pb.number(fields, 3) != 1:
                raise BrokerAnswerError(f"lookup: {pb.text(fields, 7) or 'redirected to another broker'}")
            self._ask(pb.number(fields, 4) // 3, 2)
        elif command.kind == f.PRODUCER_SUCCESS:
            self._producers[pb.number(fields, 1) // 3] = pb.text(fields, 2)
            return 1
        else:
            self._other(command)
        return 0

    def send(self, topic: int, sequence_id: int, payload: bytes, publish_ms: int) -> None:
        """Queue one message."""
        command = pb.field(1, topic) + pb.field(2, sequence_id)
        base = pb.field(1, f.SEND) + pb.field(f.SEND, command)
        metadata = self._prefixes[topic] + pb.varint(sequence_id) + pb.field(3, publish_ms)
        checked = len(metadata).to_bytes(4, "big") + metadata + payload
        rest = len(base).to_bytes(4, "big") + base + f.MAGIC_CRC32C + f.crc32c(checked).to_bytes(4, "big")
        self._out += (len(rest) + len(checked)).to_bytes(4, "big") + rest + checked

    def receipts(self) -> int:
        """Send what is queued; how many receipts came meanwhile."""
        self._flush()
        count = 0
        for command in self._read():
            if command.kind == f.SEND_RECEIPT:
                count += 1
            else:
                self._other(command)
        return count

    def _other(self, command: Command) -> None:
        refuse(command)
        if command.kind == f.PING:
            self._out += f.command_frame(f.PONG, b"")

    def _flush(self) -> None:
        while self._out:
            try:
                del self._out[: self.socket.send(self._out)]
            except BlockingIOError:
                return

    def _read(self) -> list[Command]:
        data = self._inbox.receive(self.socket)
        commands: list[Command] = []
        if data is None:
            return commands
        at = 0
        while len(data) - at >= 4:
            length = int.from_bytes(data[at : at + 4], "big") + 4
            if len(data) - at < length:
                break
            kind, fields, _ = split_command(data[at : at + length])
            commands.append(Command(kind, fields))
            at += length
        self._inbox.used(at)
        return commands


def run(
    service_url: str, stem: str, meter: Meter, load: TopicsLoad, *, warm_up_s: float, seconds: float
) -> dict[str, float]:
    """Open the topics; then publish to them in turn at a fixed rate and measure from the intended times."""
    topics = Topics(service_url, stem, load.topics)
    metrics: dict[str, float] = {"rss_before_mb": meter.rss_bytes() / MEGA}
    before = meter.now()
    topics.open()
    after = meter.now()
    metrics["open_s"] = after.wall_s - before.wall_s
    metrics["open_broker_cpu_s"] = after.broker_cpu_s - before.broker_cpu_s
    metrics["rss_open_mb"] = meter.rss_bytes() / MEGA
    if load.rate_per_s:
        metrics |= _trickle(topics, meter, load, warm_up_s=warm_up_s, seconds=seconds)
    topics.socket.close()
    return metrics


def _trickle(
    topics: Topics, meter: Meter, load: TopicsLoad, *, warm_up_s: float, seconds: float
) -> dict[str, float]:
    rate = load.topics * load.rate_per_s
    # Every topic has had its first message before the measured time: that one opens a ledger.
    first = max(load.topics, int(rate * warm_up_s))
    count = first + int(rate * seconds)
    payload = message_of(load.payload_bytes)
    arrivals = np.zeros(count, dtype=np.int64)
    sent = received = 0
    clock = time.perf_counter_ns
    with no_garbage_collection():
        start_ns = clock()
        before = after = None
        while received < count:
            now = clock()
            due = min(count, due_count(start_ns, rate, now))
            publish_ms = now_ms()
            while sent < due:
                topics.send(sent % load.topics, sent // load.topics, payload, publish_ms)
                sent += 1
            got = topics.receipts()
            now = clock()
            arrivals[received : received + got] = now
            received += got
            if before is None and sent >= first:
                before = meter.now()
            if after is None and sent == count:
                after = meter.now()
            if sent == count and now > start_ns + int((count / rate + DRAIN_S) * 1e9):
                raise BrokerAnswerError(f"{count - received} receipts missing {DRAIN_S:.0f} s after the end")
            if not got and sent >= due:
                time.sleep(0.0005)
    assert before is not None
    assert after is not None
    # Receipts of different topics may overtake each other by one commit; each is charged to the oldest
    # message that waits, which keeps the sum of all waits exact.
    latencies = Latencies()
    latencies.record(arrivals[first:] - intended_ns(start_ns, rate, first, count - first))
    messages = count - first
    return latencies.milliseconds() | meter.metrics(
        before, after, messages=messages, payload_bytes=messages * load.payload_bytes
    )
