"""A consumer's subscription to a wildcard: to the session one, in fact one on each topic that matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import EARLIEST, LATEST, LedgerId, Position, RequestId
from magnetar.base.names import TopicName
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import ConsumerNotFoundError, NotAllowedError
from magnetar.broker.explain.subscription_view import View
from magnetar.broker.limits.topic_limits import SubscriptionLimits
from magnetar.broker.subscription.any_subscription import (
    AnySubscription,
    AttachedConsumer,
    ConsumerConnection,
    KeySharedPolicy,
    SubscriptionType,
)
from magnetar.broker.wildcards.part import PartConsumer, Pool
from magnetar.wire.events import AckEvent

_LEDGERS_MAX: Final = 100_000
"""Ledgers whose topics are remembered; beyond this, the oldest are forgotten."""


class WildcardSubscription(AnySubscription):
    """The wildcard subscription of one consumer."""

    def __init__(
        self,
        topic: TopicName,
        name: str,
        connection: ConsumerConnection,
        *,
        lost: Callable[[TopicName], None],
        closed: Callable[[], None],
    ) -> None:
        """`lost` is called when a topic detached the consumer, `closed` when the client left."""
        super().__init__(topic, name, 0)
        self._type = SubscriptionType.EXCLUSIVE
        self.connection = connection
        self.pool = Pool()
        self.parts: dict[TopicName, PartConsumer] = {}
        self.consumer: AttachedConsumer
        """The session's consumer; set once it is opened."""
        self._ledgers: dict[LedgerId, TopicName] = {}
        self._acks: dict[int, tuple[int, BaseException | None]] = {}
        """Answers that topics still owe, and the first error, by request id."""
        self._turn = 0
        self._lost = lost
        self._closed = closed

    # -- parts -------------------------------------------------------------------------------------

    def add(self, name: TopicName, part: PartConsumer) -> None:
        """The consumer is attached to one more topic."""
        self.parts[name] = part
        part.subscription.pump()

    def drop(self, name: TopicName) -> None:
        """The topic is no more."""
        part = self.parts.pop(name, None)
        if part is not None:
            part.subscription.detach(part)

    def note(self, name: TopicName, ledger_id: LedgerId) -> None:
        """The client is sent entries of this ledger of a topic."""
        if ledger_id not in self._ledgers:
            if len(self._ledgers) >= _LEDGERS_MAX:
                del self._ledgers[next(iter(self._ledgers))]
            self._ledgers[ledger_id] = name

    def lost(self, consumer: AttachedConsumer) -> None:
        """A topic detached the consumer; the client is not told."""
        name = consumer.subscription.topic
        if self.parts.get(name) is consumer:
            del self.parts[name]
            self._lost(name)

    def topic_of(self, position: Position) -> TopicName | None:
        """The topic of an entry that was sent to the client."""
        return self._ledgers.get(position.ledger_id)

    def _part_of(self, position: Position) -> PartConsumer:
        name = self._ledgers.get(position.ledger_id)
        part = None if name is None else self.parts.get(name)
        if part is None:
            raise ConsumerNotFoundError(f"no topic of {self.topic} that is connected holds {position}")
        return part

    # -- what it is --------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        return True

    @property
    def properties(self) -> Mapping[str, str]:
        return {}

    @property
    def type(self) -> SubscriptionType:
        return self._type

    @property
    def consumers(self) -> list[AttachedConsumer]:
        return [self.consumer]

    @property
    def active_consumer(self) -> str | None:
        return None

    @property
    def backlog_entries(self) -> int:
        return sum(part.subscription.backlog_entries for part in self.parts.values())

    @property
    def mark_delete(self) -> Position | None:
        return None

    def unacked_of(self, consumer: Consumer) -> int:
        return sum(part.subscription.unacked_of(part) for part in self.parts.values())

    def view(self) -> View:
        return View(stored=True)

    # -- consumers ---------------------------------------------------------------------------------

    def attach(self, consumer: AttachedConsumer, type_: SubscriptionType, policy: KeySharedPolicy) -> None:
        self.consumer = consumer
        self._type = type_

    def detach(self, consumer: AttachedConsumer) -> None:
        self._closed()
        for name in list(self.parts):
            self.drop(name)

    def detach_all(self) -> None:
        self.detach(self.consumer)
        self.connection.consumer_detached(self.consumer)

    def keep(self, limits: SubscriptionLimits) -> None:
        """Each topic keeps its own."""

    # -- commands ----------------------------------------------------------------------------------

    def flow(self, consumer: AttachedConsumer, permits: int) -> None:
        waiting = self.pool.permits <= 0
        self.pool.permits += permits
        if waiting:
            self.pump()

    def pump(self) -> None:
        # In turn, so that one topic with a long backlog does not take every permit.
        parts = list(self.parts.values())
        if not parts:
            return
        self._turn = (self._turn + 1) % len(parts)
        for part in (*parts[self._turn :], *parts[: self._turn]):
            if self.pool.permits <= 0:
                return
            part.subscription.pump()

    def ack(self, consumer: AttachedConsumer, event: AckEvent) -> None:
        events = self._divided(event)
        if event.request_id is not None:
            self._acks[event.request_id] = (len(events), None)
        for part, own in events:
            try:
                part.subscription.ack(part, own)
            except MagnetarError as error:
                if event.request_id is None:
                    raise
                self.answered(event.request_id, error)

    def _divided(self, event: AckEvent) -> list[tuple[PartConsumer, AckEvent]]:
        if event.txn is not None:
            raise NotAllowedError("transactions are not offered yet")
        found: dict[PartConsumer, AckEvent] = {}

        def of(position: Position) -> AckEvent:
            part = self._part_of(position)
            if part not in found:
                found[part] = AckEvent(
                    part.consumer_id,
                    [],
                    cumulative=event.cumulative,
                    request_id=event.request_id,
                    validation_error=event.validation_error,
                )
            return found[part]

        for position in event.positions:
            of(position).positions.append(position)
        for batch_ack in event.batch_acks or ():
            own = of(batch_ack[0])
            own.batch_acks = [*(own.batch_acks or ()), batch_ack]
        if not found:
            raise NotAllowedError("the acknowledgement names no message")
        return list(found.items())

    def answered(self, request_id: RequestId, error: BaseException | None) -> None:
        """One topic has applied its part of an acknowledgement, or has not."""
        left, first = self._acks.pop(request_id)
        first = first or error
        if left > 1:
            self._acks[request_id] = (left - 1, first)
        else:
            self.connection.ack_response(self.consumer, request_id, first)

    def redeliver(
        self, consumer: AttachedConsumer, positions: list[Position] | None, epoch: int | None
    ) -> None:
        if positions is None:
            for each in list(self.parts.values()):
                each.subscription.redeliver(each, None, None)
            return
        divided: dict[PartConsumer, list[Position]] = {}
        for position in positions:
            known = self._ledgers.get(position.ledger_id)
            if known in self.parts:
                part = self.parts[known]
                divided.setdefault(part, []).append(position)
        for part, own in divided.items():
            part.subscription.redeliver(part, own, None)

    async def seek_message(self, position: Position) -> None:
        parts: Iterable[PartConsumer] = list(self.parts.values())
        if EARLIEST < position < LATEST:
            parts = [self._part_of(position)]
        for part in parts:
            await part.subscription.seek_message(position)

    async def seek_time(self, publish_ms: int) -> None:
        for part in list(self.parts.values()):
            await part.subscription.seek_time(publish_ms)
