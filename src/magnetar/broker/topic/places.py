"""Places in a topic's log that clients name: the last message, the start of a reader, the aim of a seek."""

from __future__ import annotations

import logging

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LostEntriesError
from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.broker.topic.any_topic import ReaderStart
from magnetar.broker.topic.entry import metadata_of
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.visible_reading import last_visible
from magnetar.wire.payload import EntryError

_log = logging.getLogger("magnetar.broker.topic")


async def last_message(log: ManagedLog) -> tuple[Position, int]:
    """Position of the last message that can be read, and its index in its batch (-1: not a batch).

    (-1:-1, -1) when the topic holds none.
    """
    run = await _last_intact(log)
    if run is None:
        return EARLIEST, -1
    batch_index = -1
    try:
        metadata = metadata_of(run.entries[0])
        if metadata.HasField("num_messages_in_batch"):
            batch_index = max(metadata.num_messages_in_batch, 1) - 1
    except EntryError as error:
        # One damaged message must not keep readers from the others.
        _log.warning("the last message of log %s is damaged: %s", log.name, error)
    return Position(run.ledger_id, run.first_entry), batch_index


async def _last_intact(log: ManagedLog) -> EntryRun | None:
    """The last entry that is not lost; None where there is none, or all were given up. Raises what
    `ManagedLog.read` raises: also where all are lost, since a reader of a seemingly empty topic would end as
    if it had read all."""
    last, hole = last_visible(log), None
    while True:
        if last.entry_id < 0:
            last = log.previous_position(last)
        if last.entry_id < 0:
            if hole is not None:
                raise hole
            return None
        first = last.entry_id
        try:
            if runs := await log.read(last, 1 << 20, 1):
                return runs[0]
            if log.reading.skipped is None:
                return None
        except LostEntriesError as error:
            if not error.certain:
                raise
            hole = error
            first = min(first, error.first_entry)
        last = log.previous_position(Position(last.ledger_id, first))


async def reader_start(log: ManagedLog, start: ReaderStart) -> Position:
    """The start of a reader: the position before the first entry that it gets.

    The entry of the start id is delivered; the client drops it, or its messages up to the start, unless it
    wants the start itself.
    """
    if start.since_ms is not None:
        return log.previous_position(await log.position_of_time(start.since_ms))
    if start.position >= LATEST:
        return log.last_position
    if start.position <= EARLIEST:
        return log.previous_position(log.first_position)
    return log.previous_position(start.position)


def seek_position(log: ManagedLog, position: Position) -> Position:
    """The entry that a SEEK by id asks for; the ends of the log for the reserved ids."""
    if position >= LATEST:
        return log.next_position(log.last_position)
    if position <= EARLIEST:
        return log.first_position
    return position
