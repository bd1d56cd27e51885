"""Schedules the writes of cursors: one timer for the cursors of all logs."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from magnetar.runtime.tasks import call_later

_log = logging.getLogger("magnetar.managedlog")


class Flushable(Protocol):
    """A cursor with unwritten changes."""

    def flush_changes(self) -> None:
        """Starts writing the changes; never waits."""

    def flush_failed(self, error: Exception) -> None:
        """`flush_changes` raised an unexpected error: tells the callers that wait."""


class CursorFlusher:
    """Calls cursors back: at the end of the turn when a caller waits for durability, else after a delay.

    Without the delay a consumer that acknowledges message by message would cost one write per turn of the
    loop. A crash loses at most the acknowledgements of that delay, whose messages are then delivered again.
    """

    __slots__ = ("_delay_s", "_soon", "_soon_handle", "_timer", "_waiting")

    def __init__(self, delay_ms: int) -> None:
        self._delay_s = delay_ms / 1000
        self._waiting: dict[Flushable, None] = {}
        self._soon: dict[Flushable, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._soon_handle: asyncio.Handle | None = None

    def later(self, cursor: Flushable) -> None:
        """Calls `flush_changes` within the configured delay."""
        self._waiting[cursor] = None
        if self._timer is None:
            self._timer = call_later(self._delay_s, self._on_timer)

    def soon(self, cursor: Flushable) -> None:
        """Calls `flush_changes` at the end of this turn, so that all changes of the turn share one write."""
        self._soon[cursor] = None
        if self._soon_handle is None:
            self._soon_handle = asyncio.get_running_loop().call_soon(self._on_soon)

    def forget(self, cursor: Flushable) -> None:
        """The cursor was closed."""
        self._waiting.pop(cursor, None)
        self._soon.pop(cursor, None)

    def _on_timer(self) -> None:
        self._timer = None
        cursors, self._waiting = self._waiting, {}
        for cursor in cursors:
            self._flush(cursor)

    def _flush(self, cursor: Flushable) -> None:
        try:
            cursor.flush_changes()
        except Exception as error:  # noqa: BLE001  # those behind it, of other topics, must be written
            _log.exception("the changes of a cursor could not be written")
            cursor.flush_failed(error)

    def _on_soon(self) -> None:
        self._soon_handle = None
        cursors, self._soon = self._soon, {}
        for cursor in cursors:
            self._waiting.pop(cursor, None)
            self._flush(cursor)

    def close(self) -> None:
        """Makes no more calls."""
        for handle in (self._timer, self._soon_handle):
            if handle is not None:
                handle.cancel()
        self._timer = self._soon_handle = None
        self._waiting.clear()
        self._soon.clear()
