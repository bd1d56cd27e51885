"""Copies the entries of a place in a fragment to another bookie, and updates the metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from magnetar.base.errors import LedgerError
from magnetar.ledger.autorecovery.checker import digester_of
from magnetar.ledger.autorecovery.fragments import Fragment, Lack
from magnetar.ledger.autorecovery.repair_rules import REPAIR_RULES, RepairRules
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_reads import LedgerReads
from magnetar.ledger.quorum.effects import ChooseBookies
from magnetar.ledger.registry import StoredLedger
from magnetar.metadata.store import BadVersionError
from magnetar.runtime.tasks import gathered, pause
from magnetar.wire.bookkeeper.digests import LedgerEntry, master_key
from magnetar.wire.bookkeeper.requests import AddRun
from magnetar.wire.bookkeeper.status import Status

_log = logging.getLogger("magnetar.ledger.autorecovery")

BATCH_BYTES: Final = 1 << 20
"""Entries are sent in groups of this many bytes."""
READS_AT_ONCE: Final = 16
"""Concurrent reads: with BATCH_BYTES this bounds the memory of one worker."""


class CopyError(LedgerError):
    """A copy could not be made: there was no bookie for it, or the bookie refused."""


class Replicator:
    """Copies entries at a bounded rate."""

    def __init__(
        self, cluster: Cluster, *, bytes_per_s: float | None = None, rules: RepairRules = REPAIR_RULES
    ) -> None:
        """`bytes_per_s`: bytes of payload copied per second at most, over all ledgers; None: no limit."""
        self._cluster = cluster
        self.rules: Final = rules
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0
        self.entries_read = 0
        self.entries_copied = 0
        self.bytes_copied = 0

    async def repair(self, stored: StoredLedger, lack: Lack, available: frozenset[str]) -> None:
        """Restores the lost copies of a closed fragment.

        An available bookie gets back what it lacks; an unavailable one is replaced by another, which takes
        its place in the metadata. Raises CopyError, LedgerError, CorruptDataError, MetadataError.
        """
        gone = {index: bookie for index, bookie in lack.places.items() if bookie not in available}
        here = {index: bookie for index, bookie in lack.places.items() if bookie in available}
        fragment = lack.fragment
        for index, bookie in here.items():
            await self._copy(stored, bookie, self.rules.entries_to_copy(fragment, index, lack.missing))
        if not gone:
            return
        choose = ChooseBookies(failed=gone, exclude=frozenset(fragment.members))
        successors = await self._cluster.replacements(fragment.layout, fragment.members, choose)
        if not successors:
            raise CopyError(f"no bookie can take what {', '.join(gone.values())} held of {stored.ledger_id}")
        await self.move(stored, fragment, successors)

    async def move(self, stored: StoredLedger, fragment: Fragment, successors: Mapping[int, str]) -> None:
        """Copies the entries of places (indexes) of a closed fragment to their successors, which then take
        these places in the metadata. Raises as `repair` does."""
        for index, bookie in successors.items():
            await self._copy(stored, bookie, self.rules.entries_to_copy(fragment, index, {}))
            _log.info(
                "ledger %d: entries %d to %s of %s are on %s now",
                stored.ledger_id,
                fragment.first,
                fragment.last,
                fragment.members[index],
                bookie,
            )
        places = {index: (fragment.members[index], bookie) for index, bookie in successors.items()}
        await self._write_down(stored, fragment, places)

    async def _copy(self, stored: StoredLedger, bookie: str, entries: Iterable[int]) -> None:
        metadata = stored.metadata
        digester = digester_of(stored)
        reads = LedgerReads(
            self._cluster, stored.ledger_id, digester, master_key(metadata.password), lambda: metadata
        )
        batch: list[LedgerEntry] = []
        batch_bytes = 0
        wanted = iter(entries)
        while asked := list(islice(wanted, READS_AT_ONCE)):
            found = await gathered(reads.read(each, each, BATCH_BYTES) for each in asked)
            self.entries_read += len(found)
            for (entry,) in found:
                batch.append(entry)
                batch_bytes += len(entry.payload)
            if batch_bytes >= BATCH_BYTES:
                await self._add(stored, bookie, batch, batch_bytes)
                batch, batch_bytes = [], 0
        if batch:
            await self._add(stored, bookie, batch, batch_bytes)

    async def _add(self, stored: StoredLedger, bookie: str, batch: list[LedgerEntry], size: int) -> None:
        await self._throttle(size)
        digester = digester_of(stored)
        run = AddRun(
            stored.ledger_id,
            master_key(stored.metadata.password),
            recovery=self.rules.passes_fences(),
            high_priority=True,
            v3=not self._cluster.options.use_v2,
        )
        for entry in batch:
            head = digester.seal(entry.entry_id, entry.last_add_confirmed, entry.length_bytes, entry.payload)
            run.entry_ids.append(entry.entry_id)
            run.entries.append(head + entry.payload)
        acks = _Acks(self.rules.answers_needed(len(batch)))
        self._cluster.pool.send_adds(bookie, run, acks)
        status = await acks.all
        if status is not Status.OK:
            self._cluster.pool.forget(bookie, stored.ledger_id, acks, recovery=True)
            raise CopyError(f"{bookie} does not take copies of ledger {stored.ledger_id}: {status.name}")
        self.entries_copied += len(batch)
        self.bytes_copied += size

    async def _throttle(self, size: int) -> None:
        if self._bytes_per_s is None:
            return
        now_s = asyncio.get_running_loop().time()
        wait_s = self._free_at_s - now_s
        self._free_at_s = max(self._free_at_s, now_s) + size / self._bytes_per_s
        if wait_s > 0:
            await pause(wait_s)

    async def _write_down(
        self, stored: StoredLedger, fragment: Fragment, places: Mapping[int, tuple[str, str]]
    ) -> None:
        while True:
            changed = self.rules.moved(stored.metadata, fragment.first, places)
            if changed is None:
                raise CopyError(f"ledger {stored.ledger_id}: another process has changed its ensemble")
            try:
                await self._cluster.ledgers.write(stored.ledger_id, changed, stored.version)
            except BadVersionError:
                stored = await self._cluster.ledgers.read(stored.ledger_id)
                continue
            return


class _Acks:
    """Waits until so many entries of a run are added, or one has failed."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.all: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        if not count:
            self.all.set_result(Status.OK)

    def added(self, entry_ids: Sequence[int], status: Status) -> None:
        """Called by the connection; no ids: no entry of the run arrived."""
        self._left -= len(entry_ids)
        if self.all.done():
            return
        if status is not Status.OK:
            self.all.set_result(status)
        elif self._left <= 0:
            self.all.set_result(Status.OK)
