"""Appends entries of one ledger under ids that its client chose: with gaps, late, or repeated."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from magnetar.base.errors import StorageError
from magnetar.bookie.blocks import Block
from magnetar.bookie.entry_blocks import JOIN_BELOW_BYTES, blocks_of, entry_block
from magnetar.bookie.index import LedgerIndex
from magnetar.bookie.pacing import NEVER


class ScatteredAppender:
    """Appends to one ledger; a `BlockAppender`. Reports which tickets are durable."""

    __slots__ = (
        "_admitted",
        "_done",
        "_enqueue",
        "_enqueued",
        "_failed",
        "_settled",
        "_tickets",
        "error",
        "index",
        "last_commit_s",
        "ledger_id",
        "pending_bytes",
    )

    def __init__(
        self,
        index: LedgerIndex,
        enqueue: Callable[[Block, float], None],
        done: Callable[[Sequence[int]], None],
        failed: Callable[[Sequence[int], StorageError], None],
    ) -> None:
        """`index`: the ledger's present blocks. `done` and `failed` get tickets, in order."""
        self.ledger_id = index.ledger_id
        self.index = index
        self.last_commit_s = NEVER
        self.pending_bytes = 0
        self.error: StorageError | None = None
        self._enqueue = enqueue
        self._done = done
        self._failed = failed
        self._enqueued = 0
        self._admitted = 0
        self._tickets: deque[tuple[int, int]] = deque()
        """(ticket, number of blocks appended up to and with it)."""
        self._settled: list[asyncio.Future[None]] = []

    def append(self, ticket: int, entry_ids: Sequence[int], entries: list[bytes]) -> None:
        """Appends entries. Without entries the ticket is done when all earlier ones are."""
        if entries:
            if entry_ids[-1] - entry_ids[0] == len(entries) - 1 and _ascends(entry_ids):
                self._append_run(entry_ids[0], entries)
            else:
                for start, stop in _runs(entry_ids):
                    self._append_run(entry_ids[start], entries[start:stop])
        self._tickets.append((ticket, self._enqueued))
        if self._admitted == self._enqueued:
            asyncio.get_running_loop().call_soon(self.announce)

    def _append_run(self, first: int, entries: list[bytes]) -> None:
        if len(entries) == 1 and len(entries[0]) < JOIN_BELOW_BYTES:
            blocks = [entry_block(self.ledger_id, first, entries[0], None, 0, 0)]
        else:
            blocks = blocks_of(self.ledger_id, first, entries, None, 0, 0)
        for block in blocks:
            self.pending_bytes += block.data_bytes
            self._enqueue(block, self.last_commit_s)
        self._enqueued += len(blocks)

    def admit(self, block: Block) -> None:
        """See `BlockAppender`."""
        self._admitted += 1
        self.pending_bytes -= block.data_bytes

    def announce(self) -> None:
        """See `BlockAppender`."""
        tickets = self._tickets
        durable: list[int] = []
        while tickets and tickets[0][1] <= self._admitted:
            durable.append(tickets.popleft()[0])
        if durable:
            self._done(durable)
        if self._admitted == self._enqueued:
            self._settle()

    def fail(self, error: StorageError) -> None:
        """See `BlockAppender`. Later appends may succeed: a disk does not stay full."""
        self.pending_bytes = 0
        self._admitted = self._enqueued
        lost = [ticket for ticket, _ in self._tickets]
        self._tickets.clear()
        if lost:
            asyncio.get_running_loop().call_soon(self._failed, lost, error)
        self._settle()

    def _settle(self) -> None:
        waiting, self._settled = self._settled, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def settle(self) -> None:
        """See `BlockAppender`."""
        if self._admitted < self._enqueued:
            future = asyncio.get_running_loop().create_future()
            self._settled.append(future)
            await future

    def check(self) -> None:
        """See `BlockAppender`."""
        self.index.check()
        assert 0 <= self._admitted <= self._enqueued
        assert self.pending_bytes >= 0


def _ascends(entry_ids: Sequence[int]) -> bool:
    # Ids that span as many as there are, and differ, are consecutive unless they are out of order.
    return all(a < b for a, b in pairwise(entry_ids))


def _runs(entry_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Start and end of the runs of consecutive ids in `entry_ids`."""
    ends = [at for at, (a, b) in enumerate(pairwise(entry_ids), 1) if b != a + 1]
    return list(pairwise([0, *ends, len(entry_ids)]))
