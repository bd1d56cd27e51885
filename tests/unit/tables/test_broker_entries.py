"""Entries that are removed while they are read are an error, and no shorter result."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.deliveries import EntryColumns
from magnetar.tables import broker_entries
from magnetar.tables.broker_entries import entries_from_broker

TOPIC = TopicName.parse("orders")


class GoneError(Exception):
    def __init__(self, topic: str, start: str, gone: str, *, rule: str = "") -> None:
        super().__init__(f"{start}: {gone}")


def at(ledger_id: int, entry_id: int) -> Position:
    return Position(LedgerId(ledger_id), entry_id)


def read(monkeypatch: pytest.MonkeyPatch, sent: list[int], first_ledger: int) -> int:
    """Reads entries 0 to 9 of ledger 3, of which the broker sends some. Returns their number."""

    def read_range(*_: object, **__: object) -> Iterator[EntryColumns]:
        for entry_id in sent:
            columns = EntryColumns()
            columns.add(LedgerId(3), entry_id, b"", 0, 0)
            yield columns

    stats = {
        "lastConfirmedEntry": "9:4",
        "ledgers": [{"ledgerId": number, "entries": 10} for number in range(first_ledger, 10)],
    }
    admin = SimpleNamespace(internal_stats=lambda _: stats, removal_rule=lambda _: "")
    client = cast(Client, cast(Any, SimpleNamespace(admin=admin)))
    monkeypatch.setattr(broker_entries, "read_range", read_range)
    return sum(
        len(each) for each in entries_from_broker(client, TOPIC, at(3, 0), at(3, 10), GoneError, strict=True)
    )


def test_entries_that_no_reader_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [*range(10)], 3) == 10
    assert read(monkeypatch, [2, 3, 4], 3) == 3
    assert read(monkeypatch, [], 3) == 0


def test_a_ledger_that_was_removed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GoneError, match="3:0 to 3:10 was removed"):
        read(monkeypatch, [], 4)


def test_a_ledger_that_is_removed_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader then goes on with the next ledger, which is after the range."""
    with pytest.raises(GoneError, match="3:6 to 3:10 was removed"):
        read(monkeypatch, [*range(6)], 4)


def test_a_ledger_that_was_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [*range(10)], 4) == 10
