"""When a group goes to the disk: at once, or after a moment in which others may join it.

A commit costs about the same for one entry as for a hundred: two switches of process, a sync, some turns of
the loop. Who publishes steadily, or waits for each receipt, is never made to wait: his entries go as soon as
the disk is free, and take along what waits. Only where very many ledgers get an entry now and then, so that
each comes nearly alone, these wait for each other (docs/decisions/0007-rare-entries-wait.md).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from magnetar.bookie.options import StoreOptions
from magnetar.runtime.tasks import call_later

WINDOW_S: Final = 0.1
"""Time over which rare entries are counted."""

NEVER: Final = -math.inf
"""Last commit of a ledger that had none."""


class Rarity:
    """Whether entries of ledgers that are rarely written come often enough to wait for each other. Pure."""

    __slots__ = ("_count", "_per_s", "_since_s", "waits")

    waits: bool
    """Whether they do."""

    def __init__(self, per_s: float) -> None:
        """They do while at least so many of these ledgers are written a second."""
        self._per_s = per_s
        self._count = 0
        self._since_s = 0.0
        self.waits = False

    def committed(self, rare: int, now_s: float) -> None:
        """A group with entries of `rare` such ledgers is durable."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= WINDOW_S:
            self.waits = self._count >= self._per_s * elapsed_s
            self._count = 0
            self._since_s = now_s
        self._count += rare


class Pacer:
    """Calls `flush` when the blocks that wait may go to the disk."""

    rare_before_s: float
    """A ledger whose last commit was not later is rarely written; counts from the commit that ended last."""

    __slots__ = (
        "_flush",
        "_handle",
        "_loop",
        "_rare_after_s",
        "_rarity",
        "_urgent",
        "_wait_s",
        "rare_before_s",
    )

    def __init__(self, flush: Callable[[], None], options: StoreOptions) -> None:
        """`flush` begins a commit unless one is under way."""
        self._flush = flush
        self._loop = asyncio.get_running_loop()
        self._wait_s = options.rare_wait_ms / 1000
        self._rare_after_s = options.rare_after_ms / 1000
        self._rarity = Rarity(options.rare_per_s if options.rare_wait_ms else math.inf)
        self._handle: asyncio.Handle | None = None
        self._urgent = False
        self.rare_before_s = NEVER

    def added(self, last_commit_s: float, *, busy: bool) -> None:
        """A block waits, of a ledger that was committed last at this time of the loop.

        `busy`: a commit is under way; `freed` follows.
        """
        if not self._urgent:
            if self._rarity.waits and last_commit_s <= self.rare_before_s:
                if not busy and self._handle is None:
                    self._handle = call_later(self._wait_s, self._due)
                return
            self._urgent = True
            if self._handle is not None:
                self._handle.cancel()
                self._handle = None
        if not busy and self._handle is None:
            # Not now: what the other connections of this tick bring shares the sync.
            self._handle = self._loop.call_soon(self._due)

    def _due(self) -> None:
        self._handle = None
        self._flush()

    def taken(self, *, all_of_it: bool) -> None:
        """A commit began, of all that waited or of as much as fits."""
        self._urgent = not all_of_it
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def freed(self, rare: int, now_s: float, *, waiting: bool) -> bool:
        """The commit that ended now had entries of `rare` ledgers that are rarely written: whether the next
        one begins at once. `waiting`: there are blocks for it."""
        self._rarity.committed(rare, now_s)
        self.rare_before_s = now_s - self._rare_after_s
        if not waiting or self._urgent or not self._rarity.waits:
            return waiting
        if self._handle is None:
            self._handle = call_later(self._wait_s, self._due)
        return False
