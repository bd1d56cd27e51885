"""Moves cursors past entries that are hidden for good."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.visible import Visible


def pass_hidden(cursor: Cursor, hidden: Iterable[tuple[LedgerId, int, int]]) -> None:
    """Hidden entries count as acknowledged, or the cursor would stay before them for ever. `hidden`: ledger,
    first, last entry."""
    for ledger_id, first, last in hidden:
        if Position(ledger_id, last) > cursor.mark_delete:
            cursor.ack_between(Position(ledger_id, first - 1), Position(ledger_id, last + 1))


def pass_all_hidden(cursor: Cursor, visible: Visible | None) -> None:
    """The same for a cursor at its start, or after a seek. `visible`: of its log."""
    if visible is not None and visible.hidden:
        pass_hidden(cursor, list(visible.hidden_after(cursor.mark_delete)))
