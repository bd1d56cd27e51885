"""Limits how often one event is logged, so that a loop can neither fill the disk nor hide other records
(pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0
EVENTS_MAX: Final = 2_000
"""Most events that are counted: far more than there are log calls. Messages without a template must not fill
the memory."""


@dataclass(slots=True)
class _Window:
    """Records of one event since the window began."""

    began_s: float
    count: int = 0


class EventLimit:
    """The limit over all events of a process."""

    def __init__(self, per_minute_max: int) -> None:
        """`per_minute_max`: records of one event per minute; 0: no limit."""
        self._max = per_minute_max
        self._windows: dict[str, _Window] = {}

    def admit(self, event: str, now_s: float) -> int | None:
        """None when the record must be dropped; else the number of records of the event dropped before it."""
        if not self._max:
            return 0
        window = self._windows.get(event)
        left_out = 0
        if window is None:
            if len(self._windows) >= EVENTS_MAX:
                self._windows.clear()
            window = self._windows[event] = _Window(now_s)
        elif now_s - window.began_s >= WINDOW_S:
            left_out = max(0, window.count - self._max)
            window.began_s, window.count = now_s, 0
        window.count += 1
        return left_out if window.count <= self._max else None
