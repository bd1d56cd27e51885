"""Appends to one ledger: which entries are appended, which are durable, and the notice to the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.blocks import Block
from magnetar.bookie.entry_blocks import JOIN_BELOW_BYTES, blocks_of, entry_block, gather
from magnetar.bookie.index import LedgerIndex
from magnetar.bookie.pacing import NEVER


class AppendSink(Protocol):
    """Notified on the event loop of how far the entries of one ledger are durable."""

    def durable(self, last_entry: int) -> None:
        """All entries up to `last_entry` are durable. Calls come in order and never nest."""

    def failed(self, error: StorageError) -> None:
        """Entries after the last `durable` mark may be lost; called at most once, as the last call."""


class _Nobody:
    """The sink of a released appender."""

    def durable(self, last_entry: int) -> None:
        """Ignored: the ledger was released."""

    def failed(self, error: Exception) -> None:
        """Ignored: the ledger was released."""


NOBODY: Final = _Nobody()


class BlockAppender(Protocol):
    """The store's view of one ledger's appender."""

    ledger_id: LedgerId
    index: LedgerIndex
    """Index of the durable blocks; the store extends it."""
    last_commit_s: float
    """When the last block became durable, on the loop's clock. Set by the store."""
    pending_bytes: int
    error: StorageError | None
    """Why appends are refused; None while they are accepted."""

    def admit(self, block: Block) -> None:
        """A block is durable and in the index; `announce` tells the sink later."""

    def announce(self) -> None:
        """Tells the sink of the admitted blocks."""

    def fail(self, error: StorageError) -> None:
        """The pending blocks will not become durable."""

    async def settle(self) -> None:
        """Waits until nothing is pending: all blocks are durable, or have failed."""

    def check(self) -> None:
        """Asserts the invariants."""


class LedgerAppender:
    """Appends to one ledger. Made by `SegmentStore.appender`."""

    __slots__ = (
        "_enqueue",
        "_grew",
        "_last",
        "_settled",
        "_sink",
        "durable_bytes",
        "error",
        "index",
        "last_commit_s",
        "last_durable",
        "last_pushed",
        "ledger_id",
        "pending_bytes",
    )

    def __init__(
        self,
        ledger_id: LedgerId,
        sink: AppendSink,
        enqueue: Callable[[Block, float], None],
        grew: Callable[[int], None],
    ) -> None:
        """`grew` is told of the bytes of entries that joined a block which was enqueued before."""
        self._enqueue = enqueue
        self._grew = grew
        self._last: Block | None = None
        """The last block of one entry, which the next ones of the same millisecond may join."""
        self._sink: AppendSink = sink
        self._settled: list[asyncio.Future[None]] = []
        self.ledger_id = ledger_id
        self.index = LedgerIndex(ledger_id)
        """Index of the durable blocks."""
        self.last_commit_s = NEVER
        """When the last block became durable, on the loop's clock. Set by the store."""
        self.last_pushed = -1
        """Last appended entry; -1 at first."""
        self.last_durable = -1
        """Last durable entry; -1 at first."""
        self.durable_bytes = 0
        """Bytes of all durable entries."""
        self.pending_bytes = 0
        """Bytes of appended entries that are not durable yet."""
        self.error: StorageError | None = None
        """Why appends are refused; None while they are accepted."""

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        """Appends entries (see EntryRun) and returns the id of the first. Raises `error`.

        Costs one pass over the entries' lengths, one join and one checksum.
        """
        if self.error is not None:
            raise self.error
        first = self.last_pushed + 1
        if len(entries) == 1 and len(entries[0]) < JOIN_BELOW_BYTES:
            entry, count, last = entries[0], None if counts is None else counts[0], self._last
            self.pending_bytes += len(entry)
            self.last_pushed = first
            if last is not None and last.broker_time_ms == broker_time_ms:
                grown = gather(last, entry, count, base_index)
                if grown:
                    self._grew(grown)
                    return first
            self._last = block = entry_block(self.ledger_id, first, entry, count, base_index, broker_time_ms)
            self._enqueue(block, self.last_commit_s)
            return first
        self._last = None
        for block in blocks_of(self.ledger_id, first, entries, counts, base_index, broker_time_ms):
            self.pending_bytes += block.data_bytes
            self._enqueue(block, self.last_commit_s)
        self.last_pushed = first + len(entries) - 1
        return first

    def release(self) -> None:
        """Ends appending and notices. The sink refers to this object, so the reference back is dropped."""
        self._sink = NOBODY

    async def settle(self) -> None:
        """Waits until nothing is pending: all durable, or failed."""
        if self.error is None and self.last_durable < self.last_pushed:
            future = asyncio.get_running_loop().create_future()
            self._settled.append(future)
            await future

    def admit(self, block: Block) -> None:
        """A block is durable and in the index; `announce` tells the sink later. Called by the store."""
        assert block.first_entry == self.last_durable + 1
        if block is self._last:
            self._last = None
        self.last_durable += block.entry_count
        self.durable_bytes += block.data_bytes
        self.pending_bytes -= block.data_bytes

    def announce(self) -> None:
        """Tells the sink how far the ledger is durable now. Called by the store."""
        self._sink.durable(self.last_durable)
        if self.last_durable == self.last_pushed:
            self._settle()

    def fail(self, error: StorageError) -> None:
        """Refuses further appends; the sink is told soon, after earlier announcements. Called by the
        store."""
        if self.error is None:
            self.error, self._last = error, None
            self.pending_bytes = 0
            asyncio.get_running_loop().call_soon(self._sink.failed, error)
        self._settle()

    def _settle(self) -> None:
        waiting, self._settled = self._settled, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def check(self) -> None:
        """Asserts the invariants: the marks are in order, and the index holds exactly the durable entries."""
        self.index.check()
        assert -1 <= self.last_durable <= self.last_pushed
        assert self.index.last_entry in (self.last_durable, -1)
        assert self.pending_bytes >= 0
