"""Rates from counters that only grow, computed on request. Pure.

A rate covers the time since the last answer, at least `window_ms_min`, so that frequent requests do not make
the window too short. The first answer covers the whole life of the counter. Times are monotonic.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from magnetar.base.clock import Clock

_WINDOW_MS_MIN: Final = 1_000


class Rates:
    """Remembers the counters of two earlier requests for each object, as long as the object lives."""

    def __init__(self, clock: Clock, oldest_ms: float, *, window_ms_min: int = _WINDOW_MS_MIN) -> None:
        """`oldest_ms`: monotonic time before which nothing was counted."""
        self._clock = clock
        self._oldest_ms = oldest_ms
        self._window_ms_min = window_ms_min
        self._looks: WeakKeyDictionary[object, _Looks] = WeakKeyDictionary()

    def __len__(self) -> int:
        """Number of remembered objects."""
        return len(self._looks)

    def per_second(self, subject: object, counters: tuple[int, ...], since_ms: int) -> list[float]:
        """Growth per second of each counter. `since_ms`: wall clock time at which they were 0."""
        now_ms = self._clock.monotonic_ms()
        looks = self._looks.get(subject)
        if looks is None:
            age_ms, age_ms_max = float(self._clock.now_ms() - since_ms), now_ms - self._oldest_ms
            if not 0 <= age_ms <= age_ms_max:
                # The wall clock was set meanwhile: the start of the counter is unknown.
                age_ms = age_ms_max
            looks = self._looks[subject] = _Looks(now_ms - age_ms, (0,) * len(counters))
        if now_ms - looks.recent_ms >= self._window_ms_min:
            looks.base_ms, looks.base = looks.recent_ms, looks.recent
            looks.recent_ms, looks.recent = now_ms, counters
        seconds = max(now_ms - looks.base_ms, self._window_ms_min) / 1000
        return [max(0, new - old) / seconds for new, old in zip(counters, looks.base, strict=True)]


class _Looks:
    __slots__ = ("base", "base_ms", "recent", "recent_ms")

    def __init__(self, since_ms: float, zeros: tuple[int, ...]) -> None:
        self.base_ms = self.recent_ms = since_ms
        self.base = self.recent = zeros
