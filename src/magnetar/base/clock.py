"""Time is handed in, so that state machines can be replayed."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Where code that must know the time gets it."""

    def now_ms(self) -> int:
        """Wall clock: milliseconds since the Unix epoch, UTC. May jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds from an arbitrary start. Never jumps back."""


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def step(self, ms: int) -> None:
        """Somebody sets the wall clock, `ms` ahead or, when negative, back."""
        self._now_ms += ms

    def advance(self, ms: int) -> None:
        """Moves both clocks on by `ms` >= 0 milliseconds."""
        assert ms >= 0
        self._now_ms += ms
        self._monotonic_ms += ms
