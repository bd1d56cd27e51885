"""Filters of a non-persistent subscription: vectors wait in order, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.filters.entry_filter import FilterError, Verdict
from magnetar.broker.filters.judge import Judge
from magnetar.broker.filters.rules import FilterRules
from magnetar.broker.nonpersistent import screening
from magnetar.broker.nonpersistent.screening import WAITING_BYTES_MAX, Screening

A, R = Verdict.ACCEPT, Verdict.REJECT


class Story:
    """A subscription whose filters judge what the test lets them judge."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[Coroutine[object, object, object]] = []
        self.decided: list[tuple[bytes, Verdict]] = []
        self.failed: list[tuple[str, int]] = []
        self.now: list[list[Verdict]] = []
        """What the loop decides at once, for each vector; nothing: none."""
        self.later: Callable[[Sequence[bytes]], list[Verdict]] = lambda entries: [A] * len(entries)
        self.gate = asyncio.Event()
        judge = Judge(FilterRules(), "t", "s", dict, ManualClock())
        monkeypatch.setattr(
            Judge, "verdicts", lambda judge, entries, counts: self.now.pop(0) if self.now else []
        )
        monkeypatch.setattr(screening, "judged", self._judged)
        self.screening = Screening(
            judge, "tenant", self.tasks.append, decided=self._decided, failed=self._failed
        )

    async def _judged(
        self, judge: object, tenant: str, entries: Sequence[bytes], counts: Sequence[int]
    ) -> list[Verdict]:
        await self.gate.wait()
        return self.later(entries)

    def _decided(self, entries: Sequence[bytes], counts: Sequence[int], verdicts: Sequence[Verdict]) -> None:
        self.decided += zip(entries, verdicts, strict=True)

    def _failed(self, error: FilterError | None, messages: int) -> None:
        self.failed.append((str(error or ""), messages))

    def take(self, *entries: bytes) -> None:
        self.screening.take(entries, [2] * len(entries))
        self.screening.check()

    async def finish(self) -> None:
        self.gate.set()
        while self.tasks:
            await self.tasks.pop(0)
        self.screening.check()


def told(story: Callable[[Story], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        await story(Story(monkeypatch))

    asyncio.run(run())


def test_what_the_loop_decides_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: Story) -> None:
        world.now = [[A, R]]
        world.take(b"1", b"2")
        assert world.decided == [(b"1", A), (b"2", R)]
        assert not world.tasks

    told(story, monkeypatch)


def test_what_comes_meanwhile_waits_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: Story) -> None:
        world.now = [[A]]
        world.take(b"1", b"2", b"3")
        world.now = [[A]]
        world.take(b"4")
        assert world.decided == [(b"1", A)]
        assert len(world.tasks) == 1
        # One at a time, so that a vector is decided in parts.
        world.later = lambda entries: [R]
        await world.finish()
        assert world.decided == [(b"1", A), (b"2", R), (b"3", R), (b"4", R)]
        world.take(b"5")
        assert world.decided[4:] == [(b"5", A)], "nothing waits any more: the loop decides"

    told(story, monkeypatch)


def test_too_much_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: Story) -> None:
        large = bytes(WAITING_BYTES_MAX // 2)
        world.take(bytes(3 * WAITING_BYTES_MAX))
        world.take(b"small")
        assert world.failed == [("", 2)]
        await world.finish()
        for _ in range(3):
            world.gate.clear()
        world.take(large)
        world.take(b"small", large)
        assert world.failed == [("", 2), ("", 4)]
        world.take(b"small")
        await world.finish()
        assert [entry for entry, _ in world.decided[1:]] == [large, b"small"]

    told(story, monkeypatch)


def test_what_cannot_be_judged_is_dropped_and_the_next_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: Story) -> None:
        def later(entries: Sequence[bytes]) -> list[Verdict]:
            if entries[0] == b"bad":
                raise FilterError("cannot")
            return [A] * len(entries)

        world.later = later
        world.take(b"bad", b"worse")
        world.take(b"good")
        await world.finish()
        assert world.failed == [("cannot", 4)]
        assert world.decided == [(b"good", A)]

    told(story, monkeypatch)


def test_other_filters_drop_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: Story) -> None:
        world.take(b"1")
        world.take(b"2", b"3")
        world.screening.end()
        assert world.failed == [("", 6)]
        await world.finish()
        assert not world.decided

    told(story, monkeypatch)
