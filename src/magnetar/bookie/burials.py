"""Deletions of ledgers that wait for their tombstones to be durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.blocks import Block, tombstone_block
from magnetar.runtime.tasks import gathered


class Burials:
    """The deletions of one store. Callers that delete the same ledger share its tombstone."""

    def __init__(self, enqueue: Callable[[Block], None]) -> None:
        """`enqueue` takes a tombstone, to be written in its turn."""
        self._enqueue = enqueue
        # Bounded by callers: each waits for its own.
        self._waiting: dict[LedgerId, list[asyncio.Future[None]]] = {}

    async def bury(self, ledger_ids: Sequence[LedgerId]) -> None:
        """Returns when the tombstones of these ledgers are durable. Raises StorageError."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in ledger_ids]
        for ledger_id, future in zip(ledger_ids, futures, strict=True):
            (waiting := self._waiting.setdefault(ledger_id, [])).append(future)
            if len(waiting) == 1:
                self._enqueue(tombstone_block(ledger_id))
        await gathered(futures)

    def buried(self, ledger_id: LedgerId) -> None:
        """The tombstone of a ledger is durable."""
        for future in self._waiting.pop(ledger_id, ()):
            if not future.done():
                future.set_result(None)

    def fail(self, failure: StorageError) -> None:
        """No tombstone that waits is written."""
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(failure)
