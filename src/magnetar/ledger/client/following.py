"""Reads a ledger while it is written: entries arrive as soon as bookies know that they are confirmed."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

from magnetar.ledger.client.ledger_client import LedgerHandle
from magnetar.runtime.tasks import pause, race, won
from magnetar.wire.bookkeeper.digests import LedgerEntry

_WAIT_S: Final = 2.0
"""Seconds that bookies are asked to wait at a time; shorter than the timeout of an answer."""
_LOOK_FIRST_S: Final = 0.01
_LOOK_MAX_S: Final = 1.0
"""Seconds between two reads where bookies cannot wait (version 2); doubles up to this while nothing comes."""


class FollowedTail:
    """A reader of an open ledger. As a context manager it watches the ledger's metadata inside the block.

    In version 3 bookies are asked to wait; in version 2 they are polled.
    """

    def __init__(self, handle: LedgerHandle, first: int = 0) -> None:
        """`handle`: opened without recovery; `first`: the entry to begin with."""
        self._handle = handle
        self._next = first
        self._stale = True
        self._woken = asyncio.Event()
        self._look_s = _LOOK_FIRST_S
        self._ahead: list[LedgerEntry] = []

    async def __aenter__(self) -> FollowedTail:
        self._unwatch = self._handle.watch(self._changed)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unwatch()

    def _changed(self) -> None:
        self._stale = True
        self._woken.set()

    async def read(self, bytes_max: int = 1 << 20) -> list[LedgerEntry]:
        """The next entries, at least one; waits for them. None: the ledger is closed and fully read.

        Raises what `LedgerHandle.read` raises.
        """
        while True:
            if self._stale:
                self._stale = False
                self._woken.clear()
                await self._handle.refresh()
            found = await self._found(bytes_max)
            if found:
                self._next = found[-1].entry_id + 1
                self._look_s = _LOOK_FIRST_S
                return found
            if self._handle.is_closed:
                return []
            await self._wait()

    async def _found(self, bytes_max: int) -> list[LedgerEntry]:
        ahead, self._ahead = self._ahead, []
        if ahead and ahead[0].entry_id == self._next:
            return ahead
        if self._next > self._handle.last_entry:
            return []
        return await self._handle.read(self._next, self._handle.last_entry, bytes_max)

    async def _wait(self) -> None:
        _, looking = await race(self._woken.wait(), self._look())
        won(looking)

    async def _look(self) -> None:
        loop, before = asyncio.get_running_loop(), self._handle.last_entry
        begun_s = loop.time()
        if self._handle.can_wait:
            entry = await self._handle.wait_for_more(_WAIT_S)
            if entry is not None:
                self._ahead = [entry]
        else:
            await self._handle.try_read_last_confirmed()
        # Bookies that are down, or hold a fence, do not wait, and there is no event when the ledger is
        # closed.
        if self._handle.last_entry == before and loop.time() - begun_s < _WAIT_S / 2:
            await pause(self._look_s)
            self._look_s = min(2 * self._look_s, _LOOK_MAX_S)
