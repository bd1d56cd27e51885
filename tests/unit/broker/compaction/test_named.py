"""What the cursor of compaction names."""

from __future__ import annotations

from magnetar.base.ids import Position
from magnetar.broker.compaction.named import LEDGER_PROPERTY, NamedLedger


def test_what_is_kept_is_found_again() -> None:
    named = NamedLedger(9, Position(3, 4))
    assert NamedLedger.of(named.properties(), Position(0, 0)) == named


def test_without_a_ledger_nothing_was_compacted() -> None:
    assert NamedLedger.of({}, Position(3, 4)) is None


def test_where_only_the_ledger_is_named_the_horizon_is_the_mark_delete() -> None:
    assert NamedLedger.of({LEDGER_PROPERTY: 9}, Position(3, 4)) == NamedLedger(9, Position(3, 4))
