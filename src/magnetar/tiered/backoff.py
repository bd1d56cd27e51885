"""Pauses between attempts that fail. Pure."""

from __future__ import annotations

from typing import Final

FIRST_MS: Final = 30_000
LONGEST_MS: Final = 3_600_000


class Backoff:
    """Doubles with each failure."""

    __slots__ = ("_not_before_ms", "_pause_ms")

    def __init__(self) -> None:
        self._pause_ms = 0
        self._not_before_ms = 0

    def waits(self, now_ms: int) -> bool:
        """Whether it is too early to try again. A clock that is set back does not make a pause longer."""
        return 0 < self._not_before_ms - now_ms <= self._pause_ms

    def failed(self, now_ms: int) -> int:
        """Notes a failure; returns the pause in ms."""
        self._pause_ms = min(LONGEST_MS, self._pause_ms * 2 or FIRST_MS)
        self._not_before_ms = now_ms + self._pause_ms
        return self._pause_ms

    def succeeded(self) -> None:
        """Resets the pause to the shortest one."""
        self._pause_ms = self._not_before_ms = 0
