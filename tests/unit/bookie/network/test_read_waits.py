"""Reads whose wait ends, thousands of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from magnetar.base.ids import LedgerId
from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.bookie.network import read_waits
from magnetar.bookie.network.read_waits import ReadWaits
from magnetar.bookie.served import Wait
from magnetar.runtime.tasks import call_later
from magnetar.wire.bookkeeper.requests import Read


class Bookie:
    """The reads that were asked again; each takes a share of a turn."""

    def __init__(self, step_ms: float = 0.0) -> None:
        self.now_ms = 0.0
        self.turns_due: list[Callable[[], None]] = []
        self.turns = LoopShares(self.turns_due.append, lambda: self.now_ms, ShareSizes(8, 4, 1.0))
        self.asked: list[Wait] = []
        self.over: list[Wait] = []
        self.waits = ReadWaits(self.turns, self.over.append, self._ask)
        self._step_ms = step_ms

    def _ask(self, wait: Wait) -> None:
        self.asked.append(wait)
        self.now_ms += self._step_ms
        self.turns.handled(1)

    def turn(self) -> None:
        """The next turn of the loop."""
        due, self.turns_due[:] = list(self.turns_due), []
        for each in due:
            each()


def reads(count: int, timeout_ms: int | None = None) -> list[Wait]:
    return [Wait(object(), Read(LedgerId(7), number), timeout_ms) for number in range(count)]


@pytest.mark.parametrize(("step_ms", "in_a_turn"), [(0.0, 4), (0.6, 2)])
def test_a_turn_asks_for_as_many_as_it_has_a_share_for(step_ms: float, in_a_turn: int) -> None:
    bookie = Bookie(step_ms)
    waits = reads(14)
    for wait in waits:
        bookie.waits.end(wait)
    assert bookie.asked == waits[:4], "the share of this turn"
    for turn in range(1, 6):
        before = len(bookie.asked)
        bookie.turn()
        assert len(bookie.asked) - before == min(in_a_turn, 14 - before), turn
    while len(bookie.asked) < 14:
        bookie.turn()
    assert bookie.asked == waits, "in the order in which the waits ended"
    bookie.turn()
    assert not bookie.turns_due, "no turn is asked for without work"


def test_what_ends_behind_others_waits_behind_them() -> None:
    bookie = Bookie()
    first, second = reads(6), reads(1)
    for wait in first:
        bookie.waits.end(wait)
    bookie.turns.begin_turn()
    bookie.waits.end(second[0])
    assert second[0] not in bookie.asked
    bookie.turn()
    bookie.turn()
    assert bookie.asked == [*first, *second]


def test_as_many_as_may_wait_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_waits, "OVER_MAX", 3)
    bookie = Bookie()
    waits = reads(9)
    for wait in waits:
        bookie.waits.end(wait)
    assert bookie.asked == [*waits[:4], *waits[7:]]
    bookie.turn()
    assert set(bookie.asked) == set(waits)


def test_a_time_that_is_over_is_told_unless_the_wait_has_ended() -> None:
    async def story() -> None:
        bookie = Bookie()
        ended, over, gone = reads(3, timeout_ms=0)
        for wait in (ended, over, gone):
            bookie.waits.begin(wait)
        bookie.waits.end(ended)
        bookie.waits.gone([gone])
        told = asyncio.Event()
        call_later(0.001, told.set)
        await told.wait()
        assert bookie.over == [over], "timers ring in the order of their times"
        assert bookie.asked == [ended]

    asyncio.run(story())
