"""When a group is written: at once, or after a moment in which other blocks may join it.

A commit costs about the same for one entry as for a hundred: two process switches, a sync, some turns of the
loop. Producers that publish steadily, or wait for each receipt, are never delayed: their entries are written
as soon as the disk is free, and take the waiting ones along. Only where very many ledgers each get an entry
now and then, so that entries arrive nearly alone, do these wait for each other
(docs/decisions/0007-rare-entries-wait.md).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from magnetar.bookie.gathering import Gathering
from magnetar.bookie.store_options import StoreOptions
from magnetar.runtime.tasks import call_later, stop_loop

WINDOW_S: Final = 0.1
"""Seconds over which rare entries are counted."""

GATHERED_BYTES: Final = 64 << 10
"""A group of so many bytes waits for no more: its commit costs each of its entries little."""

NEVER: Final = -math.inf
"""Last commit of a ledger that had none."""


class Rarity:
    """Whether entries of rarely written ledgers are frequent enough to wait for each other. Pure."""

    __slots__ = ("_count", "_per_s", "_since_s", "waits")

    waits: bool
    """Whether they wait."""

    def __init__(self, per_s: float) -> None:
        """They wait while at least this many of these ledgers are written per second."""
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
    """A ledger whose last commit was not later counts as rarely written; measured from the commit that ended
    last."""

    __slots__ = (
        "_flush",
        "_gather_s",
        "_gathering",
        "_handle",
        "_loop",
        "_rare_after_s",
        "_rarity",
        "_resting",
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
        self._gather_s = options.gather_wait_us / 1e6
        self._gathering = Gathering(options.gather_per_s if options.gather_wait_us else math.inf)
        self._resting = False
        self._handle: asyncio.Handle | None = None
        self._urgent = False
        self.rare_before_s = NEVER

    def added(self, last_commit_s: float, *, busy: bool) -> None:
        """A block waits, of a ledger with this last commit on the loop's clock.

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
        if not busy and self._handle is None and not self._resting:
            # Not now: blocks from other connections of this turn share the sync.
            self._handle = self._loop.call_soon(self._due)

    def _due(self) -> None:
        self._handle = None
        self._flush()

    def taken(self, *, all_of_it: bool) -> None:
        """A commit began, of all waiting blocks or as many as fit."""
        self._urgent = not all_of_it
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def freed(self, size: int, rare: int, now_s: float, *, waiting_bytes: int) -> bool:
        """The commit of `size` bytes that ended now had entries of `rare` ledgers that are rarely written:
        whether the next one begins at once. `waiting_bytes`: of the blocks for it; 0 when there are none."""
        self._rarity.committed(rare, now_s)
        self._gathering.committed(size, now_s, followed=waiting_bytes > 0)
        self.rare_before_s = now_s - self._rare_after_s
        if not waiting_bytes:
            return False
        if self._rarity.waits and not self._urgent:
            if self._handle is None:
                self._handle = call_later(self._wait_s, self._due)
            return False
        if self._gathering.waits and waiting_bytes < GATHERED_BYTES and self._handle is None:
            # Blocks that arrive meanwhile neither prolong nor end the wait.
            self._resting = self._urgent = True
            return False
        return True

    def told(self) -> None:
        """All listeners were told of the commit that ended; the loop rests now if the next one is to wait."""
        if self._resting:
            self._resting = False
            self._handle = self._loop.call_soon(self._rest)

    def _rest(self) -> None:
        # The loop itself sleeps, and no timer in it: what comes meanwhile costs one look at the sockets and
        # one read of each connection, and not a turn of the loop for each message.
        stop_loop(self._gather_s)
        # After the next look at the sockets.
        self._handle = self._loop.call_soon(self._due)
