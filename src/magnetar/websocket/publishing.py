"""The messages under way to one topic or partition: sequence ids, batches and awaited receipts (pure).

A batch holds messages of one key, as Key_Shared requires. A message with a delay or with chosen clusters is
sent alone.

Source: Pulsar binary protocol, SEND and batches; the batches of Pulsar's clients.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.ids import Position, ProducerId
from magnetar.client.compression import compress
from magnetar.websocket.documents import Outgoing
from magnetar.websocket.memory import ByteCount
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SendRun

BATCH_BYTES_MAX: Final = 128 << 10
"""Payload of one batch, as in Pulsar's clients."""


@dataclass(frozen=True, slots=True)
class SocketReceipt:
    """The outcome of a message, for the client's answer."""

    context: str | None
    position: Position | None
    """Position of the stored message; None when it was not stored."""
    batch_index: int
    batch_size: int
    reason: str = ""


@dataclass(slots=True)
class _Sent:
    """An entry without a receipt."""

    sequence_id: int
    highest_id: int | None
    count: int
    entry: bytes
    contexts: list[str | None]
    due_ms: float
    """Monotonic time in ms at which the receipt is late."""
    batched: bool


class Publishing:
    """The messages of one producer on one topic or partition."""

    def __init__(
        self,
        producer_id: ProducerId,
        clock: Clock,
        held: ByteCount,
        *,
        compression: pb.CompressionType,
        batch_messages_max: int,
        timeout_ms: int,
    ) -> None:
        self.producer_id = producer_id
        self.name = ""
        """Name of the producer, from the broker."""
        self._clock = clock
        self._held = held
        self._next_id = 0
        self._compression = compression
        self._batch_max = batch_messages_max
        self._timeout_ms = timeout_ms
        self._batch: list[tuple[int, Outgoing]] = []
        self._batch_bytes = 0
        self._sent: deque[_Sent] = deque()

    def opened(self, name: str, last_id: int, *, again: bool) -> None:
        """Notes that the broker has opened the producer. `last_id`: sequence id after which it continues."""
        self.name = name
        if not again:
            self._next_id = last_id + 1

    @property
    def batch_waits(self) -> bool:
        """Whether an unsent batch has messages."""
        return bool(self._batch)

    def add(self, message: Outgoing) -> list[SendRun]:
        """Adds a message; returns the entries to send now."""
        number = self._next_id if message.sequence_id is None else message.sequence_id
        self._next_id = max(self._next_id, number + 1)
        alone = self._batch_max == 1 or message.deliver_at_ms is not None or message.replicate_to is not None
        if alone:
            return [*self.flush(), self._send([(number, message)], batched=False)]
        runs = []
        size = len(message.payload)
        if self._batch and (
            self._batch[0][1].key != message.key or self._batch_bytes + size > BATCH_BYTES_MAX
        ):
            runs = self.flush()
        self._batch.append((number, message))
        self._batch_bytes += size
        self._held.size_bytes += size
        if len(self._batch) >= self._batch_max or self._batch_bytes >= BATCH_BYTES_MAX:
            runs += self.flush()
        return runs

    def flush(self) -> list[SendRun]:
        """Ends the unsent batch; returns its entry, if there is one."""
        if not self._batch:
            return []
        self._held.size_bytes -= self._batch_bytes
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        return [self._send(batch, batched=True)]

    def unanswered(self) -> list[SendRun]:
        """All entries without a receipt, to be sent again after the producer was reopened."""
        return [self._run(sent) for sent in self._sent]

    def stored(self, sequence_id: int, position: Position) -> list[SocketReceipt]:
        """Handles a receipt; returns the outcomes. Ignores receipts of entries that were given up."""
        return self._settle(sequence_id, position, "")

    def refused(self, sequence_id: int, reason: str) -> list[SocketReceipt]:
        """Handles the broker's refusal of an entry; returns the outcomes."""
        return self._settle(sequence_id, None, reason)

    def late(self) -> list[SocketReceipt]:
        """Gives up the entries whose receipts are late; returns the outcomes."""
        now_ms = self._clock.monotonic_ms()
        found: list[SocketReceipt] = []
        while self._timeout_ms and self._sent and self._sent[0].due_ms <= now_ms:
            sent = self._first_sent()
            reason = f"no receipt within {self._timeout_ms} ms; it may be stored all the same"
            found += [SocketReceipt(context, None, -1, 0, reason) for context in sent.contexts]
        return found

    @property
    def late_in_ms(self) -> float | None:
        """Milliseconds until `late` may have an entry; None when no entry waits."""
        if not self._sent or not self._timeout_ms:
            return None
        return self._sent[0].due_ms - self._clock.monotonic_ms()

    def _first_sent(self) -> _Sent:
        sent = self._sent.popleft()
        self._held.size_bytes -= len(sent.entry)
        return sent

    def _settle(self, sequence_id: int, position: Position | None, reason: str) -> list[SocketReceipt]:
        if not any(sent.sequence_id == sequence_id for sent in self._sent):
            return []
        while True:
            # Receipts come in order: earlier entries without one were lost.
            sent = self._first_sent()
            if sent.sequence_id == sequence_id:
                break
        size = sent.count if sent.batched else 0
        return [
            SocketReceipt(context, position, index if sent.batched else -1, size, reason)
            for index, context in enumerate(sent.contexts)
        ]

    def _send(self, batch: list[tuple[int, Outgoing]], *, batched: bool) -> SendRun:
        first_id, first = batch[0]
        metadata = pb.MessageMetadata(
            producer_name=self.name, sequence_id=first_id, publish_time=self._clock.now_ms()
        )
        if first.key is not None:
            metadata.partition_key = first.key
        if batched:
            body = payload.build_batch((_single(number, each), each.payload) for number, each in batch)
            metadata.num_messages_in_batch = len(batch)
            metadata.highest_sequence_id = batch[-1][0]
        else:
            body = first.payload
            for key, value in first.properties.items():
                metadata.properties.add(key=key, value=value)
            if first.event_ms:
                metadata.event_time = first.event_ms
            if first.deliver_at_ms is not None:
                metadata.deliver_at_time = first.deliver_at_ms
            if first.replicate_to is not None:
                # Pulsar's notation for no other cluster: an empty list would mean all.
                metadata.replicate_to.extend(first.replicate_to or ("__local__",))
        if self._compression != pb.NONE:
            metadata.compression = self._compression
            metadata.uncompressed_size = len(body)
            body = compress(self._compression, body)
        entry = payload.build_entry(metadata, body)
        highest = batch[-1][0] if batched else None
        contexts = [each.context for _, each in batch]
        due_ms = self._clock.monotonic_ms() + self._timeout_ms
        sent = _Sent(first_id, highest, len(batch), entry, contexts, due_ms, batched)
        self._sent.append(sent)
        self._held.size_bytes += len(entry)
        return self._run(sent)

    def _run(self, sent: _Sent) -> SendRun:
        run = SendRun(self.producer_id)
        run.add(sent.sequence_id, sent.count, sent.highest_id, sent.entry, good=True)
        run.size_bytes = len(sent.entry)
        return run


def _single(number: int, message: Outgoing) -> pb.SingleMessageMetadata:
    single = pb.SingleMessageMetadata(sequence_id=number)
    if message.key is not None:
        single.partition_key = message.key
    for key, value in message.properties.items():
        single.properties.add(key=key, value=value)
    if message.event_ms:
        single.event_time = message.event_ms
    return single
