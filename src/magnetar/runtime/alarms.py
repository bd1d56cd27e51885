"""Calls at wall-clock times, all of a process behind one timer of the loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Final

from magnetar.base.clock import Clock

_log = logging.getLogger("magnetar.runtime")

_SLEEP_S_MAX: Final = 1.0
"""The loop's timers do not notice when the wall clock is set: it is looked at this often."""


class Alarms:
    """One alarm per key. Nothing runs while no alarm is set."""

    __slots__ = ("_calls", "_clock", "_order", "_set_count", "_timer", "_timer_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self._order: list[tuple[int, int, Hashable]] = []
        """(due, number of the call of `set`, key), a heap; replaced and discarded alarms stay in it until
        they come up."""
        self._set_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._calls)

    def set(self, key: Hashable, due_ms: int, call: Callable[[], None]) -> None:
        """Runs `call` once, at `due_ms` (Unix ms) or soon after. Replaces the alarm of the same key."""
        self._calls[key] = (due_ms, call)
        self._set_count += 1
        heapq.heappush(self._order, (due_ms, self._set_count, key))
        if len(self._order) > 64 and len(self._order) > 2 * len(self._calls):
            self._order = [(due, i, known) for i, (known, (due, _)) in enumerate(self._calls.items())]
            heapq.heapify(self._order)
        if self._timer is None or due_ms < self._timer_ms:
            self._start_timer(due_ms)

    def discard(self, key: Hashable) -> None:
        """Takes the alarm of this key back, if there is one."""
        self._calls.pop(key, None)

    def ring(self) -> None:
        """Runs what is due by the clock. The timer does this; tests with a clock of their own may."""
        now_ms = self._clock.now_ms()
        # Alarms that are set meanwhile wait for the next round: a call that sets itself anew must not
        # keep the loop from its other work.
        due: list[Callable[[], None]] = []
        while self._order and self._order[0][0] <= now_ms:
            due_ms, _, key = heapq.heappop(self._order)
            known = self._calls.get(key)
            if known is not None and known[0] == due_ms:
                del self._calls[key]
                due.append(known[1])
        for call in due:
            try:
                call()
            except Exception:  # noqa: BLE001  # one alarm's bug must not silence the others
                _log.exception("an alarm failed")
        self._cancel_timer()
        if self._calls:
            self._start_timer(self._order[0][0])

    def _start_timer(self, due_ms: int) -> None:
        self._cancel_timer()
        delay_s = min(max(0.0, (due_ms - self._clock.now_ms()) / 1000), _SLEEP_S_MAX)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.ring)
        self._timer_ms = due_ms

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Takes all alarms back."""
        self._cancel_timer()
        self._calls.clear()
        self._order.clear()
