"""Clocks. Code gets its clock as an argument, so that state machines can be replayed."""

from __future__ import annotations

from typing import Final, Protocol

HOLD_MS: Final = 3_600_000
"""Milliseconds after a step ahead during which nothing is deleted because of it: time to correct the
clock."""
STEP_MS_MIN: Final = 60_000
"""Milliseconds. A smaller step ahead is believed at once."""


class Clock(Protocol):
    """The source of time."""

    def now_ms(self) -> int:
        """Wall clock: milliseconds since the Unix epoch, UTC. May jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds from an arbitrary start. Never jumps back."""

    def settled_ms(self) -> int:
        """The time that counts for deletion by age, Unix ms. For an hour after the wall clock is set ahead by
        a minute or more, it is the time without that step. Never later than `now_ms`."""


class SettledTime:
    """Computes `Clock.settled_ms` from readings of two clocks. Pure.

    A clock that is set ahead makes all stored data old. Data deleted then does not come back when the clock
    is corrected, so deletions wait for an hour. A clock that is set back deletes nothing.
    """

    __slots__ = ("_apart_ms", "_doubted_since_ms")

    def __init__(self, now_ms: int, running_ms: float) -> None:
        """`now_ms`: wall clock. `running_ms`: a clock that is never set."""
        self._apart_ms = now_ms - running_ms
        self._doubted_since_ms: float | None = None

    def of(self, now_ms: int, running_ms: float) -> int:
        """The settled time. Call it at least a few times an hour, else a clock that is slewed looks like one
        that was set."""
        apart_ms = now_ms - running_ms
        if apart_ms - self._apart_ms >= STEP_MS_MIN:
            if self._doubted_since_ms is None:
                self._doubted_since_ms = running_ms
            if running_ms - self._doubted_since_ms < HOLD_MS:
                return int(running_ms + self._apart_ms)
        self._apart_ms, self._doubted_since_ms = apart_ms, None
        return now_ms


class ManualClock:
    """A clock that only `step` and `advance` move."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0
        self._settled = SettledTime(now_ms, 0.0)

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def settled_ms(self) -> int:
        return self._settled.of(self._now_ms, self._monotonic_ms)

    def step(self, ms: int) -> None:
        """Sets the wall clock `ms` milliseconds ahead, or back when negative."""
        self.settled_ms()
        self._now_ms += ms
        self.settled_ms()

    def advance(self, ms: int) -> None:
        """Moves both clocks forward by `ms` >= 0 milliseconds."""
        assert ms >= 0
        self._now_ms += ms
        self._monotonic_ms += ms
