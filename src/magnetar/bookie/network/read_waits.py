"""Reads that wait for a fence or for more entries: when the time of each is over, and which are due.

One fence, or one entry, ends the wait of up to 16,384 reads at once. What a turn of the loop has no share
left for waits for one of the next turns, in the order in which the waits ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.base.loop_shares import LoopShares
from magnetar.bookie.served import Wait
from magnetar.bookie.waiting import OF_ALL_MAX
from magnetar.runtime.tasks import call_later

_OWNER: Final = "reads that have waited"
"""Takes turns with the addresses of clients."""
OVER_MAX: Final = 2 * OF_ALL_MAX
"""As many of both kinds as may wait. Beyond it they are asked again at once."""


class ReadWaits:
    """The waits of one bookie's reads."""

    def __init__(
        self, turns: LoopShares, time_over: Callable[[Wait], None], again: Callable[[Wait], None]
    ) -> None:
        """`time_over`: the time of a wait is over, and it may have ended before. `again`: asks a read
        again."""
        self._turns = turns
        self._time_over = time_over
        self._again = again
        self._timers: dict[Wait, asyncio.TimerHandle] = {}
        self._over: deque[Wait] = deque()
        """They wait no more, and are to be asked again."""

    def begin(self, wait: Wait) -> None:
        """A read waits for more entries."""
        assert wait.timeout_ms is not None
        self._timers[wait] = call_later(wait.timeout_ms / 1_000, self._time_over, wait)

    def end(self, wait: Wait) -> None:
        """A read need not wait any longer."""
        if (self._over or self._turns.spent) and len(self._over) < OVER_MAX:
            self._over.append(wait)
            if len(self._over) == 1:
                self._turns.wait(_OWNER, self)
        else:
            self._ask(wait)

    def go_on(self) -> None:
        """A turn of the loop: asks for as many again as there is a share for."""
        until_ms = self._turns.piece_until_ms
        while self._over and not self._turns.spent:
            self._ask(self._over.popleft())
            if self._turns.now_ms() >= until_ms:
                break
        if self._over:
            self._turns.wait(_OWNER, self)

    def gone(self, waits: Iterable[Wait]) -> None:
        """The client of these has gone."""
        for wait in waits:
            self._timers.pop(wait).cancel()

    def _ask(self, wait: Wait) -> None:
        timer = self._timers.pop(wait, None)
        if timer is not None:
            timer.cancel()
        self._again(wait)
