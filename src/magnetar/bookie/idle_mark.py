"""When the end of a log at rest is marked. Driver of a timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.runtime.tasks import call_later


class IdleMark:
    """The mark of one log: due when nothing was committed for a while, unless the last block is one."""

    def __init__(self, after_ms: float, due: Callable[[], None]) -> None:
        """`due` is called `after_ms` milliseconds after the log came to rest, or later; it may come to
        nothing."""
        self._after_s = after_ms / 1000
        self._due = due
        self.is_marked = True
        """Whether the last block that is durable is a mark, or there is none."""
        self._commits = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def committed(self, *, is_mark: bool) -> None:
        """A group of blocks is durable; `is_mark`: its last one is a mark."""
        self._commits += 1
        self.is_marked = is_mark

    def rests(self) -> None:
        """No block waits."""
        if not self.is_marked and self._timer is None and not self._ended:
            self._arm()

    def _arm(self) -> None:
        self._timer = call_later(self._after_s, self._look, self._commits)

    def _look(self, commits: int) -> None:
        self._timer = None
        if self._ended or self.is_marked:
            return
        if commits != self._commits:
            self._arm()
        else:
            self._due()

    def end(self) -> None:
        """The log is closed."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
