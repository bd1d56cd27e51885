"""How long a failed call is tried again."""

from __future__ import annotations

import time
from typing import Final

from magnetar.base.errors import ClientError

_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 2.0


class Retry:
    """Pauses between tries grow; the limit counts from the object's creation."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = _PAUSE_MIN_S

    def pause_or_raise(self, error: ClientError) -> None:
        """Sleeps before the next try; raises `error` when it is final or the time is over."""
        if not error.retriable or time.monotonic() + self._pause_s > self._deadline:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)
