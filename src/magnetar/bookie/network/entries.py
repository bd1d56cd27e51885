"""The segment store of a bookie on the network: entries of any ledger under any ids, and the ledgers'
states."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError, StorageError
from magnetar.base.ids import NO_LEDGER, LedgerId
from magnetar.bookie.index import LedgerIndex
from magnetar.bookie.network.readmission import forget_readmission, read_readmission, readmitted
from magnetar.bookie.network.scattered import ScatteredAppender
from magnetar.bookie.network.states import (
    FIRST_STATES_ID,
    DamagedStateError,
    all_in_limbo,
    fence_record,
    gone_record,
    is_complete,
    knows_all,
    lac_record,
    ledger_record,
    replay,
    snapshot,
    with_limbo,
)
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.served import ServedLedger, Write
from magnetar.runtime.durable_file import sync_folder

_log = logging.getLogger("magnetar.bookie.network")

UNSURE_FILE: Final = "UNSURE"
"""File in the store's folder: entries of this bookie are known to be missing; removed once that is
recorded."""

_READ_BYTES_MAX: Final = 1 << 30
"""More bytes than one entry can have."""
_WINDOW_BYTES: Final = 256 << 10
"""Bytes read ahead for a client that reads entry by entry: a block is read and checked as a whole, so single
reads would cost a block each."""


class NotAtHandError(Exception):
    """The bytes are not in memory: they are read in a thread, and the query is repeated."""

    def __init__(self, index: LedgerIndex, entry_id: int) -> None:
        super().__init__(f"entry {entry_id} of ledger {index.ledger_id} is not in memory")
        self.index = index
        self.entry_id = entry_id
        self.place = (index.ledger_id, entry_id)
        """Ledger and entry. What is missing again when it was brought just now must be waited for."""


class NetworkEntries:
    """A `ListedEntries` over a segment store; carries out the writes of `BookieLedgers`. Use `open`."""

    def __init__(
        self,
        store: SegmentStore,
        durable: Callable[[Sequence[int]], None],
        failed: Callable[[Sequence[int], StorageError], None],
    ) -> None:
        self.store: Final = store
        self.waits = False
        """Whether a query waits for the device instead of raising NotAtHandError."""
        self.knows_all = True
        """Whether the bookie certainly never had other ledgers than those it knows."""
        self._durable = durable
        self._failed = failed
        self._asked = (-1, -1)
        """Ledger and entry of the last read."""
        self._window: tuple[LedgerId, int, list[bytes]] = (NO_LEDGER, 0, [])
        """Ledger, first entry and entries read ahead for a client that reads entry by entry."""
        self._indexes: dict[LedgerId, LedgerIndex] = {}
        self._appenders: dict[LedgerId, ScatteredAppender] = {}
        self._recorded: set[LedgerId] = set()
        """Ledgers whose key is recorded, durably or in a write under way."""
        self._states: ScatteredAppender
        self._next_record = 0
        self._records_under_way: dict[int, tuple[int | None, int | None]] = {}
        """By ledger of the records: the ledger whose key a record holds, and the ticket that waits for it."""

    @classmethod
    async def open(
        cls,
        store: SegmentStore,
        durable: Callable[[Sequence[int]], None],
        failed: Callable[[Sequence[int], StorageError], None],
    ) -> tuple[NetworkEntries, list[ServedLedger]]:
        """Opens the store and reads the states of its ledgers. Raises StorageError.

        `durable` gets the tickets of writes in the order of the writes, `failed` those that are lost.
        """
        entries = cls(store, durable, failed)
        ids = sorted(ledger_id for ledger_id in store.ledger_ids() if ledger_id < 0)
        known = await entries._known(ids)
        unsure = store.directory / UNSURE_FILE
        if store.segments.has_lost_blocks() or unsure.exists():
            _log.critical(
                "%s: blocks of unknown ledgers were lost: all ledgers are in limbo", store.directory
            )
            known = all_in_limbo(known)
            entries.knows_all = False
        named = read_readmission(store.directory)
        if named is not None and not entries.knows_all:
            if store.segments.has_lost_blocks():
                _log.error("%s: accepts no entries, because its files are still damaged", store.directory)
            else:
                _log.warning(
                    "%s: accepts entries again, %d ledgers are in limbo", store.directory, len(named)
                )
                known = readmitted(known, named)
                entries.knows_all = True
        # A version before 24 November 2026 let clients make ledgers with negative ids known.
        known = {ledger_id: ledger for ledger_id, ledger in known.items() if ledger_id >= 0}
        ledgers = with_limbo(known, sorted(entries.held_ledgers()))
        if lost := sum(ledger.limbo for ledger in ledgers):
            _log.error("%d ledgers are in limbo: their keys, fences or entries may be lost", lost)
        await entries._begin_states(LedgerId(min([FIRST_STATES_ID, *ids]) - 1), ledgers)
        for states_id in ids:
            await store.delete(states_id)
        if unsure.exists():
            unsure.unlink()
            sync_folder(store.directory)
        forget_readmission(store.directory)
        return entries, ledgers

    async def _known(self, ids: Sequence[LedgerId]) -> dict[LedgerId, ServedLedger]:
        """The states of the ledgers of states, the latest (the lowest id) first."""
        for states_id in ids:
            try:
                records = await self._records(states_id)
                # Its snapshot was not finished, so the one before it still counts.
                if is_complete(records):
                    self.knows_all = knows_all(records)
                    return replay(records)
            except (CorruptDataError, DamagedStateError) as error:
                # The damaged record may have been a fence: neither this nor any older state can be trusted.
                _log.critical("the list of ledgers is damaged: %s", error)
                self.knows_all = False
                return {}
        return {}

    async def _records(self, states_id: LedgerId) -> list[bytes]:
        """The records of a ledger of states. Raises CorruptDataError."""
        index = await self.store.reader.index_of(states_id)
        records: list[bytes] = []
        while len(records) <= index.last_entry:
            first = len(records)
            for run in await self.store.reader.read(index, first, index.last_entry, _READ_BYTES_MAX):
                records += run.entries
        return records

    async def _begin_states(self, states_id: LedgerId, ledgers: Sequence[ServedLedger]) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def failed(_: Sequence[int], error: StorageError) -> None:
            if not written.done():
                written.set_exception(error)

        records = snapshot(ledgers, knows_all=self.knows_all)
        index = LedgerIndex(states_id)
        first = ScatteredAppender(index, self.store.enqueue, lambda _: written.set_result(None), failed)
        self.store.attach(first)
        first.append(0, range(len(records)), records)
        await written
        self.store.release(first)
        self._states = ScatteredAppender(index, self.store.enqueue, self._states_durable, self._states_failed)
        self.store.attach(self._states)
        self._next_record = len(records)
        self._recorded.update(ledger.ledger_id for ledger in ledgers)

    # -- writing --------------------------------------------------------------------------------

    @property
    def stores(self) -> tuple[SegmentStore, ...]:
        """The one store; `SpreadEntries` has several."""
        return (self.store,)

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a sync."""
        return self.store.pending_bytes

    def write(self, write: Write) -> None:
        """Writes, and reports that it is durable or has failed; the ledger must be `is_ready`."""
        of, first, entries = self._window
        if of == write.ledger_id and any(first <= each < first + len(entries) for each in write.entry_ids):
            self._window = (NO_LEDGER, 0, [])
        ledger_id, ticket = write.ledger_id, write.ticket
        if (failure := self.store.failure) is not None:
            asyncio.get_running_loop().call_soon(self._failed, [ticket], failure)
            return
        if ledger_id not in self._recorded:
            self._recorded.add(ledger_id)
            # Before its entries in the log, and so never durable later than they are.
            self._record(
                ledger_record(
                    ServedLedger(ledger_id, write.master_key, fenced=False, limbo=not self.knows_all)
                ),
                key_of=ledger_id,
            )
        if write.fence:
            self._record(fence_record(ledger_id), ticket)
        elif write.lac_blob is not None:
            self._record(lac_record(ledger_id, write.lac_blob), ticket)
        else:
            self._appender(ledger_id).append(ticket, write.entry_ids, list(write.entries))

    def _record(self, record: bytes, ticket: int | None = None, *, key_of: int | None = None) -> None:
        number = self._next_record
        self._next_record += 1
        self._records_under_way[number] = (key_of, ticket)
        self._states.append(number, (number,), [record])

    def _appender(self, ledger_id: LedgerId) -> ScatteredAppender:
        appender = self._appenders.get(ledger_id)
        if appender is None:
            index = self._indexes.get(ledger_id) or LedgerIndex(ledger_id)
            appender = ScatteredAppender(index, self.store.enqueue, self._durable, self._failed)
            self.store.attach(appender)
            self._appenders[ledger_id] = appender
            self._indexes[ledger_id] = index
        return appender

    def _states_durable(self, records: Sequence[int]) -> None:
        tickets = [
            ticket for number in records if (ticket := self._records_under_way.pop(number)[1]) is not None
        ]
        if tickets:
            self._durable(tickets)

    def _states_failed(self, records: Sequence[int], error: StorageError) -> None:
        lost = [self._records_under_way.pop(number) for number in records]
        # Keys must be recorded again; the numbers continue after the durable ones.
        self._recorded.difference_update(key_of for key_of, _ in lost if key_of is not None)
        if not self._records_under_way:
            self._next_record = self._states.index.last_entry + 1
        tickets = [ticket for _, ticket in lost if ticket is not None]
        if tickets:
            self._failed(tickets, error)

    # -- reading --------------------------------------------------------------------------------

    def is_ready(self, ledger_id: LedgerId) -> bool:
        """Whether the index of a ledger is in memory, or needs no loading."""
        return ledger_id in self._indexes or ledger_id not in self._recorded

    async def make_ready(self, ledger_id: LedgerId) -> None:
        """Loads the index of a ledger. Raises StorageError."""
        if ledger_id not in self._indexes:
            index = await self.store.reader.index_of(ledger_id)
            self._indexes.setdefault(ledger_id, index)

    async def bring(self, missing: NotAtHandError) -> None:
        """Reads the missing bytes from the device. Raises StorageError."""
        await self.store.reader.read(missing.index, missing.entry_id, missing.entry_id, _READ_BYTES_MAX)

    def last_entry(self, ledger_id: LedgerId) -> int:
        """See `StoredEntries`."""
        index = self._indexes.get(ledger_id)
        return -1 if index is None else index.last_entry

    def entry(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """See `StoredEntries`. Raises NotAtHandError unless `waits`."""
        index = self._indexes.get(ledger_id)
        if index is None or index.place_of(entry_id) is None:
            if self.store.segments.may_have_lost(ledger_id, entry_id):
                raise CorruptDataError(
                    str(self.store.directory), 0, f"entry {entry_id} may be lost", ledger_id
                )
            return None
        in_order = self._asked == (ledger_id, entry_id - 1)
        self._asked = (ledger_id, entry_id)
        of, first, entries = self._window
        if of == ledger_id and 0 <= entry_id - first < len(entries):
            return entries[entry_id - first]
        reader = self.store.reader
        try:
            if in_order:
                runs = reader.read_now(index, entry_id, index.last_entry, _WINDOW_BYTES)
                if runs is not None:
                    self._window = (ledger_id, entry_id, _one_behind_the_other(runs))
            else:
                runs = reader.read_now(index, entry_id, entry_id, _READ_BYTES_MAX)
            if runs is None:
                if not self.waits:
                    raise NotAtHandError(index, entry_id)
                runs = reader.read_blocking(index, entry_id)
        except CorruptDataError:
            raise
        except StorageError as error:
            raise CorruptDataError(str(self.store.directory), 0, str(error), ledger_id) from error
        return runs[0].entries[0]

    def entry_ranges(self, ledger_id: LedgerId) -> list[range]:
        """See `ListedEntries`."""
        index = self._indexes.get(ledger_id)
        if index is None:
            return []
        return merged(entries for part in index.parts for entries in part.ranges())

    # -- deleting -------------------------------------------------------------------------------

    def held_ledgers(self) -> set[LedgerId]:
        """Ledgers of clients that have entries on this bookie."""
        return {ledger_id for ledger_id in self.store.ledger_ids() if ledger_id >= 0}

    async def delete(self, ledger_id: LedgerId) -> None:
        """Deletes a ledger, its entries and its state; durable on return. Raises StorageError."""
        self._indexes.pop(ledger_id, None)
        self._appenders.pop(ledger_id, None)
        if self._window[0] == ledger_id:
            self._window = (NO_LEDGER, 0, [])
        await self.store.delete(ledger_id)
        if ledger_id in self._recorded:
            self._recorded.discard(ledger_id)
            self._record(gone_record(ledger_id))

    def release_idle(self, idle_s: float) -> None:
        """Frees the memory of ledgers without a write for this long."""
        before_s = asyncio.get_running_loop().time() - idle_s
        for ledger_id, appender in list(self._appenders.items()):
            if not appender.pending_bytes and appender.last_commit_s < before_s:
                self.store.release(appender)
                del self._appenders[ledger_id]
                self._indexes.pop(ledger_id, None)

    def disk_bytes(self) -> tuple[int, int]:
        """Total and free bytes of the disk."""
        return disk_bytes(self.store.directory)

    async def close(self) -> None:
        """Waits for pending writes and closes the store."""
        await self.store.close()


def _one_behind_the_other(runs: Sequence[EntryRun]) -> list[bytes]:
    """The entries of the first runs up to the first gap: single adds are in blocks of their own, and one read
    should use all of them."""
    entries = list(runs[0].entries)
    for before, run in pairwise(runs):
        if run.first_entry != before.last_entry + 1:
            break
        entries += run.entries
    return entries


def merged(found: Iterable[range]) -> list[range]:
    """The same numbers as ascending, separate ranges."""
    out: list[range] = []
    for each in sorted(found, key=lambda entries: entries.start):
        if out and each.start <= out[-1].stop:
            out[-1] = range(out[-1].start, max(out[-1].stop, each.stop))
        else:
            out.append(each)
    return out


def disk_bytes(folder: Path) -> tuple[int, int]:
    """Total bytes of the disk of a folder, and the bytes free for this process. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
