"""Gives each client a share of every turn of the event loop (pure).

One read of a socket may bring thousands of requests, and the loop reads from a socket dozens of times before
it turns to the next one: a client that floods would occupy the loop for seconds. So a read handles a part and
leaves the rest for a later turn; once the reads of a turn have brought much, each further read handles one
request; and of the rest a turn does a few pieces, for a millisecond or two, owner after owner. Without other
work the next turn comes at once, so nothing is slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

_PIECES_PER_TURN: Final = 16


class TurnWorker(Protocol):
    """A connection with more requests than a turn allows."""

    def go_on(self) -> None:
        """Does a piece; asks for another turn if that was not all."""


@dataclass(frozen=True, slots=True)
class ShareSizes:
    """How much fits into a turn. Work is counted as the caller likes; `1` always means the least."""

    per_read: int
    """Work that one read may bring: about a millisecond."""
    per_turn: int
    """Work that the reads of a turn may bring, of all connections; each further read handles one request."""
    turn_ms: float = 1.0
    """Milliseconds of a turn for work that was left over; the last piece may take longer."""


class LoopShares:
    """The turns of one server."""

    __slots__ = ("_again", "_due", "_handled", "_later", "_sizes", "_waiting", "now_ms", "per_read")

    def __init__(
        self,
        later: Callable[[Callable[[], None]], None],
        now_ms: Callable[[], float],
        sizes: ShareSizes,
    ) -> None:
        """`later` calls in the next turn of the loop; `now_ms` is of a monotonic clock."""
        self.per_read = sizes.per_read
        """Work that the next read may bring."""
        self.now_ms: Final = now_ms
        self._later: Final = later
        self._sizes: Final = sizes
        self._due = False
        self._handled = 0
        self._again: dict[TurnWorker, None] = {}
        """Connections that have handled all they brought, and are read again in the next turn."""
        self._waiting: dict[str, dict[TurnWorker, None]] = {}
        """Connections with more work, by owner; the owner with the oldest turn first."""

    @property
    def waiting(self) -> int:
        """How many connections have more work."""
        return sum(map(len, self._waiting.values()))

    @property
    def spent(self) -> bool:
        """Whether a turn's work is used up: no connection that brings some is read again in it."""
        return self.per_read == 1

    @property
    def piece_until_ms(self) -> float:
        """When a piece of work that begins now has taken its time."""
        return self.now_ms() + self._sizes.turn_ms

    def handled(self, work: int) -> None:
        """A read brought this much, which was handled."""
        self._handled += work
        if self._handled >= self._sizes.per_turn:
            self.per_read = 1
        self.wake()

    def wait(self, owner: str, worker: TurnWorker) -> None:
        """Calls `go_on` of `worker` once, in one of the next turns. Owners take turns, however many workers
        they have."""
        self._waiting.setdefault(owner, {})[worker] = None
        self.wake()

    def read_again(self, worker: TurnWorker) -> None:
        """Calls `go_on` of `worker` in the next turn, before all that was left over: it has nothing left."""
        self._again[worker] = None
        self.wake()

    def forget(self, owner: str, worker: TurnWorker) -> None:
        """It has nothing more to do."""
        self._again.pop(worker, None)
        workers = self._waiting.get(owner, {})
        workers.pop(worker, None)
        if not workers:
            self._waiting.pop(owner, None)

    def wake(self) -> None:
        """Begins a new count in the next turn of the loop."""
        if not self._due:
            self._due = True
            self._later(self._turn)

    def begin_turn(self) -> None:
        """A turn begins: nothing has been handled in it."""
        self._handled = 0
        self.per_read = self._sizes.per_read

    def _turn(self) -> None:
        self._due = False
        self.begin_turn()
        again, self._again = self._again, {}
        try:
            while again:
                worker = next(iter(again))
                del again[worker]
                worker.go_on()
            self._pieces()
        finally:
            # The error of one of them is the loop's to report, and the others get their turn.
            self._again = again | self._again
            if self._again or self._waiting:
                self.wake()

    def _pieces(self) -> None:
        """What was left over, as much as fits into a turn."""
        if not self._waiting:
            return
        until_ms = self.piece_until_ms
        for _ in range(_PIECES_PER_TURN):
            owner = next(iter(self._waiting))
            workers = self._waiting.pop(owner)
            worker = next(iter(workers))
            del workers[worker]
            if workers:
                self._waiting[owner] = workers
            worker.go_on()
            if not self._waiting or self.now_ms() >= until_ms:
                break
