"""The interface of dispatchers, and its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer


class Want(NamedTuple):
    """The next read that a dispatcher needs."""

    position: Position
    """First entry wanted; it may be trimmed or acknowledged, then the next readable one is taken."""
    entries_max: int
    replay: bool
    """Whether these are entries that were read before: exactly `entries_max` from `position` on."""


class Assignment(NamedTuple):
    """Entries `start <= i < stop` of a run, to be sent to a consumer in this order."""

    consumer: Consumer
    run: EntryRun
    start: int
    stop: int
    redeliveries: list[int] | None
    """Redelivery count per entry; None when all are 0."""
    ack_sets: list[tuple[int, ...] | None] | None
    """Acknowledged state per entry of half-acknowledged batches; None when there are none."""
    rows: list[int] | None = None
    """Only these rows, ascending, without redelivery counts and ack sets; None: all rows."""


class HashLine(NamedTuple):
    """A key hash with waiting entries (Key_Shared)."""

    key_hash: int
    owner: str | None
    """Consumer to which the hash is assigned; None: there is none."""
    holder: str | None
    """Consumer with unacknowledged entries of the hash; None: there is none."""
    held: int
    """Entries that the holder has."""
    waiting: int
    """Entries in line."""


class AckView(Protocol):
    """The part of the subscription's cursor that a dispatcher uses."""

    @property
    def mark_delete(self) -> Position: ...

    @property
    def has_holes(self) -> bool:
        """Whether any entry after mark-delete is acknowledged."""

    def is_acked(self, position: Position) -> bool: ...

    def ack_set(self, position: Position) -> tuple[int, ...] | None: ...

    def next_unacked(self, position: Position) -> Position:
        """The first entry >= `position` that is not acknowledged and exists or may come to exist."""

    @property
    def has_redeliveries(self) -> bool:
        """Whether any entry has a redelivery count."""

    def may_know_from(self, position: Position) -> bool:
        """Whether any entry >= `position` may be acknowledged, in part too, or has a redelivery count; False
        is certain. Of entries that were never sent, nothing is known but after a restart or a seek."""

    def redelivery_count(self, position: Position) -> int:
        """How often the entry was redelivered."""

    def redelivered(self, positions: Sequence[Position]) -> None:
        """Counts a redelivery of these entries; acknowledging them clears the count."""


class Delays(Protocol):
    """The interface to delivery times that a dispatcher uses."""

    @property
    def count(self) -> int:
        """Entries that are held back."""

    @property
    def loading(self) -> bool:
        """Whether it is not known yet which entries are held back."""

    @property
    def last_held(self) -> Position:
        """No position after it is held back."""

    def next_free(self, position: Position) -> Position:
        """The first position of the same ledger, from this one on, that is not held back."""

    def discard(self, positions: Sequence[Position]) -> None:
        """These were acknowledged: they need not be held back any more."""

    def screen(self, entries: Sequence[bytes]) -> bool:
        """Whether any of these entries may be delayed; False is certain."""

    def hold(self, run: EntryRun, start: int, stop: int, is_acked: Callable[[Position], bool] | None) -> int:
        """Holds back the delayed entries from `start` on, up to the first that is not delayed, is
        acknowledged, or is number `stop`; returns its number. `take_due` returns their positions later.
        `is_acked`: None when no entry is acknowledged."""

    def take_due(self, count_max: int) -> list[Position]:
        """Held entries that are due, at most `count_max`."""


class Dispatcher(Protocol):
    """Decides which consumer gets an entry. Every method is synchronous and total."""

    read_position: Position
    """Next entry that was never offered since the last rewind."""

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    def add(self, consumer: Consumer) -> None:
        """Attaches a consumer. Raises ConsumerBusyError or ConsumerAssignmentError."""

    def remove(self, consumer: Consumer) -> None:
        """Detaches a consumer; its unacknowledged entries go to others."""

    def want(self) -> Want | None:
        """The next read; None while no consumer could take an entry."""

    def offer(self, want: Want, runs: list[EntryRun]) -> list[Assignment]:
        """Assigns what was read for `want`. What cannot be assigned now is wanted again later."""

    def acked(self, consumer: Consumer, positions: Sequence[Position]) -> int:
        """Individual acknowledgements of whole entries, already applied to the cursor; how many messages
        that were still unacknowledged they are."""

    def acked_parts(self, consumer: Consumer, left: Mapping[Position, int]) -> int:
        """Only so many messages of these batches are unacknowledged, as the cursor already records; returns
        how many messages this acknowledged."""

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> int:
        """Takes back entries of the consumer: these, or all (None); returns their messages, 0 where holders
        are not recorded."""

    def see(self, acks: AckView) -> None:
        """From now on asks this view for acknowledgements: the cursor, or its replacement."""

    def again(self, positions: Sequence[Position], *, last: bool = True) -> None:
        """These entries, which counted as acknowledged, do not any more: they are sent again, with what a
        consumer holds of them. Not `last`: later ones of the same transaction follow in a later turn."""

    def rewind(self, position: Position) -> None:
        """Forgets what was sent and reads again from `position` (seek, reset)."""


def message_cost(run: EntryRun, offset: int, ack_set: tuple[int, ...] | None) -> int:
    """Permits that sending the entry takes: its unacknowledged messages."""
    count = run.count_of(offset)
    if ack_set is None:
        return count
    return min(count, sum(word.bit_count() for word in ack_set))
