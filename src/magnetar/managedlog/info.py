"""Information about a log's internals, for statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.ledger_list import Ledger
from magnetar.tiered.context import OffloadContext

RANGES_SHOWN_MAX: Final = 1000
"""Acknowledged runs that are printed: with 100,000 of them the text would be megabytes for each cursor."""


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger of a log."""

    ledger_id: LedgerId
    entries: int
    size_bytes: int
    timestamp_ms: int
    """Broker time of the last entry, Unix ms; 0 when empty."""
    first_index: int
    """Messages in the log before the ledger's first entry."""
    offload: OffloadContext | None = None
    """Its copy in an object store, perhaps incomplete; None without one."""

    @property
    def offloaded(self) -> bool:
        """Whether there is a complete copy."""
        return self.offload is not None and self.offload.complete


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """One durable cursor of a log."""

    mark_delete: Position
    next_unacked: Position
    """The first entry that is not acknowledged, or the position of the next append."""
    acked_ranges: str
    """Acknowledged runs after mark-delete, as Pulsar prints them: `[(3:0..3:2],(3:4..3:5]]`, each after its
    first and up to its second position. At most RANGES_SHOWN_MAX, then the number of the others."""
    acked_range_count: int
    backlog_entries: int
    ledger_id: LedgerId
    """The cursor's own ledger; -1 when it has none."""
    last_active_ms: int
    properties: Mapping[str, int]
    cursor_properties: Mapping[str, str]
    damage: str
    """Why the cursor fell back when the log was opened; "" when it did not."""


@dataclass(frozen=True, slots=True)
class LogInfo:
    """A summary of a log, with the data of Pulsar's internal statistics."""

    name: str
    state: str
    entries_added: int
    """Entries that became durable since the log was opened."""
    entries: int
    size_bytes: int
    pending_bytes: int
    cached_bytes: int
    current_ledger_entries: int
    current_ledger_bytes: int
    last_position: Position
    next_index: int
    terminated: Position | None
    ledgers: tuple[LedgerInfo, ...]
    cursors: Mapping[str, CursorInfo]
    properties: Mapping[str, str]
    created_ms: int
    """When the log was created, Unix ms; 0 when the metadata store keeps no times."""


def describe_ledger(ledger: Ledger) -> LedgerInfo:
    """The information about one ledger."""
    return LedgerInfo(
        ledger.ledger_id,
        ledger.entries,
        ledger.size_bytes,
        ledger.timestamp_ms,
        ledger.base_index,
        ledger.offload,
    )


def describe_cursor(cursor: Cursor, damage: str) -> CursorInfo:
    """The information about one cursor, with the reason in `LogCursors.damaged`."""
    ranges = cursor.acked_ranges()
    shown = [
        f"({Position(first.ledger_id, first.entry_id - 1)}..{last}]"
        for first, last in ranges[:RANGES_SHOWN_MAX]
    ]
    if len(ranges) > RANGES_SHOWN_MAX:
        shown.append(f"... {len(ranges) - RANGES_SHOWN_MAX} more")
    text = ",".join(shown)
    return CursorInfo(
        mark_delete=cursor.mark_delete,
        next_unacked=cursor.next_unacked(cursor.mark_delete),
        acked_ranges=f"[{text}]",
        acked_range_count=len(ranges),
        backlog_entries=cursor.backlog_entries,
        ledger_id=cursor.ledger_id,
        last_active_ms=cursor.last_active_ms,
        properties=cursor.properties,
        cursor_properties=cursor.cursor_properties,
        damage=damage,
    )


def describe_cursors(cursors: Mapping[str, Cursor], damaged: Mapping[str, str]) -> dict[str, CursorInfo]:
    """All cursors of a log by name; `damaged` has the reasons why some fell back."""
    return {name: describe_cursor(cursor, damaged.get(name, "")) for name, cursor in cursors.items()}
