"""Shares of a turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.base.loop_shares import LoopShares, ShareSizes

SIZES = ShareSizes(per_read=64, per_turn=128)


class Loop:
    """Turns of a loop, by hand, and a clock of which three pieces of work take a turn."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.ms = 0.0
        self.turns = LoopShares(self.later.append, lambda: self.ms, SIZES)

    def turn(self) -> None:
        due, self.later[:] = list(self.later), []
        for work in due:
            work()


class Work:
    """Work of several pieces."""

    def __init__(self, loop: Loop, name: str, owner: str, pieces: int, done: list[str]) -> None:
        self._loop, self._name, self._owner, self.pieces, self._done = loop, name, owner, pieces, done
        loop.turns.wait(owner, self)

    def go_on(self) -> None:
        self._loop.ms += 0.4
        self.pieces -= 1
        self._done.append(self._name)
        if self.pieces:
            self._loop.turns.wait(self._owner, self)


def test_a_turn_does_a_few_pieces_owner_after_owner() -> None:
    loop, done = Loop(), list[str]()
    for name in ("a1", "a2", "a3"):
        Work(loop, name, "a", 4, done)
    Work(loop, "b1", "b", 2, done)
    loop.turn()
    assert done == ["a1", "b1", "a2"]
    loop.turn()
    assert done[3:] == ["b1", "a3", "a1"]
    while loop.later:
        loop.turn()
    assert len(done) == 14
    assert loop.turns.waiting == 0


def test_who_is_forgotten_gets_no_turn() -> None:
    loop, done = Loop(), list[str]()
    gone = Work(loop, "a", "a", 1, done)
    loop.turns.forget("a", gone)
    loop.turns.forget("b", gone)
    loop.turn()
    assert done == []


def test_after_many_commands_in_a_turn_each_read_brings_one() -> None:
    loop = Loop()
    while not loop.turns.spent:
        assert loop.turns.per_read == SIZES.per_read
        loop.turns.handled(SIZES.per_read)
    assert loop.turns.per_read == 1
    loop.turn()
    assert loop.turns.per_read == SIZES.per_read
    assert not loop.later


def test_who_has_nothing_left_is_read_again_before_the_rest_of_others() -> None:
    """A client with one request a read would wait behind everything that floods have left."""
    loop, done = Loop(), list[str]()
    for name in ("a1", "a2", "a3", "a4"):
        Work(loop, name, "a", 9, done)
    small = Work(loop, "small", "a", 1, done)
    loop.turns.forget("a", small)
    loop.turns.read_again(small)
    loop.turn()
    assert done == ["small", "a1", "a2", "a3"]
    loop.turns.read_again(small)
    loop.turns.forget("a", small)
    loop.turn()
    assert "small" not in done[1:]


class Broken(Work):
    """It fails in each of its turns."""

    def go_on(self) -> None:
        super().go_on()
        raise ValueError(self._name)


def test_an_error_in_a_turn_costs_no_other_its_turn() -> None:
    """They waited until a client brought something new."""
    loop, done = Loop(), list[str]()
    for name in ("a", "b"):
        broken = Broken(loop, name, name, 1, done)
        loop.turns.forget(name, broken)
        loop.turns.read_again(broken)
    Broken(loop, "c", "c", 1, done)
    Work(loop, "d", "d", 1, done)
    for failed in ("a", "b", "c"):
        with pytest.raises(ValueError, match=failed):
            loop.turn()
    loop.turn()
    assert done == ["a", "b", "c", "d"]
    assert not loop.later


def test_short_pieces_end_a_turn_by_their_number() -> None:
    """A clock that is read between them tells no time for thousands of pieces of a microsecond."""

    class Short(Work):
        def go_on(self) -> None:
            super().go_on()
            self._loop.ms -= 0.4

    loop, done = Loop(), list[str]()
    for number in range(50):
        Short(loop, f"{number}", f"owner {number}", 1, done)
    for turn in range(1, 4):
        loop.turn()
        assert len(done) == 16 * turn
    loop.turn()
    assert len(done) == 50
