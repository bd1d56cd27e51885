"""How often one event may be logged (pure): what comes in a loop must not fill the disk or hide the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0
EVENTS_MAX: Final = 2_000
"""Far more than places that log; a message that is no template must not fill memory."""


@dataclass(slots=True)
class _Window:
    """One event's records since the window began."""

    began_s: float
    count: int = 0


class EventLimit:
    """The limit over all events of a process."""

    def __init__(self, per_minute_max: int) -> None:
        """0: everything is logged."""
        self._max = per_minute_max
        self._windows: dict[str, _Window] = {}

    def admit(self, event: str, now_s: float) -> int | None:
        """None: leave it out. Else log it, and say that so many of the event were left out before it."""
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
