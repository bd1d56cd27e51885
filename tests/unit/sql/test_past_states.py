"""The log as it was at a time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.sql.errors import StatementError
from magnetar.sql.past_states import TimeAsked, log_at
from magnetar.tables.ledgers import KnownLog, ListedLedger

T = TopicName.parse("t")


def at(ledger_id: int, entry_id: int) -> Position:
    return Position(LedgerId(ledger_id), entry_id)


LOG = KnownLog(
    at(4, 5), (ListedLedger(LedgerId(3), 10, 100, 7), ListedLedger(LedgerId(4), 5, 50, 17)), is_complete=True
)


class Broker:
    """Answers where the log ended, and notes what it was asked."""

    def __init__(self, answer: Position) -> None:
        self.answer = answer
        self.asked: list[int] = []

    def position_by_time(self, topic: TopicName, time_ms: int) -> Position:
        self.asked.append(time_ms)
        return self.answer

    @property
    def client(self) -> Client:
        return cast(Client, SimpleNamespace(admin=self))


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (at(3, 4), at(3, 4)),
        (at(4, 0), at(4, 0)),
        # All is older: the state is that of now, without what came since the log was asked for.
        (at(4, 9), at(4, 5)),
        (at(5, 0), at(4, 5)),
        # Nothing that is left is as old.
        (at(3, 0), at(3, 0)),
        (at(1, 0), at(3, 0)),
    ],
)
def test_a_state_ends_before_the_first_later_entry(answer: Position, end: Position) -> None:
    broker = Broker(answer)
    found = log_at(broker.client, T, LOG, TimeAsked(1000, 2000))
    assert broker.asked == [1001], "an entry of that very millisecond belongs to the state"
    assert found == replace(LOG, end=end)


def test_an_empty_log_has_empty_states() -> None:
    broker = Broker(at(0, 0))
    log = KnownLog(at(3, 0), is_complete=True)
    assert log_at(broker.client, T, log, TimeAsked(1000, 2000)) is log
    assert not broker.asked


@pytest.mark.parametrize(
    ("changed", "asked", "said"),
    [
        ({}, TimeAsked(None, 2000), "needs a time"),
        ({}, TimeAsked(2001, 2000), "a time to come"),
        ({"is_complete": False}, TimeAsked(1, 2), "admin interface"),
        ({"ledgers": (ListedLedger(LedgerId(3), 10, 100, None),)}, TimeAsked(1, 2), "do not say when"),
    ],
)
def test_states_that_cannot_be_known(changed: dict[str, Any], asked: TimeAsked, said: str) -> None:
    with pytest.raises(StatementError, match=said):
        log_at(Broker(at(3, 1)).client, T, replace(LOG, **changed), asked)


def test_a_time_before_1970_is_asked_as_the_first_one() -> None:
    broker = Broker(at(3, 0))
    assert log_at(broker.client, T, LOG, TimeAsked(-11_676_095_999_999, 2000)).end == LOG.first
    assert broker.asked == [0]
