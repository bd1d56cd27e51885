"""Answers under way: how many bytes of them, and clients that do not take them."""

from __future__ import annotations

from magnetar.bookie.network.outflow import STUCK_S, Outflow


def test_a_client_waits_for_its_own_answers_and_all_wait_when_it_is_full() -> None:
    outflow = Outflow(10, 25)
    outflow.add("a", 9, 0.0)
    assert outflow.may_answer("a")
    outflow.add("a", 9, 0.0)
    assert not outflow.may_answer("a")
    assert outflow.may_answer("b")
    outflow.add("b", 9, 0.0)
    assert outflow.is_full
    assert not outflow.may_answer("c")
    outflow.taken("a")
    assert [outflow.may_answer(client) for client in "abc"] == [True, True, True]
    outflow.taken("a")
    assert outflow.total == 9


def test_who_takes_nothing_for_long_is_known() -> None:
    outflow = Outflow(10, 25)
    outflow.add("a", 1, 0.0)
    outflow.add("b", 1, 0.0)
    outflow.taken("b")
    outflow.add("b", 1, 1.0)
    outflow.add("a", 1, 1.0)
    assert outflow.stuck(STUCK_S) == ["a"]
    assert outflow.stuck(STUCK_S + 1) == ["a", "b"]
