"""Each promise of transactions has a forged history that breaks it, and one that keeps them all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chaos.transactions.history import Attempt, History, Reading, faults, left_open, same_again

from magnetar.base.ids import LedgerId, Position

INPUTS = 4


def attempt(history: History, *values: int, commit: bool = True, sequence: int = 0) -> Attempt:
    """A transaction that is to end, with its messages sent."""
    inputs = [(Position(LedgerId(1), value), value) for value in values]
    made = Attempt(0, inputs, commit=commit, ttl_ms=1_000, txn=(0, sequence), is_ending=commit)
    history.attempts.append(made)
    history.sends.setdefault(0, []).extend((made, str(value)) for value in values)
    return made


def kept() -> tuple[History, list[list[str]]]:
    """All inputs in two transactions that are committed; one that was aborted; a plain message."""
    history = History(INPUTS)
    history.told(attempt(history, 0, commit=False, sequence=7), committed=False)
    history.told(attempt(history, 0, 1, sequence=8), committed=True)
    history.sends[0].append((None, "plain"))
    history.told(attempt(history, 2, 3, sequence=9), committed=True)
    history.plain = {(0, "plain"): "stored", (1, "plain"): "stored", (0, "late"): "refused"}
    seen = ["0", "1", "plain"]
    history.readings = [Reading(0, "reader", 2, seen=seen, is_whole=True)]
    return history, [["0", "1", "plain", "2", "3"], ["0", "1", "plain", "2", "3"]]


def test_nothing_is_wrong_with_a_history_that_keeps_them() -> None:
    history, outputs = kept()
    assert list(faults(history, outputs)) == []
    assert history.counts() == {"committed": 2, "aborted": 1}


def _aborted_one_is_read(history: History, outputs: list[list[str]]) -> None:
    outputs[1].append("17")


def _unasked_commit(history: History, outputs: list[list[str]]) -> None:
    history.told(attempt(history, 3, commit=False), committed=True)


def _twice(history: History, outputs: list[list[str]]) -> None:
    outputs[0].insert(1, "0")


def _out_of_order(history: History, outputs: list[list[str]]) -> None:
    outputs[1][3:] = ["3", "2"]


def _plain_one_out_of_order(history: History, outputs: list[list[str]]) -> None:
    outputs[1][2:4] = ["2", "plain"]


def _torn(history: History, outputs: list[list[str]]) -> None:
    outputs[1].remove("3")


def _not_yet_there(history: History, outputs: list[list[str]]) -> None:
    history.readings[0].sure = 3


def _another_end(history: History, outputs: list[list[str]]) -> None:
    history.told(history.attempts[1], committed=False)


def _no_end(history: History, outputs: list[list[str]]) -> None:
    history.attempts[0].committed = None


def _late(history: History, outputs: list[list[str]]) -> None:
    outputs[0].append("late")


def _moved(history: History, outputs: list[list[str]]) -> None:
    history.readings[0].seen[1:2] = []


def _gone(history: History, outputs: list[list[str]]) -> None:
    history.readings[0].seen += ["2", "3", "4"]


def _two_winners(history: History, outputs: list[list[str]]) -> None:
    history.told(attempt(history, 3), committed=True)


def _lost_input(history: History, outputs: list[list[str]]) -> None:
    history.count += 1


def _lost_plain_one(history: History, outputs: list[list[str]]) -> None:
    outputs[0].remove("plain")


@pytest.mark.parametrize(
    ("promise", "breaks"),
    [
        ("T1", _aborted_one_is_read),
        ("T1", _unasked_commit),
        ("T2", _twice),
        ("T2", _out_of_order),
        ("T2", _plain_one_out_of_order),
        ("T3", _torn),
        ("T3", _not_yet_there),
        ("T5", _another_end),
        ("T5", _no_end),
        ("T7", _late),
        ("T9", _moved),
        ("T9", _gone),
        ("T10", _two_winners),
        ("T11", _lost_input),
        ("T19", _lost_plain_one),
    ],
)
def test_a_broken_promise_is_noticed(
    promise: str, breaks: Callable[[History, list[list[str]]], None]
) -> None:
    history, outputs = kept()
    breaks(history, outputs)
    found = list(faults(history, outputs))
    assert any(each.startswith(f"{promise}:") for each in found), found


def test_what_was_there_is_there_after_a_kill() -> None:
    assert list(same_again({"a": ["1"]}, {"a": ["1"]})) == []
    others: list[dict[str, list[str]]] = [{"a": ["1", "2"]}, {"a": []}, {}]
    for after in others:
        (found,) = same_again({"a": ["1"]}, after)
        assert found.startswith("T20:")


def test_a_transaction_of_which_no_client_has_heard_may_be_open_until_its_time() -> None:
    history, _ = kept()
    assert left_open(history, ["(0,17)"]) == []
    assert left_open(history, ["(0,17)", "(0,8)"]) == ["(0,8)"]
