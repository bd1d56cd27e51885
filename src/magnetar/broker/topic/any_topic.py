"""The base of all topics, whether they store messages or not: producers, subscriptions, a life cycle.

Sessions and the admin service use topics as `AnyTopic`; callers that need a log ask for a `Topic`, the
persistent kind. The domain of a name decides on the class, at one place: `Broker.any_topic`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from magnetar.base.clock import Clock
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.access.access_state import Admission
from magnetar.broker.access.producer_access import ProducerAccess
from magnetar.broker.errors import (
    PreconditionFailedError,
    RefusedError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
)
from magnetar.broker.limits.topic_limits import TopicLimits
from magnetar.broker.listeners import NOWHERE
from magnetar.broker.subscription.any_subscription import AnySubscription
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.publish_path import PublishPath
from magnetar.broker.topic.subscription_life import check_attachable, check_open
from magnetar.broker.topic.topic_tally import TopicTally
from magnetar.wire.events import SendRun


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

    publish: Callable[[Producer, SendRun], None]
    """Publishes a vector of entries of one producer: `PublishPath.publish`, without a call in between."""

    def __init__(
        self,
        name: TopicName,
        access: ProducerAccess[Producer],
        clock: Clock,
        path: Callable[[TopicLimits, TopicTally], PublishPath],
    ) -> None:
        """`path` makes its publish path."""
        self.name = name
        self.access = access
        tally = TopicTally()
        self.limits = TopicLimits(clock, tally.amounts)
        self.publishing = path(self.limits, tally)
        self.publish = self.publishing.publish
        self.created_ms = clock.now_ms()
        self.assigned = NOWHERE
        """The broker that takes the topic over, which clients are told when they are sent away."""

    @property
    def closed(self) -> bool:
        """Whether it takes no producers, consumers and messages any more."""
        return self.publishing.closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        self.publishing.closed = closed

    @property
    def screen(self) -> Callable[[Sequence[bytes]], Mapping[int, RefusedError]] | None:
        """See `PublishPath.screen`."""
        return self.publishing.screen

    @screen.setter
    def screen(self, screen: Callable[[Sequence[bytes]], Mapping[int, RefusedError]] | None) -> None:
        self.publishing.screen = screen

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

    # -- what it accepted --------------------------------------------------------------------------

    def refuse(self, producer: Producer, run: SendRun, error: RefusedError) -> None:
        """Refuses rows, in their places among the receipts."""
        self.publishing.refuse(producer, run, error)

    @property
    def messages_in(self) -> int:
        """Messages that it accepted since it was loaded."""
        return self.publishing.tally.messages_in

    @property
    def bytes_in(self) -> int:
        """Bytes of these."""
        return self.publishing.tally.bytes_in

    @property
    def last_publish_ms(self) -> int:
        """See `TopicTally.last_publish_ms`."""
        return self.publishing.tally.last_publish_ms

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
        check_open(self.name, self.publishing)

    def check_there(self, subscription: AnySubscription) -> None:
        """Raises ServiceNotReadyError when no consumer may be attached to the subscription.

        To be called in the turn in which a consumer is attached: during any await since it was found, it may
        have been deleted, moved by a seek that is not answered yet, or the topic unloaded.
        """
        self._check_open()
        check_attachable(self.name, self.subscriptions, subscription)

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
        check_unused(
            producers=len(self.producers),
            consumers=sum(len(subscription.consumers) for subscription in self.subscriptions.values()),
        )

    @abstractmethod
    async def close(self) -> None:
        """Sends clients away and makes durable what is to be kept. Raises MagnetarError."""


def check_unused(*, producers: int, consumers: int) -> None:
    """Raises PreconditionFailedError while a topic has clients: these numbers are connected."""
    if connected := producers + consumers:
        raise PreconditionFailedError(
            f"Topic has {connected} client{'s' if connected > 1 else ''} connected"
            f" Including {consumers} consumers, {producers} producers, and 0 replicators.",
            remedy="disconnect them, or add ?force=true",
        )
