"""Rates from counters that only grow, computed on request. Pure.

The rate is that of the time since the last answer, but at least `window_ms_min`: frequent requests must not
shrink the window to nothing. The first answer covers the whole life of the counter. Time is measured by the
monotonic clock.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from magnetar.base.clock import Clock

_WINDOW_MS_MIN: Final = 1_000


class Rates:
    """Remembers, per object, the counters of two earlier looks; forgets with the object."""

    def __init__(self, clock: Clock, oldest_ms: float, *, window_ms_min: int = _WINDOW_MS_MIN) -> None:
        """`oldest_ms`, by the monotonic clock: nothing that is counted is older."""
        self._clock = clock
        self._oldest_ms = oldest_ms
        self._window_ms_min = window_ms_min
        self._looks: WeakKeyDictionary[object, _Looks] = WeakKeyDictionary()

    def __len__(self) -> int:
        """Objects that are remembered."""
        return len(self._looks)

    def per_second(self, subject: object, counters: tuple[int, ...], since_ms: int) -> list[float]:
        """How fast each of `counters` grows. `since_ms` is when they were 0, by the wall clock."""
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
