"""Tiered storage of one process: its stores by URL, its workers, and the operations for managed logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.tiered.api import Follower
from magnetar.tiered.context import OffloadedCopy
from magnetar.tiered.copy_reader import CopyReading, OffloadedReader
from magnetar.tiered.figures import OffloadFigures
from magnetar.tiered.guarded import ObjectOwners
from magnetar.tiered.offloader import discard
from magnetar.tiered.ownership import Holding
from magnetar.tiered.parquet.parquet_history import SegmentWorker
from magnetar.tiered.pieces import PieceCache
from magnetar.tiered.stores.object_store import MEMORY_URL, ObjectStore

_log = logging.getLogger("magnetar.tiered")

READ_CACHE_BYTES: Final = 64 << 20
"""Bytes of pieces of copies kept in memory, for all topics together."""

READ_WORKERS: Final = 2
"""Number of processes that read for consumers. Each handles one call at a time; with two, a call that waits
for a store does not delay all others. They end when idle."""


@dataclass(frozen=True, slots=True)
class CopyStores:
    """The stores that copies lie in."""

    url: str
    """The store of new copies."""
    open: Callable[[str], ObjectStore]
    """Opens any URL in a stored list. Raises StoreSetupError."""
    owners: ObjectOwners | None = None
    """Checked before a store is changed; None: there is no check."""


class TieredStorage:
    """See `Tiers`."""

    def __init__(
        self,
        stores: CopyStores,
        *,
        work_dir: Path,
        clock: Clock,
        new_worker: Callable[[bool], SegmentWorker],
        spawn: Callable[[Coroutine[object, object, None]], None],
        cache_bytes: int = READ_CACHE_BYTES,
    ) -> None:
        """`work_dir` is for temporary files; `new_worker` makes a worker that has not started its process;
        its argument tells whether consumers will wait for it.
        """
        self.url = stores.url
        self.work_dir = work_dir
        self.clock = clock
        self.figures = OffloadFigures()
        self.cache = PieceCache(cache_bytes)
        self.follower: Follower | None = None
        """Informed of new and deleted copies; None when no table names their objects."""
        self.owners = stores.owners
        self.former: Mapping[str, str] = {}
        """Earlier URLs of stores of this process, each with the present URL."""
        self._open_store = stores.open
        self._new_worker = new_worker
        self._reading = CopyReading(self.cache, self.figures, spawn)
        self._stores: dict[str, ObjectStore] = {}
        self._readers: dict[int, SegmentWorker] = {}
        self._converter: SegmentWorker | None = None

    def place(self, url: str) -> str:
        """The present URL of the store that a stored list names by `url`."""
        return self.former.get(url, url)

    def store(self, url: str) -> ObjectStore:
        """The store at a URL; the first call opens it. Raises StoreSetupError."""
        url = self.place(url)
        store = self._stores.get(url)
        if store is None:
            store = self._open_store(url)
            if self.owners is not None and store.url != MEMORY_URL:
                store = self.owners.guard(store)
            self._stores[url] = store
        return store

    def owned_store(self) -> ObjectStore | None:
        """The store of new copies, if its ownership is checked; None: it is not. Raises as `store`."""
        store = None if self.owners is None else self.store(self.url)
        return None if store is None or store.url == MEMORY_URL else store

    async def check_owner(self) -> Holding | None:
        """Checks the ownership of the store of new copies and returns its note; None without a check.

        Raises ReadOnlyStoreError when the store is another installation's, StoreError, MetadataError.
        """
        store = self.store(self.url)
        if self.owners is None or store.url == MEMORY_URL:
            return None
        return await self.owners.of(store).check()

    def converter(self) -> SegmentWorker:
        """The worker that converts and compares; consumers never wait for it."""
        if self._converter is None:
            self._converter = self._new_worker(False)
        return self._converter

    def read_worker(self, copy: OffloadedCopy) -> SegmentWorker:
        """A worker that reads for consumers; the same one for each read of a copy, since it keeps the opened
        segments."""
        number = copy.context.attempt.int % READ_WORKERS
        worker = self._readers.get(number)
        if worker is None:
            worker = self._readers[number] = self._new_worker(True)
        return worker

    def reader(self, log_name: str, copy: OffloadedCopy, *, entries: int, size_bytes: int) -> OffloadedReader:
        """See `Tiers.reader`."""
        return OffloadedReader(
            log_name,
            copy,
            entries=entries,
            size_bytes=size_bytes,
            store=self.store(copy.context.url),
            worker=lambda: self.read_worker(copy),
            reading=self._reading,
        )

    def changed(self, log_name: str) -> None:
        """See `Follower.changed`."""
        if self.follower is not None:
            self.follower.changed(log_name)

    async def retire(self, log_name: str, copies: Sequence[OffloadedCopy]) -> None:
        """See `Tiers.retire`."""
        if self.follower is None:
            return
        # No follower was told of a copy that never was complete.
        attempts = {copy.context.attempt for copy in copies if copy.context.was_complete}
        if attempts:
            await self.follower.retire(log_name, attempts)

    async def delete(self, log_name: str, copy: OffloadedCopy) -> None:
        """See `Tiers.delete`."""
        self.cache.forget(copy.context.attempt)
        self.figures.deleted += await discard(log_name, copy, self.store(copy.context.url))

    async def close(self) -> None:
        """Ends the workers and closes the stores."""
        for worker in self._readers.values():
            await worker.close()
        if self._converter is not None:
            await self._converter.close()
        for store in self._stores.values():
            await store.close()
