"""Time is handed in, so that state machines can be replayed."""

from __future__ import annotations

from typing import Final, Protocol

HOLD_MS: Final = 3_600_000
"""For so long after a step ahead nothing is deleted because of it: time to set the clock right."""
STEP_MS_MIN: Final = 60_000
"""A smaller step ahead counts at once."""


class Clock(Protocol):
    """Where code that must know the time gets it."""

    def now_ms(self) -> int:
        """Wall clock: milliseconds since the Unix epoch, UTC. May jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds from an arbitrary start. Never jumps back."""

    def settled_ms(self) -> int:
        """The wall clock as it counts for deletion by age, Unix ms: of a clock that is set ahead by a minute
        or more the time without that step, for an hour. Never later than `now_ms`."""


class SettledTime:
    """What `Clock.settled_ms` says, from readings of two clocks. Pure.

    A clock that is set ahead makes all that is stored old. Whatever is deleted then does not come back when
    the clock is put right, so that deletions wait before they believe it. One set back deletes nothing.
    """

    __slots__ = ("_apart_ms", "_doubted_since_ms")

    def __init__(self, now_ms: int, running_ms: float) -> None:
        """`running_ms`: of a clock that is never set."""
        self._apart_ms = now_ms - running_ms
        self._doubted_since_ms: float | None = None

    def of(self, now_ms: int, running_ms: float) -> int:
        """To be asked a few times an hour at least, else a clock that is slewed looks as if it were set."""
        apart_ms = now_ms - running_ms
        if apart_ms - self._apart_ms >= STEP_MS_MIN:
            if self._doubted_since_ms is None:
                self._doubted_since_ms = running_ms
            if running_ms - self._doubted_since_ms < HOLD_MS:
                return int(running_ms + self._apart_ms)
        self._apart_ms, self._doubted_since_ms = apart_ms, None
        return now_ms


class ManualClock:
    """A clock that moves only when told to."""

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
        """The wall clock is set, `ms` ahead or, when negative, back."""
        self.settled_ms()
        self._now_ms += ms
        self.settled_ms()

    def advance(self, ms: int) -> None:
        """Moves both clocks on by `ms` >= 0 milliseconds."""
        assert ms >= 0
        self._now_ms += ms
        self._monotonic_ms += ms
