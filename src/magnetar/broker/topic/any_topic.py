"""The base of all topics, whether they store messages or not: producers, subscriptions, a life cycle.

Sessions and the admin service use topics as `AnyTopic`; callers that need a log ask for a `Topic`, the
persistent kind. The domain of a name decides on the class, at one place: `Broker.any_topic`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import ref

from magnetar.base.clock import Clock
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.access.access_state import Admission
from magnetar.broker.access.producer_access import ProducerAccess
from magnetar.broker.errors import (
    WIRE_CODES,
    ChecksumMismatchError,
    NotAllowedError,
    PreconditionFailedError,
    RefusedError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
)
from magnetar.broker.limits.topic_limits import TopicLimits
from magnetar.broker.listeners import NOWHERE
from magnetar.broker.subscription.any_subscription import AnySubscription
from magnetar.broker.topic import topic_claims as claims
from magnetar.broker.topic.producer import Producer
from magnetar.wire.events import SendRun

_CHECKSUM_MISMATCH: Final = "Checksum failed on the broker: the message was damaged on its way"


@dataclass(frozen=True, slots=True)
class ReaderStart:
    """The requested start of a reader."""

    position: Position
    """The entry of its start message id, or EARLIEST or LATEST."""
    since_ms: int | None = None
    """With this, the first entry that was published at this Unix time or later instead."""


class AnyTopic(ABC):
    """One topic that is not partitioned, or one partition."""

    subscriptions: Mapping[str, AnySubscription]
    """By name."""

    def __init__(self, name: TopicName, access: ProducerAccess[Producer], clock: Clock) -> None:
        self.name = name
        self.access = access
        me = ref(self)

        def published() -> tuple[int, int]:
            return (0, 0) if (topic := me()) is None else (topic.messages_in, topic.bytes_in)

        self.limits = TopicLimits(clock, published)
        self.created_ms = clock.now_ms()
        self.last_publish_ms = 0
        self.messages_in = 0
        self.bytes_in = 0
        self.screen: Callable[[Sequence[bytes]], Mapping[int, RefusedError]] | None = None
        """Which entries outside of transactions are refused, by row; None: nothing is checked."""
        self.closed = False
        self.assigned = NOWHERE
        """The broker that takes the topic over, which clients are told when they are sent away."""

    # -- producers ---------------------------------------------------------------------------------

    @property
    def producers(self) -> dict[str, Producer]:
        """Attached producers by name."""
        return self.access.producers

    def attach_producer(self, producer: Producer) -> Admission:
        """Attaches a producer. Unless it JOINED, its connection is told later whether it may publish.

        Raises ProducerBusyError, ProducerFencedError when its name or the topic is taken.
        """
        self._check_open()
        return self.access.attach(producer)

    def detach_producer(self, producer: Producer) -> None:
        """Removes a producer; what it sent and is not durable yet still becomes so."""
        self.access.detach(producer)

    def send_producer_away(self, producer: Producer) -> None:
        """Detaches a producer; its client comes back and is told whether and why it is refused."""
        if producer.ready:
            self.detach_producer(producer)
            producer.connection.producer_detached(producer)

    def last_sequence(self, producer_name: str) -> int:
        """Highest durable sequence number of a named producer; -1 without deduplication."""
        return -1

    # -- publish path ------------------------------------------------------------------------------

    def publish(self, producer: Producer, run: SendRun) -> None:
        """Publishes a vector of entries of one producer; answers follow through its connection, in order."""
        if self.closed:
            # Not answered: the producer is sent away as soon as what came before is, and sends this again.
            producer.connection.published(run.size_bytes)
        elif not producer.ready:
            self._refuse_waiting(producer, run)
        elif (
            run.bad is None
            and self.limits.gate is None
            and self.screen is None
            and (run.plain or not claims.doubtful(run))
        ):
            self._take(producer, run)
        else:
            self._take_checked(producer, run)

    def _take_checked(self, producer: Producer, run: SendRun) -> None:
        """Publishes the rows that arrived intact, match their commands and keep the topic's limits."""
        gate = self.limits.gate
        refused = {} if run.plain else claims.refusals(run)
        if self.screen is not None and run.txn is None:
            refused.update(self.screen(run.entries))
        if gate is not None:
            refused.update(gate.refusals(run))
            gate.passed(producer.connection, run)
        if run.bad is not None:
            refused.update(dict.fromkeys(run.bad, ChecksumMismatchError(_CHECKSUM_MISMATCH)))
        if not refused:
            self._take(producer, run)
            return
        for error, rows in itertools.groupby(range(len(run.entries)), refused.get):
            part = run.select(rows)
            if error is None:
                self._take(producer, part)
            else:
                self.refuse(producer, part, error)

    def _refuse_waiting(self, producer: Producer, run: SendRun) -> None:
        """No client sends before it was told that its producer is ready."""
        producer.connection.send_errors(
            producer,
            run.sequence_ids,
            WIRE_CODES[NotAllowedError],
            "the producer waits for access to the topic",
        )
        producer.connection.published(run.size_bytes)

    @abstractmethod
    def _take(self, producer: Producer, run: SendRun) -> None:
        """Publishes rows that arrived whole, of a producer that may publish."""

    @abstractmethod
    def refuse(self, producer: Producer, run: SendRun, error: RefusedError) -> None:
        """Refuses rows, in their places among the receipts."""

    def _counted(self, producer: Producer, messages: int, size_bytes: int) -> None:
        producer.messages_in += messages
        producer.bytes_in += size_bytes
        self.messages_in += messages
        self.bytes_in += size_bytes

    # -- subscriptions -----------------------------------------------------------------------------

    @abstractmethod
    async def subscription(
        self, name: str, *, initial_earliest: bool, start: Position | None, properties: dict[str, str] | None
    ) -> AnySubscription:
        """The durable subscription, created when missing.

        `start` (exclusive) or `initial_earliest` is the start of a new one.
        """

    @abstractmethod
    async def reader(self, name: str, start: ReaderStart) -> AnySubscription:
        """A subscription that lives as long as its consumers (Reader)."""

    @abstractmethod
    async def last_message(self) -> tuple[Position, int]:
        """Position of the last message, and its index in its batch (-1: not a batch).

        (-1:-1, -1) when the topic holds no message. Raises NotAllowedError when it never holds any.
        """

    async def delete_subscription(self, name: str, *, force: bool = False) -> None:
        """Removes a subscription. Raises SubscriptionNotFoundError, PreconditionFailedError."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFoundError(f"Subscription {name} not found for topic {self.name}")
        subscription.check_deletable(None, force=force)
        await self.drop_subscription(subscription)

    @abstractmethod
    async def drop_subscription(self, subscription: AnySubscription) -> None:
        """Removes a subscription whose consumers may still be attached; they are detached."""

    @abstractmethod
    def leave_reader(self, subscription: AnySubscription) -> None:
        """Forgets a non-durable subscription without consumers."""

    # -- life cycle --------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise ServiceNotReadyError(f"{self.name} is being unloaded; look it up again")

    def check_there(self, subscription: AnySubscription) -> None:
        """Raises ServiceNotReadyError when the subscription is not the topic's any more.

        To be called in the turn in which a consumer is attached: during any await since it was found, it may
        have been deleted, or the topic unloaded. A consumer of it would never get a message.
        """
        self._check_open()
        if self.subscriptions.get(subscription.name) is not subscription:
            raise ServiceNotReadyError(
                f"subscription {subscription.name} of {self.name} was deleted meanwhile; subscribe again"
            )

    @property
    def retention_ms(self) -> int | None:
        """For how long its messages stay after they were acknowledged; None: for ever."""
        return 0

    def disconnect_clients(self) -> None:
        """Detaches every producer and consumer: they look the topic up again."""
        self.closed = True
        self.limits.close()
        self.access.clear(ServiceNotReadyError(f"{self.name} is being unloaded; look it up again"))
        for subscription in self.subscriptions.values():
            subscription.detach_all()

    def check_deletable(self) -> None:
        """Raises PreconditionFailedError while producers or consumers are connected. Subscriptions without
        consumers go with the topic, as in Pulsar."""
        producers = len(self.producers)
        consumers = sum(len(subscription.consumers) for subscription in self.subscriptions.values())
        if producers or consumers:
            connected = producers + consumers
            raise PreconditionFailedError(
                f"Topic has {connected} client{'s' if connected > 1 else ''} connected"
                f" Including {consumers} consumers, {producers} producers, and 0 replicators.",
                remedy="disconnect them, or add ?force=true",
            )

    @abstractmethod
    async def close(self) -> None:
        """Sends clients away and makes durable what is to be kept. Raises MagnetarError."""
