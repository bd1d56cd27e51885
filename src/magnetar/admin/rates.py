"""Rates from counters that only grow, worked out when someone asks. Pure.

The rate is that of the time since the last answer, but at least `window_ms_min`: asking often must not
shrink the window to nothing. The first answer covers the whole life of what is counted.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

_WINDOW_MS_MIN: Final = 1_000


class Rates:
    """Remembers, per object, the counters of two earlier looks; forgets with the object."""

    def __init__(self, *, window_ms_min: int = _WINDOW_MS_MIN) -> None:
        self._window_ms_min = window_ms_min
        self._looks: WeakKeyDictionary[object, _Looks] = WeakKeyDictionary()

    def __len__(self) -> int:
        """Objects that are remembered."""
        return len(self._looks)

    def per_second(
        self, subject: object, counters: tuple[int, ...], since_ms: int, now_ms: int
    ) -> list[float]:
        """How fast each of `counters` grows. `since_ms` is when they were 0."""
        looks = self._looks.get(subject)
        if looks is None:
            looks = self._looks[subject] = _Looks(since_ms, (0,) * len(counters))
        if now_ms < looks.recent_ms:
            # The clock was set back: a window without a length makes any rate of what was counted in it.
            looks.base_ms = looks.recent_ms = now_ms
            looks.base = looks.recent = counters
        if now_ms - looks.recent_ms >= self._window_ms_min:
            looks.base_ms, looks.base = looks.recent_ms, looks.recent
            looks.recent_ms, looks.recent = now_ms, counters
        seconds = max(now_ms - looks.base_ms, self._window_ms_min) / 1000
        return [max(0, new - old) / seconds for new, old in zip(counters, looks.base, strict=True)]


class _Looks:
    __slots__ = ("base", "base_ms", "recent", "recent_ms")

    def __init__(self, since_ms: int, zeros: tuple[int, ...]) -> None:
        self.base_ms = self.recent_ms = since_ms
        self.base = self.recent = zeros
