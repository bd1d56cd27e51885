"""Decides whether messages that a query has not read are lost. Pure.

The partition tells the begin and the end of its log, and the number of earlier messages. The query has its
offset. In the meantime, the partition may have been trimmed, emptied, deleted and created again, or only
opened again. A broker that opens a log begins a new ledger, and deletes the previous one if it is empty.
The position of an empty partition therefore changes although no message was removed.

| Offset | The log begins at | Verdict |
|---|---|---|
| -1:-1@0, nothing was ever there | index 0, or is empty | nothing is lost |
| -1:-1@0 | index 7 | 7 messages came and went unread |
| 5:100@100 | 9:0@100, or is empty at 100 | removed after it was read |
| 5:100@100 | 9:0@150, or is empty at 150 | 50 messages are lost |
| 5:100@100 | 9:0@0 | deleted and made again |
| 5:0@0, of a ledger with entries | 9:0@0 | deleted and made again before any was read |
| 5:100, no index kept | 9:0 | cannot be excluded |
| 5:0 of an older version, which wrote so of empty partitions | 9:0@0 | nothing is lost |
"""

from __future__ import annotations

from magnetar.base.ids import EARLIEST, Position
from magnetar.spark.read.offsets import FROM_EARLIEST, Offset
from magnetar.tables.ledgers import KnownLog


def beginning(state: KnownLog) -> Offset:
    """The offset before all present and future entries."""
    if not state.is_complete:
        return FROM_EARLIEST
    if not state.ledgers and not state.first_index:
        # EARLIEST, as the number of an empty ledger changes when the log is opened again.
        return Offset(EARLIEST, state.first_index)
    return Offset(state.first, state.first_index)


def needs_first_index(state: KnownLog, start: Offset) -> bool:
    """Whether `loss` needs the index of the first entry, for which a request is necessary."""
    behind = start.position <= EARLIEST or start.position < state.first
    return behind and start.message_index is not None and bool(state.ledgers) and state.first_index is None


def loss(state: KnownLog, start: Offset, first_index: int | None, *, is_named: bool = False) -> str:
    """Describes what is lost behind `start`, in words; "" when nothing is lost.

    Args:
        first_index: messages before the first entry, or before the end of an empty log; None when not known.
        is_named: whether `start` comes from the user's options, not from a checkpoint.
    """
    if not state.is_complete:
        return ""
    position, index = start
    first = Offset(state.first, first_index)
    if position <= EARLIEST:
        if index is None or first_index is None or first_index <= index:
            return ""
        return f"{first_index - index} messages before its first entry {first} were removed"
    if position > (state.stored_end or state.end) and not _is_start(position):
        return f"it ends at {state.end}: what was behind is gone, or it was deleted and made again"
    if position >= state.first:
        return ""
    if index is None:
        # Older versions stored only the position of an empty partition.
        if _is_start(position) and not is_named and (first_index == 0 or not state.ledgers):
            return ""
        return f"its first entry is {first}, and without an index it is unknown whether {start} was there"
    if first_index is None:
        return f"its first entry is {first}: {start} to {first} was removed" if state.ledgers else ""
    if first_index < index or (index == 0 and _is_start(position)):
        return f"its first entry is {first}: it was deleted and made again"
    if first_index > index:
        return f"its first entry is {first}: {start} to {first} was removed"
    return ""


def remainder(state: KnownLog, start: Offset, first_index: int | None) -> Offset:
    """The offset from which reading continues after a loss."""
    if start.position > state.end and any(
        ledger.ledger_id == start.position.ledger_id for ledger in state.ledgers
    ):
        return Offset(state.end, None)
    return Offset(state.first, first_index) if state.ledgers else beginning(state)


def present(state: KnownLog, start: Offset) -> Offset:
    """`start`, moved to the first existing entry, so that a reader does not meet removed entries."""
    if EARLIEST < start.position < state.first and state.ledgers:
        return Offset(state.first, start.message_index)
    return start


def _is_start(position: Position) -> bool:
    return position.entry_id == 0
