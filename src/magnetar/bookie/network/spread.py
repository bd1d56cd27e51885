"""Several data folders as one store: the ledger id decides the folder of a ledger.

So a ledger's key, fence and entries are on one disk and in one order; the folders do not know of each other.
The folder depends on the number of folders: their number and order are in the bookie's cookie, and a bookie
with others does not start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.network.entries import NetworkEntries, NotAtHandError
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.served import ServedLedger, Write


class SpreadEntries:
    """`NetworkEntries` over several stores. Use `open`."""

    def __init__(self, parts: Sequence[NetworkEntries]) -> None:
        self._parts: Final = tuple(parts)

    @classmethod
    async def open(
        cls,
        stores: Sequence[SegmentStore],
        durable: Callable[[Sequence[int]], None],
        failed: Callable[[Sequence[int], StorageError], None],
    ) -> tuple[SpreadEntries, list[ServedLedger]]:
        """As `NetworkEntries.open`, of all stores. Raises StorageError."""
        opened = [await NetworkEntries.open(store, durable, failed) for store in stores]
        return cls([part for part, _ in opened]), [ledger for _, known in opened for ledger in known]

    def _of(self, ledger_id: LedgerId) -> NetworkEntries:
        return self._parts[ledger_id % len(self._parts)]

    @property
    def stores(self) -> tuple[SegmentStore, ...]:
        """In the order of the folders."""
        return tuple(part.store for part in self._parts)

    @property
    def waits(self) -> bool:
        """See `NetworkEntries`."""
        return self._parts[0].waits

    @waits.setter
    def waits(self, waits: bool) -> None:
        for part in self._parts:
            part.waits = waits

    @property
    def knows_all(self) -> bool:
        """Whether the bookie certainly never had other ledgers, in any folder."""
        return all(part.knows_all for part in self._parts)

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a sync."""
        return sum(part.pending_bytes for part in self._parts)

    def write(self, write: Write) -> None:
        """See `NetworkEntries`."""
        self._of(write.ledger_id).write(write)

    def is_ready(self, ledger_id: LedgerId) -> bool:
        """See `NetworkEntries`."""
        return self._of(ledger_id).is_ready(ledger_id)

    async def make_ready(self, ledger_id: LedgerId) -> None:
        """See `NetworkEntries`. Raises StorageError."""
        await self._of(ledger_id).make_ready(ledger_id)

    async def bring(self, missing: NotAtHandError) -> None:
        """See `NetworkEntries`. Raises StorageError."""
        await self._of(missing.index.ledger_id).bring(missing)

    def last_entry(self, ledger_id: LedgerId) -> int:
        """See `StoredEntries`."""
        return self._of(ledger_id).last_entry(ledger_id)

    def entry(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """See `StoredEntries`. Raises NotAtHandError unless `waits`."""
        return self._of(ledger_id).entry(ledger_id, entry_id)

    def entry_ranges(self, ledger_id: LedgerId) -> list[range]:
        """See `ListedEntries`."""
        return self._of(ledger_id).entry_ranges(ledger_id)

    def held_ledgers(self) -> set[LedgerId]:
        """Ledgers of clients that have entries on this bookie."""
        return set().union(*(part.held_ledgers() for part in self._parts))

    async def delete(self, ledger_id: LedgerId) -> None:
        """See `NetworkEntries`. Raises StorageError."""
        await self._of(ledger_id).delete(ledger_id)

    def release_idle(self, idle_s: float) -> None:
        """See `NetworkEntries`."""
        for part in self._parts:
            part.release_idle(idle_s)

    def disk_bytes(self) -> tuple[int, int]:
        """Total and free bytes of all disks; folders on one disk count once."""
        disks = {os.stat(part.store.directory).st_dev: part.disk_bytes() for part in self._parts}
        return sum(size for size, _ in disks.values()), sum(free for _, free in disks.values())

    async def close(self) -> None:
        """Waits for pending writes and closes the stores."""
        for part in self._parts:
            await part.close()
