"""The changes of a cursor since the last write: taken from its state, written, applied after a restart.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog.cursors.entry_set import EntrySet


@dataclass(slots=True)
class CursorDelta:
    """Changes of a cursor since the previous delta, or its whole state (a snapshot)."""

    mark_delete: Position
    replaces: bool
    """Whether it replaces all earlier state: a snapshot, or the first delta after a seek."""
    acked: dict[LedgerId, EntrySet] = field(default_factory=dict)
    """Newly acknowledged entries after `mark_delete`, by ledger."""
    partial: dict[Position, int] = field(default_factory=dict)
    """The unacknowledged messages of half-acknowledged batches, as bits; replaces earlier values of the
    entry."""
    properties: Mapping[str, int] | None = None
    """The cursor's numbers; None when they did not change."""
    redeliveries: Mapping[Position, int] = field(default_factory=dict)
    """How often entries were redelivered; replaces earlier values of the entries."""


class FreshAcks:
    """Acknowledgements after the mark-delete since the last delta."""

    __slots__ = ("partial", "positions", "ranges")

    def __init__(self) -> None:
        self.positions: list[Position] = []
        self.ranges: list[tuple[LedgerId, int, int]] = []
        """Ledger, first and last entry."""
        self.partial: set[Position] = set()
        """Half-acknowledged batches."""

    def after(self, mark: Position) -> dict[LedgerId, EntrySet]:
        """The whole entries after `mark`, by ledger."""
        acked: dict[LedgerId, EntrySet] = {}
        for position in self.positions:
            if position > mark:
                entries = acked.get(position.ledger_id)
                if entries is None:
                    entries = acked[position.ledger_id] = EntrySet()
                entries.add(position.entry_id)
        for ledger_id, first, last in self.ranges:
            if ledger_id == mark.ledger_id:
                first = max(first, mark.entry_id + 1)
            if ledger_id >= mark.ledger_id and first <= last:
                acked.setdefault(ledger_id, EntrySet()).add_range(first, last)
        return acked
