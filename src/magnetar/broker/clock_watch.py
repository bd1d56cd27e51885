"""Detects changes of the machine's clock."""

from __future__ import annotations

import logging
from typing import Final

from magnetar.base.clock import Clock

_log = logging.getLogger("magnetar.broker")

_STEP_MS_MIN: Final = 2_000
"""Smaller steps are what time servers do all the time."""


class ClockWatch:
    """Compares the wall clock with one that only runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began_ms = clock.monotonic_ms()
        """The start, by the clock that only runs."""
        self._apart_ms = self._apart()
        self.steps = 0
        """Changes of the clock since the start."""

    def _apart(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic_ms()

    @property
    def running_s(self) -> float:
        """Seconds since the start, on a clock that is never set."""
        return (self._clock.monotonic_ms() - self.began_ms) / 1000

    def look(self) -> None:
        """To be called a few times a second: a change that is undone between two calls is not detected."""
        # Asked as often as it wants to be, also where nothing is deleted by its age.
        self._clock.settled_ms()
        apart_ms = self._apart()
        step_ms = apart_ms - self._apart_ms
        if abs(step_ms) >= _STEP_MS_MIN:
            self.steps += 1
            _log.warning(
                "the machine's clock was set %.1f s %s, or the machine slept: times of messages follow it;"
                " after a minute or more ahead, expiry and retention do so in an hour",
                abs(step_ms) / 1000,
                "ahead" if step_ms > 0 else "back",
            )
            self._apart_ms = apart_ms
