"""Runs clients' commands in small parts of a turn of the event loop (pure).

One read may bring twenty thousand PINGs. `base/loop_shares.py` divides a turn between connections, role
after role; here are the broker's figures, and the requests that begin in a turn. `limits/role_quotas.py`
bounds a role over seconds.

Messages do not count as commands: their reads have budgets of their own (`intake.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.broker.session.requests import RequestBudget

PER_READ: Final = 64
"""Commands handled of one read: less than a millisecond of work."""
_PER_TURN: Final = 128
"""Commands handled in a turn, of all connections; each further read handles one."""
_REQUESTS_PER_TURN: Final = 16
"""Requests that begin in a turn."""


class CommandTurns(LoopShares):
    """The turns of one broker. The owner of a connection is its role, or its address."""

    __slots__ = ("_begun", "budget")

    def __init__(self, later: Callable[[Callable[[], None]], None], now_ms: Callable[[], float]) -> None:
        """See `LoopShares`."""
        super().__init__(later, now_ms, ShareSizes(PER_READ, _PER_TURN))
        self.budget = RequestBudget()
        """The memory that waiting requests hold."""
        self._begun = 0

    def begin_one(self) -> bool:
        """Counts one more request that begins in this turn; returns whether it may."""
        if self._waiting or self._begun >= _REQUESTS_PER_TURN:
            return False
        self._begun += 1
        self.wake()
        return True

    def begin_turn(self) -> None:
        """See `LoopShares`."""
        super().begin_turn()
        self._begun = 0
