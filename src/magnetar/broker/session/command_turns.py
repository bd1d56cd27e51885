"""Runs clients' commands in small parts of a turn of the event loop (pure).

One read may bring twenty thousand PINGs, and the loop reads from a socket dozens of times before it turns to
the next one: a client that floods would occupy the loop for seconds. So a read handles some commands and
leaves the rest for the next turn; once many came in a turn, each further read handles one; and of the rest,
and of requests that wait to begin, a turn does a few pieces, for a millisecond or two, role after role.
Without other work the next turn comes at once, so nothing is slower. `limits/role_quotas.py` bounds a role
over seconds.

Messages do not count as commands: their reads have budgets of their own (`intake.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from magnetar.broker.session.requests import RequestBudget

PER_READ: Final = 64
"""Commands handled of one read: less than a millisecond of work."""
_PER_TURN: Final = 128
"""Commands handled in a turn, of all connections; each further read handles one."""
_REQUESTS_PER_TURN: Final = 16
"""Requests that begin in a turn."""
_PIECES_PER_TURN: Final = 16
_TURN_MS: Final = 1.0
"""Milliseconds per turn for commands that were left over."""


class TurnWorker(Protocol):
    """A connection with more commands than a turn allows."""

    def go_on(self) -> None:
        """Does a piece; asks for another turn if that was not all."""


class CommandTurns:
    """The turns of one broker."""

    __slots__ = (
        "_begun",
        "_due",
        "_handled",
        "_later",
        "_now_ms",
        "_waiting",
        "budget",
        "per_read",
    )

    def __init__(self, later: Callable[[Callable[[], None]], None], now_ms: Callable[[], float]) -> None:
        """`later` calls in the next turn of the loop; `now_ms` is of a monotonic clock."""
        self.per_read = PER_READ
        """Commands that the next read may handle."""
        self.budget = RequestBudget()
        """The memory that waiting requests hold."""
        self._later = later
        self._now_ms = now_ms
        self._due = False
        self._handled = 0
        self._begun = 0
        self._waiting: dict[str, dict[TurnWorker, None]] = {}
        """Connections with more commands, by owner; the owner with the oldest turn first."""

    @property
    def waiting(self) -> int:
        """How many connections have more commands."""
        return sum(map(len, self._waiting.values()))

    def handled(self, commands: int) -> None:
        """A read brought this many commands, which were handled."""
        self._handled += commands
        if self._handled >= _PER_TURN:
            self.per_read = 1
        self._wake()

    @property
    def spent(self) -> bool:
        """Whether a turn's commands are used up: no connection that brings some is read again in it."""
        return self.per_read == 1

    def begin_one(self) -> bool:
        """Counts one more request that begins in this turn; returns whether it may."""
        if self._waiting or self._begun >= _REQUESTS_PER_TURN:
            return False
        self._begun += 1
        self._wake()
        return True

    def wait(self, owner: str, worker: TurnWorker) -> None:
        """Calls `go_on` of `worker` once, in one of the next turns. Owners take turns, however many workers
        they have."""
        self._waiting.setdefault(owner, {})[worker] = None
        self._wake()

    def forget(self, owner: str, worker: TurnWorker) -> None:
        """It has nothing more to do."""
        workers = self._waiting.get(owner, {})
        workers.pop(worker, None)
        if not workers:
            self._waiting.pop(owner, None)

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            self._later(self._turn)

    def _turn(self) -> None:
        self._due = False
        self._handled = self._begun = 0
        self.per_read = PER_READ
        if not self._waiting:
            return
        until_ms = self._now_ms() + _TURN_MS
        for _ in range(_PIECES_PER_TURN):
            owner = next(iter(self._waiting))
            workers = self._waiting.pop(owner)
            worker = next(iter(workers))
            del workers[worker]
            if workers:
                self._waiting[owner] = workers
            worker.go_on()
            if not self._waiting or self._now_ms() >= until_ms:
                break
        if self._waiting:
            self._wake()
