"""Which ledgers may go, and when a log leaves its ledger."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.managedlog import rollover
from magnetar.managedlog.config import ManagedLogConfig, Retention
from magnetar.managedlog.ledger_list import Ledger
from magnetar.managedlog.retention import removable


def ledgers() -> list[Ledger]:
    """Ledgers 1, 2, 3 of ten entries and 100 bytes, last written at 1000, 2000, 3000; 4 is current."""
    sealed = [
        Ledger.sealed(number, 0, entries=10, size_bytes=100, timestamp_ms=1000 * number)
        for number in (1, 2, 3)
    ]
    return [*sealed, Ledger(4, 30)]


@pytest.mark.parametrize(
    ("marks", "retention", "now_ms", "gone"),
    [
        ([], Retention(), 3000, 3),
        ([(4, 5)], Retention(), 3000, 3),
        ([(3, 9)], Retention(), 3000, 3),
        ([(3, 8)], Retention(), 3000, 2),
        ([(4, 5), (1, 9)], Retention(), 3000, 1),
        ([(4, 5), (1, 8)], Retention(), 3000, 0),
        ([], Retention(-1, -1), 10**9, 0),
        ([], Retention(1500, -1), 3000, 1),
        ([], Retention(1500, -1), 10_000, 3),
        ([(1, 9)], Retention(1500, -1), 10_000, 1),
        ([], Retention(-1, 200), 3000, 1),
        ([], Retention(-1, 100), 3000, 2),
        ([], Retention(-1, 301), 3000, 0),
        ([], Retention(1500, 100), 3000, 2),
        ([], Retention(5000, 0), 3000, 3),
    ],
)
def test_removable(marks: list[tuple[int, int]], retention: Retention, now_ms: int, gone: int) -> None:
    found = removable(
        ledgers(),
        mark_deletes=[Position(*mark) for mark in marks],
        size_bytes=300,
        retention=retention,
        times=[0 if each.ledger_id == 4 else each.timestamp_ms for each in ledgers()],
        now_ms=now_ms,
    )
    assert found == gone


def test_a_ledger_that_is_not_durable_to_its_end_stays() -> None:
    found = ledgers()
    found[1].entries = 9
    gone = removable(
        found, mark_deletes=[], size_bytes=300, retention=Retention(), times=[1, 1, 1, 1], now_ms=1
    )
    assert gone == 1


@pytest.mark.parametrize(
    ("entries", "size_bytes", "age_ms", "due"),
    [
        (0, 0, 10**9, False),
        (1, 1, 999, False),
        (1, 1, 5000, True),
        (10, 1, 99, False),
        (10, 1, 100, True),
        (1, 50, 100, True),
        (9, 49, 4999, False),
    ],
)
def test_rollover(entries: int, size_bytes: int, age_ms: int, due: bool) -> None:
    config = ManagedLogConfig(
        entries_max_per_ledger=10, ledger_bytes_max=50, rollover_ms_min=100, rollover_ms_max=5000
    )
    assert rollover.is_due(config, entries=entries, size_bytes=size_bytes, age_ms=age_ms) == due


def test_logs_that_were_opened_together_do_not_roll_over_together() -> None:
    config = ManagedLogConfig(rollover_ms_max=4 * 3_600_000)
    ages = [rollover.age_max_ms(config, ledger_id) for ledger_id in range(10_000)]
    assert min(ages) == config.rollover_ms_max
    assert max(ages) <= config.rollover_ms_max * 1.05
    in_a_second = max(ages.count(age) for age in set(ages))
    assert in_a_second < 50
