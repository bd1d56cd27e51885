"""The base of all subscriptions, whether their topics store messages or not: consumers, a type, counters.

Subscription and attached consumer refer to each other, so both are here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position, RequestId
from magnetar.base.names import TopicName
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.explain.subscription_view import View
from magnetar.broker.filters.judge import FilterCounts
from magnetar.broker.limits.topic_limits import SubscriptionLimits
from magnetar.broker.subscription.seek_fence import SeekFence
from magnetar.broker.subscription.tally import Tally
from magnetar.wire.events import AckEvent


class SubscriptionType(IntEnum):
    """As numbered on the wire (`CommandSubscribe.SubType`)."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """How a Key_Shared consumer wants hashes to be divided."""

    sticky: bool = False
    allow_out_of_order: bool = False


READ_AGAIN_MS: Final = 5_000
"""After entries could not be read they are tried again: an object store may answer then."""


class ConsumerConnection(Protocol):
    """The part of a consumer's connection that a subscription uses."""

    out: list[bytes]
    """Bytes to be written, in order; `queued` must follow an append."""

    @property
    def writable(self) -> bool: ...

    def ask_output(self) -> bool: ...

    def queued(self, size_bytes: int) -> None:
        """Bytes were appended to `out`: they leave at the end of this tick."""

    def consumer_detached(self, consumer: AttachedConsumer) -> None:
        """The broker detaches the consumer (seek, unload, deletion): the client subscribes again."""

    def active_changed(self, consumer: AttachedConsumer, *, active: bool) -> None:
        """Failover: tells the client whether its consumer is the active one."""

    def end_of_topic(self, consumer: AttachedConsumer) -> None:
        """The topic is terminated and the subscription has acknowledged all entries."""

    def ack_response(
        self, consumer: AttachedConsumer, request_id: RequestId, error: BaseException | None
    ) -> None: ...


class EntryEncoder(Protocol):
    """Encodes entries for a consumer: `wire.messages.MessageEncoder`, or a replacement.

    A replacement holds one and does not inherit from it: compiled classes have no interpreted subclasses.
    """

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
    ) -> int: ...

    def encode_rows(
        self, run: EntryRun, rows: list[int], out: list[bytes], *, consumer_epoch: int | None = None
    ) -> int: ...

    def encode_unstored(self, entries: list[bytes], out: list[bytes]) -> int: ...


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class AttachedConsumer(Consumer):
    """A consumer with its connection and its frame encoder."""

    connection: ConsumerConnection
    encoder: EntryEncoder
    subscription: AnySubscription
    client_address: str = ""
    client_version: str = ""
    connected_ms: int = 0
    properties: dict[str, str]
    told_end: bool = False
    """Whether the client was told that no message will follow."""


class AnySubscription(ABC):
    """Consumers of one topic that share its messages; what sessions and the admin service see of it."""

    filtered: FilterCounts | None = None
    """What its entry filters decided; None: it never had any."""

    def __init__(self, topic: TopicName, name: str, now_ms: int) -> None:
        self.topic = topic
        self.name = name
        self.tally = Tally(now_ms)
        self.seeks = SeekFence()

    # -- what it is --------------------------------------------------------------------------------

    @property
    def messages_out(self) -> int:
        """Messages that its consumers were sent."""
        return self.tally.messages_out

    @property
    def bytes_out(self) -> int:
        """Bytes that its consumers were sent."""
        return self.tally.bytes_out

    @property
    @abstractmethod
    def type(self) -> SubscriptionType:
        """The type of the consumers that are attached; without consumers, of those that were last."""

    @property
    @abstractmethod
    def durable(self) -> bool:
        """Whether it outlives its consumers."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The properties from the client that created the subscription."""

    @property
    @abstractmethod
    def consumers(self) -> list[AttachedConsumer]:
        """Attached consumers, in dispatch order."""

    @property
    @abstractmethod
    def active_consumer(self) -> str | None:
        """Name of the active consumer of an Exclusive or Failover subscription."""

    @property
    @abstractmethod
    def backlog_entries(self) -> int:
        """Stored entries that are not acknowledged."""

    @property
    @abstractmethod
    def mark_delete(self) -> Position | None:
        """The mark-delete; None where nothing is stored."""

    @abstractmethod
    def view(self) -> View:
        """The state that decides on its dispatch, at this moment."""

    def unacked_of(self, consumer: Consumer) -> int:
        """Messages that one of its consumers was sent and has not acknowledged."""
        return consumer.unacked

    # -- consumers ---------------------------------------------------------------------------------

    @abstractmethod
    def attach(self, consumer: AttachedConsumer, type_: SubscriptionType, policy: KeySharedPolicy) -> None:
        """Adds a consumer. Raises ConsumerBusyError, ConsumerAssignmentError."""

    @abstractmethod
    def detach(self, consumer: AttachedConsumer) -> None:
        """Removes a consumer; others get what it had not acknowledged."""

    @abstractmethod
    def detach_all(self) -> None:
        """Detaches every consumer and tells its client to subscribe again."""

    def check_deletable(self, asking: AttachedConsumer | None, *, force: bool) -> None:
        """Raises PreconditionFailedError while other consumers are connected."""
        others = [consumer for consumer in self.consumers if consumer is not asking]
        if not force:
            check_no_consumers(len(others))

    def _tell_active(self, consumer: Consumer, is_active: bool) -> None:
        if isinstance(consumer, AttachedConsumer) and self.type is SubscriptionType.FAILOVER:
            consumer.connection.active_changed(consumer, active=is_active)

    @abstractmethod
    def keep(self, limits: SubscriptionLimits) -> None:
        """Puts limits in force, on consumers that are attached too."""

    # -- commands ----------------------------------------------------------------------------------

    @abstractmethod
    def flow(self, consumer: AttachedConsumer, permits: int) -> None:
        """The consumer can take `permits` more messages."""

    @abstractmethod
    def ack(self, consumer: AttachedConsumer, event: AckEvent) -> None:
        """Applies acknowledgements; the client is told once they are durable, if it asked."""

    @abstractmethod
    def redeliver(
        self, consumer: AttachedConsumer, positions: list[Position] | None, epoch: int | None
    ) -> None:
        """Sends these entries (None: all unacknowledged ones) again."""

    @abstractmethod
    async def seek_message(self, position: Position) -> None:
        """The next entry to deliver is the one of a client's message id, or an end of the topic."""

    @abstractmethod
    async def seek_time(self, publish_ms: int) -> None:
        """The next entry to deliver is the first that was published at this Unix time (ms) or later."""

    @abstractmethod
    def pump(self) -> None:
        """Sends what can be sent now; called whenever permits, entries or acknowledgements arrive."""


def check_no_consumers(count: int) -> None:
    """Raises PreconditionFailedError when `count` consumers are connected to a subscription."""
    if count:
        raise PreconditionFailedError(
            "Subscription has active connected consumers", remedy="disconnect them, or add ?force=true"
        )
