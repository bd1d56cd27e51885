"""Calls at wall-clock times and after delays: all of a process share one timer of the loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Final

from magnetar.base.clock import Clock

_log = logging.getLogger("magnetar.runtime")

_SLEEP_S_MIN: Final = 0.001
"""uvloop counts whole milliseconds: a shorter delay would be 0 and fire too early again and again."""
_SLEEP_S_MAX: Final = 1.0
"""The loop's timers do not notice when the wall clock is set, so it is read at least this often, in seconds.
"""


class Alarms:
    """At most one alarm per key. Without alarms no timer runs."""

    __slots__ = ("_after", "_at", "_clock", "_timer", "_timer_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = _Line()
        """Alarms at wall-clock times."""
        self._after = _Line()
        """Alarms on the monotonic clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        """When the timer fires, on the loop's clock; kept here because not all of uvloop's handles tell."""

    def __len__(self) -> int:
        return len(self._at) + len(self._after)

    def set(self, key: Hashable, due_ms: int, call: Callable[[], None]) -> None:
        """Calls `call` once, at `due_ms` (Unix ms) or soon after. Replaces the alarm of the same key.

        When the clock is set back, the call is delayed. Use it for times that people wrote down, and `after`
        for delays.
        """
        self._after.discard(key)
        self._at.set(key, due_ms, call)
        self._start_timer(due_ms - self._clock.now_ms())

    def after(self, key: Hashable, ms: float, call: Callable[[], None]) -> None:
        """Calls `call` once, `ms` milliseconds from now or soon after, also when the wall clock is set
        meanwhile. Replaces the alarm of the same key."""
        self._at.discard(key)
        self._after.set(key, self._clock.monotonic_ms() + ms, call)
        self._start_timer(ms)

    def discard(self, key: Hashable) -> None:
        """Cancels the alarm of this key, if there is one."""
        self._at.discard(key)
        self._after.discard(key)

    def ring(self) -> None:
        """Calls what is due. The timer calls it; tests with their own clock may."""
        # Alarms that are set meanwhile wait for the next round: a call that sets its own alarm again must not
        # block the loop.
        for call in self._at.take(self._clock.now_ms()) + self._after.take(self._clock.monotonic_ms()):
            try:
                call()
            except Exception:  # noqa: BLE001  # one alarm's bug must not silence the others
                _log.exception("an alarm failed")
        self._cancel_timer()
        if self._at:
            self._start_timer(self._at.next_ms - self._clock.now_ms())
        if self._after:
            self._start_timer(self._after.next_ms - self._clock.monotonic_ms())

    def _start_timer(self, delay_ms: float) -> None:
        """Makes the timer fire in `delay_ms`, unless it fires earlier anyway."""
        loop = asyncio.get_running_loop()
        delay_s = min(max(_SLEEP_S_MIN, delay_ms / 1000), _SLEEP_S_MAX)
        due_s = loop.time() + delay_s
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
        self._timer, self._timer_s = loop.call_later(delay_s, self.ring), due_s

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Cancels all alarms."""
        self._cancel_timer()
        self._at, self._after = _Line(), _Line()


class _Line:
    """The alarms of one clock (pure)."""

    __slots__ = ("_calls", "_order", "_set_count")

    def __init__(self) -> None:
        self._calls: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._order: list[tuple[float, int, Hashable]] = []
        """Heap of (due, number of the call of `set`, key); replaced and discarded alarms stay in it until
        they are due."""
        self._set_count = 0

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def next_ms(self) -> float:
        """Lower bound of the next due time, since that alarm may have been replaced. There must be an
        alarm."""
        return self._order[0][0]

    def set(self, key: Hashable, due_ms: float, call: Callable[[], None]) -> None:
        self._calls[key] = (due_ms, call)
        self._set_count += 1
        heapq.heappush(self._order, (due_ms, self._set_count, key))
        if len(self._order) > 64 and len(self._order) > 2 * len(self._calls):
            self._order = [(due, i, known) for i, (known, (due, _)) in enumerate(self._calls.items())]
            heapq.heapify(self._order)

    def discard(self, key: Hashable) -> None:
        self._calls.pop(key, None)

    def take(self, now_ms: float) -> list[Callable[[], None]]:
        """Removes and returns the calls that are due."""
        due: list[Callable[[], None]] = []
        while self._order and self._order[0][0] <= now_ms:
            due_ms, _, key = heapq.heappop(self._order)
            known = self._calls.get(key)
            if known is not None and known[0] == due_ms:
                del self._calls[key]
                due.append(known[1])
        return due
