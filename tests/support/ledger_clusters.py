"""Ledger clients for tests: metadata in memory, bookies at addresses that are given."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from magnetar.base.clock import ManualClock
from magnetar.base.errors import LedgerError
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.registry import StoredLedger
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.registry import LiveBookies, RegisteredBookie
from magnetar.metadata.memory import MemoryMetadataStore


class Marks:
    """A listener of a writer; coroutines can wait for a mark."""

    def __init__(self) -> None:
        self.last = -1
        self.error: LedgerError | None = None
        self._changed = asyncio.Event()

    def durable(self, last_entry: int) -> None:
        assert last_entry > self.last, "marks come in order"
        assert self.error is None, "nothing comes after the failure"
        self.last = last_entry
        self._changed.set()

    def failed(self, error: LedgerError) -> None:
        assert self.error is None, "it fails once"
        self.error = error
        self._changed.set()

    async def reach(self, entry: int, deadline_s: float = 30.0) -> None:
        """Waits until everything up to `entry` is durable. Raises the writer's error."""
        async with asyncio.timeout(deadline_s):
            while self.last < entry:
                if self.error is not None:
                    raise self.error
                self._changed.clear()
                await self._changed.wait()


class FixedBookies:
    """Bookies whose addresses the test knows."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.writable = set(ids)

    async def bookies(self) -> LiveBookies:
        return LiveBookies(frozenset(self.writable), frozenset())

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        return RegisteredBookie(bookie_id)


class _NumberedRegistry(TreeLedgerRegistry):
    """Draws ids from a number on."""

    def __init__(self, store: MemoryMetadataStore, first_id: int) -> None:
        super().__init__(store, BookKeeperTree())
        self._numbers = itertools.count(first_id)

    async def create(self, metadata: LedgerMetadata, ledger_id: int | None = None) -> StoredLedger:
        return await super().create(metadata, next(self._numbers) if ledger_id is None else ledger_id)


class LedgerWorld:
    """Metadata and bookies that several clients share."""

    def __init__(self, bookies: Sequence[str], *, first_id: int = 1) -> None:
        """`first_id`: bookies that outlive a test remember its ledgers, so the next test needs others."""
        self.bookies = FixedBookies(bookies)
        self.store = MemoryMetadataStore(ManualClock())
        self.ledgers = _NumberedRegistry(self.store, first_id)

    @asynccontextmanager
    async def client(self, options: LedgerClientOptions | None = None) -> AsyncIterator[LedgerClient]:
        """A client of its own, with its own connections."""
        client = LedgerClient(Cluster(self.ledgers, self.bookies, options))
        try:
            yield client
        finally:
            await client.close()
