"""The state of a log that is not open, from the metadata store alone: no ledger is opened or fenced.

    | After | Entries | Backlog |
    |---|---|---|
    | a clean stop | exact: every ledger has its end in the list | exact: cursors are in their values |
    | a crash | lower bound: those of the last ledger are missing | from an earlier mark-delete |

`exact` tells which of the two it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.ids import Position
from magnetar.base.names import decode_local
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, decode_info
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata, decode, log_path
from magnetar.metadata.store import MetadataStore
from magnetar.tiered.api import SealedLedger


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A durable cursor of a log that is not open."""

    name: str
    backlog_entries: int
    backlog_messages: int
    """Estimated from the share of its ledgers' entries."""
    backlog_bytes: int
    """Estimated in the same way."""
    oldest_ms: int
    """Upper bound of the time of the oldest unacknowledged entry, Unix ms; 0: there is none."""
    exact: bool
    """Whether the number of entries is exact; otherwise it is of the time when the value was written."""


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A log that is not open."""

    entries: int
    size_bytes: int
    offloaded_bytes: int
    to_offload: int
    """Ledgers without a complete copy in an object store, including the one whose end is unknown."""
    in_both: int
    """Ledgers with a complete copy that are still on the bookies."""
    behind_since_ms: int
    """Upper bound of the time of the oldest entry that is not in an object store, Unix ms; 0: there is none,
    or its time is unknown."""
    exact: bool
    """Whether every ledger's end is known; otherwise the numbers are lower bounds."""
    cursors: tuple[StoredCursor, ...]

    @property
    def backlog_entries(self) -> int:
        """Backlog of the subscription that is furthest behind."""
        return max((cursor.backlog_entries for cursor in self.cursors), default=0)


async def peek(store: MetadataStore, name: str, hidden: frozenset[str]) -> StoredSummary | None:
    """The state of a log; None when there is none. `hidden`: cursors that are not subscriptions.

    Raises MetadataError, InvalidLogDataError.
    """
    path = log_path(name)
    value = await store.get(path)
    if value is None:
        return None
    metadata = decode(value.data, path)
    cursors = []
    for child in await store.children(path):
        cursor = decode_local(child)
        found = None if cursor in hidden else await store.get(f"{path}/{child}")
        if found is not None:
            info = decode_info(found.data, f"{path}/{child}")
            acked = sum(entries.count for entries in info.state.acked.values())
            exact = info.ledger_id == IN_STORE
            cursors.append(_behind(metadata, cursor, info.state.mark_delete, acked, exact=exact))
    return _summary(metadata, tuple(cursors))


async def peek_sealed(store: MetadataStore, name: str) -> list[SealedLedger]:
    """The ledgers of a log with a stored end. Raises MetadataError, InvalidLogDataError."""
    path = log_path(name)
    value = await store.get(path)
    return [] if value is None else decode(value.data, path).sealed()


def _is_copied(record: LedgerRecord) -> bool:
    return record.offload is not None and record.offload.complete


def _summary(metadata: LogMetadata, cursors: tuple[StoredCursor, ...]) -> StoredSummary:
    sealed = [record for record in metadata.ledgers if record.sealed]
    copied = [record for record in sealed if _is_copied(record)]
    return StoredSummary(
        entries=sum(record.entries for record in sealed),
        size_bytes=sum(record.size_bytes for record in sealed),
        offloaded_bytes=sum(record.size_bytes for record in copied),
        to_offload=len(metadata.ledgers) - len(copied),
        in_both=sum(record.offload is not None and not record.offload.local_deleted for record in copied),
        # Its last entry's time: the first entry of the ledger has that time or an earlier one.
        behind_since_ms=next((record.timestamp_ms for record in sealed if not _is_copied(record)), 0),
        exact=len(sealed) == len(metadata.ledgers),
        cursors=cursors,
    )


def _messages(metadata: LogMetadata) -> dict[int, int]:
    """Messages of each sealed ledger, from the index at which the next one begins."""
    begins = [record.base_index for record in metadata.ledgers[1:]] + [metadata.next_index]
    return {
        record.ledger_id: max(record.entries, end - record.base_index)
        for record, end in zip(metadata.ledgers, begins, strict=False)
    }


def _behind(
    metadata: LogMetadata, name: str, mark: Position, acked_after: int, *, exact: bool
) -> StoredCursor:
    entries, messages, size, oldest_ms = 0, 0.0, 0.0, 0
    of_ledger = _messages(metadata)
    for record in metadata.ledgers:
        left = _left(record, mark)
        if left:
            share = left / record.entries
            entries += left
            messages += of_ledger[record.ledger_id] * share
            size += record.size_bytes * share
            # Its last entry's time: the first remaining entry has that time or an earlier one.
            oldest_ms = oldest_ms or record.timestamp_ms
    kept = max(0, entries - acked_after)
    part = kept / entries if entries else 0.0
    complete = exact and all(record.sealed for record in metadata.ledgers)
    return StoredCursor(
        name, kept, round(messages * part), round(size * part), oldest_ms if kept else 0, complete
    )


def _left(record: LedgerRecord, mark: Position) -> int:
    """Entries of a ledger after the mark."""
    if not record.sealed or record.ledger_id < mark.ledger_id:
        return 0
    if record.ledger_id > mark.ledger_id:
        return record.entries
    return max(0, record.entries - 1 - mark.entry_id)
