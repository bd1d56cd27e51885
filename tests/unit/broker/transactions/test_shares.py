"""Places of a coordinator are shared: beginning a transaction takes no right."""

from __future__ import annotations

import pytest

from magnetar.broker.errors import TooManyTransactionsError
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnState
from magnetar.broker.transactions.transaction import Transaction


def _coordinator(open_max: int) -> Coordinator:
    coordinator = Coordinator(0, open_max=open_max)
    coordinator.reserved = 10_000
    return coordinator


def _begin(coordinator: Coordinator, owner: str) -> Transaction:
    return coordinator.begin(owner, 1_000, started_ms=0, now_ms=0.0)


def _taken(coordinator: Coordinator, owner: str) -> int:
    """Begins as many as are allowed."""
    for taken in range(coordinator.open_max + 1):
        try:
            _begin(coordinator, owner)
        except TooManyTransactionsError:
            return taken
    raise AssertionError("no end")


def test_a_role_gets_no_more_than_is_free_for_others() -> None:
    coordinator = _coordinator(100)
    assert _taken(coordinator, "eve") == 50
    assert _taken(coordinator, "mallory") == 25
    _begin(coordinator, "orders")
    coordinator.check()


def test_without_roles_there_are_no_shares() -> None:
    assert _taken(_coordinator(100), "") == 100


def test_those_that_ended_count_no_more() -> None:
    coordinator = _coordinator(4)
    one, two = _begin(coordinator, "eve"), _begin(coordinator, "eve")
    with pytest.raises(TooManyTransactionsError, match="role eve has 2"):
        _begin(coordinator, "eve")
    for each in (one, two):
        each.ending = TxnState.ABORTED
        coordinator.decided(each, TxnState.ABORTED, 0.0)
    coordinator.check()
    assert _taken(coordinator, "eve") == 2
