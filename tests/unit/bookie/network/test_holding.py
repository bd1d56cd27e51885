"""A bookie that reads no client for a moment."""

from __future__ import annotations

from magnetar.bookie.network.holding import ClientHolds


class Client:
    def __init__(self) -> None:
        self.holds = 0

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


def test_clients_are_held_as_often_as_something_holds_also_those_that_come_meanwhile() -> None:
    first, second = Client(), Client()
    there = {first}
    holding = ClientHolds(there)
    holding.begin()
    with holding.paused():
        there.add(second)
        holding.opened(second)
        assert (first.holds, second.holds) == (2, 2)
        holding.end()
        assert (first.holds, second.holds) == (1, 1)
    assert (first.holds, second.holds) == (0, 0)
