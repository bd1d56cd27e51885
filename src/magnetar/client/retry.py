"""Limits how long a failed call is repeated."""

from __future__ import annotations

import time
from typing import Final

from magnetar.base.errors import MagnetarError

_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 2.0


class Retry:
    """Growing pauses between attempts; the limit counts from the creation of the object."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = _PAUSE_MIN_S

    def pause_or_raise(self, error: MagnetarError) -> None:
        """Sleeps before the next attempt; raises `error` when it is not retriable or the time is over."""
        if not error.retriable or time.monotonic() + self._pause_s > self._deadline:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)
