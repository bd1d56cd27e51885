"""Applies what a client acknowledges to a cursor and a dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.wire.events import AckEvent


class Acks(Protocol):
    """Where acknowledgements are recorded: a cursor, or its replacement."""

    @property
    def mark_delete(self) -> Position: ...
    def is_acked(self, position: Position) -> bool: ...
    def ack_set(self, position: Position) -> tuple[int, ...] | None: ...
    def ack(self, positions: Sequence[Position]) -> None: ...
    def ack_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool: ...
    def ack_cumulative(self, position: Position) -> None: ...
    def ack_cumulative_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool: ...


def acknowledge_each(acks: Acks, dispatcher: Dispatcher, consumer: Consumer, event: AckEvent) -> int:
    """Individual acknowledgements; how many messages they are."""
    messages = 0
    if event.positions:
        acks.ack(event.positions)
        messages = dispatcher.acked(consumer, event.positions)
    if not event.batch_acks:
        return messages
    # The dispatcher is told once of all: it may have to ask each of its consumers.
    whole: list[Position] = []
    parts: dict[Position, int] = {}
    for position, words, batch_size in event.batch_acks:
        acks.ack_batch(position, words, batch_size)
        # Also when the entry was acknowledged before, by expiry or by another consumer: it is held no longer.
        if acks.is_acked(position):
            parts.pop(position, None)
            whole.append(position)
        elif (left := acks.ack_set(position)) is not None:
            parts[position] = sum(word.bit_count() for word in left)
    if parts:
        messages += dispatcher.acked_parts(consumer, parts)
    if whole:
        messages += dispatcher.acked(consumer, whole)
    return messages


def acknowledge_upto(
    acks: Acks, consumer: Consumer, event: AckEvent, entries_between: Callable[[Position, Position], int]
) -> int:
    """Cumulative acknowledgements; how many messages they are, by the average of the consumer's entries.

    `entries_between(after, upto)` counts entries of the log.
    """
    before = acks.mark_delete
    for position in event.positions:
        acks.ack_cumulative(position)
    for position, words, batch_size in event.batch_acks or ():
        acks.ack_cumulative_batch(position, words, batch_size)
    after = acks.mark_delete
    if after.ledger_id == before.ledger_id:
        return consumer.messages_in(max(0, after.entry_id - before.entry_id))
    return consumer.messages_in(entries_between(before, after))


def sent_and_unacked(consumer: Consumer, cursor: Cursor, unread: int) -> int:
    """Messages that were sent to the only consumer served and are not acknowledged.

    They are not recorded singly: they lie between mark-delete and the last read. `unread`: entries of the log
    after that. Exact where all entries hold equally many messages, else by their average.
    """
    entries = min(max(0, cursor.backlog_entries - unread), consumer.entries_out)
    parts = min(entries, cursor.partial_count)
    if not parts:
        return consumer.messages_in(entries)
    return consumer.messages_in(entries - parts) + cursor.partial_left
