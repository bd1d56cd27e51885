"""A consumer that is attached to a subscription, and what the subscription asks of its connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from magnetar.base.entries import EntryRun
from magnetar.broker.dispatch.consumer import Consumer

if TYPE_CHECKING:
    from magnetar.broker.subscription.any_subscription import AnySubscription


class ConsumerConnection(Protocol):
    """What a subscription needs of a consumer's connection."""

    out: list[bytes]
    """Bytes to be written, in order; `queued` must follow an append."""

    @property
    def writable(self) -> bool: ...

    def queued(self, size_bytes: int) -> None:
        """Bytes were appended to `out`: they leave at the end of this tick."""

    def consumer_detached(self, consumer: AttachedConsumer) -> None:
        """The broker takes the consumer off (seek, unload, deletion): the client subscribes again."""

    def active_changed(self, consumer: AttachedConsumer, *, active: bool) -> None:
        """Failover: tells the client whether its consumer is the active one."""

    def end_of_topic(self, consumer: AttachedConsumer) -> None:
        """The topic is terminated and the subscription has acknowledged everything."""

    def ack_response(
        self, consumer: AttachedConsumer, request_id: int, error: BaseException | None
    ) -> None: ...


class EntryEncoder(Protocol):
    """Makes of entries what a consumer is sent: `wire.messages.MessageEncoder`, or what stands in for it.

    A stand-in holds one and does not inherit from it: compiled classes have no interpreted subclasses.
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
        with_broker_metadata: bool = False,
        rows: list[int] | None = None,
    ) -> int: ...

    def encode_unstored(self, entries: list[bytes], out: list[bytes]) -> int: ...


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class AttachedConsumer(Consumer):
    """A consumer with its connection and its frame encoder."""

    connection: ConsumerConnection
    encoder: EntryEncoder
    subscription: AnySubscription
    broker_metadata: bool = False
    """Whether the client asked for broker entry metadata (feature flag of CONNECT)."""
    client_address: str = ""
    client_version: str = ""
    connected_ms: int = 0
    properties: dict[str, str]
    told_end: bool = False
    """Whether the client was told that no message will follow."""
