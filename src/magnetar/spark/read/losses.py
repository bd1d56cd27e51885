"""Whether messages that a query has not read are gone. Pure.

What a partition tells is where its log begins and ends now, and how many messages came before. What the
query knows is its offset. Between the two the partition may have been trimmed, emptied, deleted, made again,
or just opened anew: a broker that opens a log begins a ledger, and drops the one before if nothing is in it,
so that the place of an empty partition changes though nothing happened to its messages.

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
from magnetar.spark.read.ledgers import KnownLog
from magnetar.spark.read.offsets import FROM_EARLIEST, Offset


def beginning(state: KnownLog) -> Offset:
    """The offset in front of all that is there, or will be."""
    if not state.is_complete:
        return FROM_EARLIEST
    if not state.ledgers and not state.first_index:
        # Not the ledger's number: it is another one when the log is opened again.
        return Offset(EARLIEST, state.first_index)
    return Offset(state.first, state.first_index)


def needs_first_index(state: KnownLog, start: Offset) -> bool:
    """Whether `loss` can say more when it is told the index of the first entry, which has to be asked for."""
    behind = start.position <= EARLIEST or start.position < state.first
    return behind and start.message_index is not None and bool(state.ledgers) and state.first_index is None


def loss(state: KnownLog, start: Offset, first_index: int | None, *, is_named: bool = False) -> str:
    """What is gone of what begins at `start`, in words; "" when nothing is.

    Args:
        first_index: messages before the first entry, or before the end of an empty log; None when not known.
        is_named: whether a user named `start`, instead of the source for a checkpoint.
    """
    if not state.is_complete:
        return ""
    position, index = start
    first = Offset(state.first, first_index)
    if position <= EARLIEST:
        if index is None or first_index is None or first_index <= index:
            return ""
        return f"{first_index - index} messages before its first entry {first} were removed"
    if position > state.end and not _is_start(position):
        return f"it ends at {state.end}: what was behind is gone, or it was deleted and made again"
    if position >= state.first:
        return ""
    if index is None:
        # Older versions knew only the place of an empty partition.
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
    """Where to go on after a loss."""
    if start.position > state.end and any(
        ledger.ledger_id == start.position.ledger_id for ledger in state.ledgers
    ):
        return Offset(state.end, None)
    return Offset(state.first, first_index) if state.ledgers else beginning(state)


def present(state: KnownLog, start: Offset) -> Offset:
    """The same place among the existing entries, so that a reader from there need not tell removed from lost
    entries."""
    if EARLIEST < start.position < state.first and state.ledgers:
        return Offset(state.first, start.message_index)
    return start


def _is_start(position: Position) -> bool:
    return position.entry_id == 0
