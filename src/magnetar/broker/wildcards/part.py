"""A wildcard's consumer on one topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.ids import ConsumerId, RequestId
from magnetar.broker.subscription.any_subscription import AttachedConsumer, ConsumerConnection
from magnetar.wire.messages import MessageEncoder


class Pool:
    """The client's unused permits, for all topics together."""

    __slots__ = ("permits",)

    def __init__(self) -> None:
        self.permits = 0


class NotingEncoder:
    """Records the ledgers of the entries sent to the client: they tell the topic of an acknowledgement."""

    __slots__ = ("_encoder", "_note")

    def __init__(
        self, consumer_id: ConsumerId, note: Callable[[int], None], *, broker_metadata: bool
    ) -> None:
        # No partition: the client sees the wildcard as one topic.
        self._encoder = MessageEncoder(consumer_id, broker_metadata=broker_metadata)
        self._note = note

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
        self._note(run.ledger_id)
        return self._encoder.encode(
            run,
            start,
            stop,
            out,
            redelivery_counts=redelivery_counts,
            ack_sets=ack_sets,
            consumer_epoch=consumer_epoch,
        )

    def encode_rows(
        self, run: EntryRun, rows: list[int], out: list[bytes], *, consumer_epoch: int | None = None
    ) -> int:
        self._note(run.ledger_id)
        return self._encoder.encode_rows(run, rows, out, consumer_epoch=consumer_epoch)

    def encode_unstored(self, entries: list[bytes], out: list[bytes]) -> int:
        return self._encoder.encode_unstored(entries, out)


class PartConsumer(AttachedConsumer):
    """Attached to one topic's subscription, with the permits of all."""

    __slots__ = ("pool",)

    def __init__(self, pool: Pool, **fields: Any) -> None:
        self.pool = Pool()
        super().__init__(**fields)
        # Not before: the fields' own beginnings would empty it.
        self.pool = pool

    @property
    def permits(self) -> int:
        """Permits over all parts."""
        return self.pool.permits

    @permits.setter
    def permits(self, value: int) -> None:
        self.pool.permits = value


class PartOwner(Protocol):
    """The wildcard's subscription: `subscription.py` `WildcardSubscription`."""

    @property
    def connection(self) -> ConsumerConnection: ...

    def lost(self, consumer: AttachedConsumer) -> None: ...

    def answered(self, request_id: RequestId, error: BaseException | None) -> None: ...


class PartConnection:
    """Takes the place of the client's connection for one topic's subscription."""

    __slots__ = ("_owner",)

    def __init__(self, owner: PartOwner) -> None:
        self._owner = owner

    @property
    def out(self) -> list[bytes]:
        """The client's."""
        return self._owner.connection.out

    @out.setter
    def out(self, value: list[bytes]) -> None:
        raise AssertionError("only the session replaces its output")

    @property
    def writable(self) -> bool:
        """The client's."""
        return self._owner.connection.writable

    def ask_output(self) -> bool:
        """The client's."""
        return self._owner.connection.ask_output()

    def queued(self, size_bytes: int) -> None:
        self._owner.connection.queued(size_bytes)

    def consumer_detached(self, consumer: AttachedConsumer) -> None:
        self._owner.lost(consumer)

    def active_changed(self, consumer: AttachedConsumer, *, active: bool) -> None:
        """Active on some topics and not on others: the client has no word for that."""

    def end_of_topic(self, consumer: AttachedConsumer) -> None:
        """Others may follow."""

    def ack_response(
        self, consumer: AttachedConsumer, request_id: RequestId, error: BaseException | None
    ) -> None:
        self._owner.answered(request_id, error)
