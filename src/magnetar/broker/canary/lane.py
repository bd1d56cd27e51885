"""A producer and a reader on a canary's topic, without a socket.

They are attached like those of clients: a published message waits for the same syncs and limits, and a
delivered one passes the same dispatch. The reader begins at the end of the topic and closes with the lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LATEST, ConsumerId, Position, ProducerId, RequestId
from magnetar.broker.canary.canary_state import CanaryState
from magnetar.broker.subscription.any_subscription import (
    AnySubscription,
    AttachedConsumer,
    KeySharedPolicy,
    SubscriptionType,
)
from magnetar.broker.topic.any_topic import AnyTopic, ReaderStart
from magnetar.broker.topic.entry import metadata_of
from magnetar.broker.topic.producer import OwnConnection, Producer
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import AckEvent, SendRun

_PERMITS = 1_000
"""Permits that the reader grants at a time; clients may publish to the topic too."""


class _Reader:
    """Takes the place of the frame encoder: records the messages that would be sent."""

    __slots__ = ("_seen",)

    def __init__(self, seen: Callable[[bytes, Position], None]) -> None:
        self._seen = seen

    def encode(
        self,
        run: EntryRun,
        start: int,
        stop: int,
        out: list[bytes],
        *,
        redelivery_counts: list[int] | None = None,
        ack_sets: list[tuple[int, ...] | None] | None = None,
        consumer_epoch: int | None = None,
    ) -> int:
        return self.encode_rows(run, list(range(start, stop)), out)

    def encode_rows(
        self, run: EntryRun, rows: list[int], out: list[bytes], *, consumer_epoch: int | None = None
    ) -> int:
        for row in rows:
            self._seen(run.entries[row], Position(run.ledger_id, run.first_entry + row))
        return sum(len(run.entries[row]) for row in rows)

    def encode_unstored(self, entries: list[bytes], out: list[bytes]) -> int:
        raise AssertionError("a canary's topic is stored")


class Lane(OwnConnection):
    """A lane is open from `open` until it is closed or the broker detaches either end."""

    writable = True

    def __init__(self, name: str, state: CanaryState) -> None:
        """`name`: of the producer; what others publish to the topic is passed over."""
        self.out: list[bytes] = []
        self._name = name
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._topic: AnyTopic | None = None
        self._subscription: AnySubscription | None = None
        self._producer: Producer | None = None
        self._consumer: AttachedConsumer | None = None
        self._taken: list[Position] = []

    def ask_output(self) -> bool:
        """Accepts every message at once."""
        return True

    @property
    def is_open(self) -> bool:
        """Whether both ends are attached."""
        return self._producer is not None and self._consumer is not None

    async def open(self, topic: AnyTopic, now_ms: int) -> None:
        """Attaches both ends. Raises RefusedError."""
        subscription = await topic.reader(self._name, ReaderStart(LATEST, None))
        consumer = AttachedConsumer(
            consumer_id=ConsumerId(0),
            name=self._name,
            outlet=self,
            connection=self,
            encoder=_Reader(self._seen),
            subscription=subscription,
            connected_ms=now_ms,
            properties={},
        )
        try:
            subscription.attach(consumer, SubscriptionType.EXCLUSIVE, KeySharedPolicy())
            producer = Producer(
                producer_id=ProducerId(0), name=self._name, connection=self, connected_ms=now_ms
            )
            self._topic, self._subscription, self._consumer = topic, subscription, consumer
            topic.attach_producer(producer)
        except MagnetarError:
            self.close()
            topic.leave_reader(subscription)
            raise
        self._producer = producer
        subscription.flow(consumer, _PERMITS)

    def close(self) -> None:
        """Detaches both ends; may be called at any time."""
        topic, subscription = self._topic, self._subscription
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        if topic is not None and producer is not None:
            topic.detach_producer(producer)
        if subscription is not None and consumer is not None:
            subscription.detach(consumer)
            if topic is not None:
                topic.leave_reader(subscription)

    def publish(self, now_ms: int) -> None:
        """Sends one message."""
        topic, producer = self._topic, self._producer
        assert topic is not None
        assert producer is not None
        number = self._state.begin(self._loop.time())
        metadata = pb.MessageMetadata(producer_name=self._name, sequence_id=number, publish_time=now_ms)
        entry = payload.build_entry(metadata, b"canary")
        run = SendRun(ProducerId(0))
        run.add(number, 1, None, entry, good=True)
        run.size_bytes = len(entry)
        topic.publish(producer, run)

    # -- the producer's connection -------------------------------------------------------------------

    def receipts(
        self,
        producer: Producer,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        position: Position | None,
    ) -> None:
        for number in sequence_ids:
            self._state.durable(number, self._loop.time())

    def send_errors(
        self, producer: Producer, sequence_ids: list[int], code: pb.ServerError, message: str
    ) -> None:
        for number in sequence_ids:
            self._state.refuse(number, message)

    def producer_detached(self, producer: Producer) -> None:
        self._producer = None

    def producer_refused(self, producer: Producer, error: MagnetarError) -> None:
        self._producer = None

    # -- the reader's connection ---------------------------------------------------------------------

    def _seen(self, entry: bytes, position: Position) -> None:
        metadata = metadata_of(entry)
        if metadata.producer_name == self._name:
            self._state.delivered(metadata.sequence_id, self._loop.time())
        self._taken.append(position)
        if len(self._taken) == 1:
            # The subscription is in the middle of its round: it is answered after that.
            self._loop.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        positions, self._taken = self._taken, []
        consumer, subscription = self._consumer, self._subscription
        if consumer is None or subscription is None:
            return
        subscription.ack(consumer, AckEvent(ConsumerId(0), positions))
        subscription.flow(consumer, len(positions))

    def queued(self, size_bytes: int) -> None: ...

    def consumer_detached(self, consumer: AttachedConsumer) -> None:
        self._consumer = None

    def active_changed(self, consumer: AttachedConsumer, *, active: bool) -> None: ...

    def end_of_topic(self, consumer: AttachedConsumer) -> None: ...

    def ack_response(
        self, consumer: AttachedConsumer, request_id: RequestId, error: BaseException | None
    ) -> None: ...
