"""Reads entries of one ledger from its bookies: several at a time, each from the best copy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.errors import CorruptDataError, LedgerError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import NoSuchEntryError
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.errors import LedgerUnauthorizedError, LedgerUnreadableError
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.effects import SendRead
from magnetar.ledger.quorum.entry_read import SILENCE, EntryRead, FoundEntry, ReadEffect, Unread
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.runtime.tasks import begin, call_later
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, LedgerEntry
from magnetar.wire.bookkeeper.requests import AddRun
from magnetar.wire.bookkeeper.status import Status

_log = logging.getLogger("magnetar.ledger.client")

_BATCH_OVERHEAD_BYTES: Final = 64
"""Bytes of overhead of a batch read's answer, and of each entry in it, digest included."""
_BATCH_FAILURES_MAX: Final = 3
"""Unanswered batch reads after which a bookie counts as one that does not support them."""


class LedgerReads:
    """Reads of one ledger. `metadata` is called for each read, because ensembles change."""

    def __init__(
        self,
        cluster: Cluster,
        ledger_id: LedgerId,
        digester: Digester,
        master_key: bytes,
        metadata: Callable[[], LedgerMetadata],
        *,
        confirmed: Callable[[int], None] | None = None,
    ) -> None:
        """`confirmed` is called with the last add confirmed that comes with entries."""
        self.ledger_id: Final = ledger_id
        self._cluster = cluster
        self._digester = digester
        self._opener = cluster.reading.opener(digester)
        self._master_key = master_key
        self._metadata = metadata
        self._confirmed = confirmed
        self._batch_failures: dict[str, int] = {}

    async def read(self, first: int, last: int, bytes_max: int) -> list[LedgerEntry]:
        """Entries `first..last`, as many as fit `bytes_max` bytes of payload, at least one.

        Raises NoSuchEntryError, CorruptDataError, LedgerUnreadableError, LedgerUnauthorizedError, if the
        first entry cannot be read; later unreadable entries shorten the result.
        """
        found = await self._read(first, last, bytes_max)
        if self._confirmed is not None:
            self._confirmed(max(entry.last_add_confirmed for entry in found))
        return found

    async def _read(self, first: int, last: int, bytes_max: int) -> list[LedgerEntry]:
        found = await self._read_batch(first, last, bytes_max)
        if found:
            return found
        step = self._cluster.options.reads_at_once
        out: list[LedgerEntry] = []
        while first <= last:
            stop = min(first + step, last + 1)
            if out:
                mean = max(1, sum(len(entry.payload) for entry in out) // len(out))
                stop = min(stop, first + bytes_max // mean + 1)
            reads = [begin(self._read_one(entry_id)) for entry_id in range(first, stop)]
            try:
                for read in reads:
                    try:
                        entry = await read
                    except (LedgerError, CorruptDataError):
                        if not out:
                            raise
                        return out
                    bytes_max -= len(entry.payload)
                    if bytes_max < 0 and out:
                        return out
                    out.append(entry)
            finally:
                for read in reads:
                    read.cancel()
            first = stop
        return out

    def members_of(self, entry_id: int) -> tuple[str, ...]:
        """The ensemble of an entry."""
        for first, members in reversed(self._metadata().ensembles):
            if first <= entry_id:
                return members
        raise NoSuchEntryError(self.ledger_id, entry_id)

    def _layout(self, members: Sequence[str]) -> QuorumLayout:
        metadata = self._metadata()
        return QuorumLayout(len(members), metadata.write_quorum, metadata.ack_quorum)

    def _order(self, entry_id: int, members: tuple[str, ...]) -> tuple[int, ...]:
        pool = self._cluster.pool
        return pool.health.order(members, self._layout(members).write_set(entry_id), pool.now_s)

    # -- one entry --------------------------------------------------------------------------------

    async def _read_one(self, entry_id: int) -> LedgerEntry:
        members = self.members_of(entry_id)
        core = EntryRead(entry_id, members, self._order(entry_id, members), self._opener)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[LedgerEntry] = loop.create_future()
        pool, patience_s = self._cluster.pool, self._cluster.options.speculative_read_s
        timer: asyncio.TimerHandle | None = None

        def do(effects: Sequence[ReadEffect]) -> None:
            for effect in effects:
                if isinstance(effect, SendRead):
                    send(effect)
                elif result.done():
                    continue
                elif isinstance(effect, FoundEntry):
                    result.set_result(effect.entry)
                    self._repair(members, effect)
                else:
                    result.set_exception(self._error(entry_id, members, effect.reason))

        def send(effect: SendRead) -> None:
            def answered(status: Status, entry: bytes | None) -> None:
                do(core.read(effect.index, status, entry))

            pool.read(
                effect.bookie,
                self.ledger_id,
                entry_id,
                answered,
                silence=SILENCE,
                lac_seen=self._confirmed,
            )

        def wait_for_others() -> None:
            nonlocal timer
            more = core.is_silent()
            pool.metrics.speculative_reads += len(more)
            do(more)
            timer = call_later(patience_s, wait_for_others)

        do(core.start())
        if patience_s > 0:
            timer = call_later(patience_s, wait_for_others)
        try:
            return await result
        finally:
            if timer is not None:
                timer.cancel()

    def _error(self, entry_id: int, members: Sequence[str], reason: Unread) -> LedgerError | CorruptDataError:
        holders = ", ".join(members[index] for index in self._layout(members).write_set(entry_id))
        if reason is Unread.ABSENT:
            return NoSuchEntryError(self.ledger_id, entry_id)
        if reason is Unread.UNAUTHORIZED:
            return LedgerUnauthorizedError(f"{holders} do not let ledger {self.ledger_id} be read")
        if reason is Unread.DAMAGED:
            return CorruptDataError(holders, 0, f"no copy of entry {entry_id} is good", self.ledger_id)
        return LedgerUnreadableError(
            f"entry {entry_id} of ledger {self.ledger_id}: none of {holders} gave a copy"
        )

    def _repair(self, members: Sequence[str], found: FoundEntry) -> None:
        """Sends the good copy to members with a bad one, or, when the ledger is closed, without one."""
        entry = found.entry
        bad = [
            index
            for index in found.bad
            if index not in found.absent or self._metadata().state is LedgerState.CLOSED
        ]
        self._cluster.pool.metrics.bad_copies += len(bad)
        for index in bad:
            _log.warning(
                "%s has no good copy of entry %d of ledger %d; it is rewritten",
                members[index],
                entry.entry_id,
                self.ledger_id,
            )
            head = self._digester.seal(
                entry.entry_id, entry.last_add_confirmed, entry.length_bytes, entry.payload
            )
            run = AddRun(
                self.ledger_id,
                self._master_key,
                recovery=True,
                high_priority=True,
                v3=not self._cluster.options.use_v2,
            )
            run.entry_ids.append(entry.entry_id)
            run.entries.append(head + entry.payload)
            self._cluster.pool.repair(members[index], run)

    # -- many at once -----------------------------------------------------------------------------

    async def _read_batch(self, first: int, last: int, bytes_max: int) -> list[LedgerEntry]:
        """What one bookie returns in one answer; empty when the entries must be read one by one."""
        members = self.members_of(first)
        layout = self._layout(members)
        if not self._cluster.options.use_v2 or last == first or layout.ensemble_size != layout.write_quorum:
            return []
        # Entries after the next change of the ensemble are elsewhere.
        later = [start for start, _ in self._metadata().ensembles if start > first]
        count = min([last + 1, *later]) - first
        bookie = members[self._order(first, members)[0]]
        if self._batch_failures.get(bookie, 0) >= _BATCH_FAILURES_MAX:
            return []
        size = min(bytes_max + (count + 1) * _BATCH_OVERHEAD_BYTES, self._cluster.options.packet_bytes_max)
        status, entries = await self._ask_batch(bookie, first, count, size)
        if status is not Status.OK:
            if status is SILENCE:
                self._batch_failures[bookie] = self._batch_failures.get(bookie, 0) + 1
            return []
        self._batch_failures.pop(bookie, None)
        out: list[LedgerEntry] = []
        for entry_id, data in enumerate(entries[:count], first):
            try:
                entry = self._opener.open(data, entry_id)
            except DigestMismatchError:  # the earlier entries are good; the rest is read from another bookie
                break
            bytes_max -= len(entry.payload)
            if bytes_max < 0 and out:
                break
            out.append(entry)
        self._cluster.pool.metrics.batch_reads += 1 if out else 0
        return out

    async def _ask_batch(
        self, bookie: str, first: int, count: int, size: int
    ) -> tuple[Status, tuple[bytes, ...]]:
        result: asyncio.Future[tuple[Status, tuple[bytes, ...]]] = asyncio.get_running_loop().create_future()

        def answered(status: Status, entries: tuple[bytes, ...]) -> None:
            if not result.done():
                result.set_result((status, entries))

        self._cluster.pool.batch_read(bookie, self.ledger_id, first, count, size, answered)
        patience_s = self._cluster.options.speculative_read_s
        try:
            async with asyncio.timeout(patience_s or None):
                return await result
        except TimeoutError:
            return SILENCE, ()
