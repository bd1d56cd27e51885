"""Reads entries: from the page cache at once, from the device in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.block_reading import Extent, decode, plan, trim
from magnetar.bookie.files import Disk, storage_error
from magnetar.bookie.index import BlockPlace, BlockRows, LedgerIndex, SegmentIndex
from magnetar.bookie.opening import rebuild_index
from magnetar.bookie.segment_file import SegmentFile
from magnetar.bookie.segment_set import SegmentSet, corrupt
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.bookie")

_REST_BYTES_MAX: Final = 8 << 20
"""Bytes of decoded blocks that are kept because their reader took only the first part."""


class DeletedLedgerError(StorageError):
    """The ledger was deleted during a read."""

    def __init__(self, ledger_id: LedgerId) -> None:
        super().__init__(f"ledger {ledger_id} was deleted")
        self.ledger_id = ledger_id


class BlockReader:
    """Reads the blocks of the segments."""

    def __init__(self, segments: SegmentSet, disk: Disk, directory: Path) -> None:
        self._segments = segments
        self._disk = disk
        self._directory = directory
        self._indexes: WeakValueDictionary[LedgerId, LedgerIndex] = WeakValueDictionary()
        self._rests: OrderedDict[tuple[int, int], tuple[EntryRun, int]] = OrderedDict()
        self._rests_bytes = 0
        self._rebuilding = asyncio.Lock()
        self.indexes_rebuilt = 0
        """Damaged indexes of segments that were rebuilt from the blocks."""

    # -- where blocks lie ---------------------------------------------------------------------

    def share(self, index: LedgerIndex) -> None:
        """Readers of the ledger use this index, which its writer extends."""
        self._indexes[index.ledger_id] = index

    def mark_deleted(self, ledger_id: LedgerId) -> None:
        """Readers that hold the ledger's index see the deletion at the next read."""
        if (index := self._indexes.pop(ledger_id, None)) is not None:
            index.deleted = True

    def replace(self, segment: SegmentFile, fresh: SegmentFile, rows: SegmentIndex) -> None:
        """The blocks of `segment` have moved; readers that hold an index see the new places at once."""
        for index in list(self._indexes.values()):
            for part in index.parts:
                moved = rows.ledgers.get(index.ledger_id)
                if part.segment_id == segment.segment_id and moved is not None:
                    assert len(part) == len(moved)
                    part.rows[:] = moved.rows
        for key in [key for key in self._rests if key[0] == fresh.segment_id]:
            self._rests_bytes -= self._rests.pop(key)[1]

    async def index_of(self, ledger_id: LedgerId) -> LedgerIndex:
        """Index of the ledger's blocks; empty when there are none. Raises StorageError."""
        if (index := self._indexes.get(ledger_id)) is not None:
            return index
        while True:
            segments = self._segments.holding(ledger_id)
            parts: list[BlockRows] = []
            try:
                for segment in segments:
                    if self._segments.get(segment.segment_id) is not segment:
                        continue
                    if (rows := await self.rows_of(segment, ledger_id)) is not None:
                        parts.append(rows)
            except OSError as error:
                raise storage_error(error, self._directory, "read an index") from error
            # While one segment was read the ledger may have been deleted, or another segment was rewritten,
            # so that blocks moved.
            if all(self._segments.get(segment.segment_id) in (segment, None) for segment in segments):
                break
        return self._indexes.setdefault(ledger_id, LedgerIndex(ledger_id, parts))

    async def rows_of(self, segment: SegmentFile, ledger_id: LedgerId) -> BlockRows | None:
        """The ledger's blocks in one segment, whose index is rebuilt when it is damaged. Raises OSError."""
        with self._segments.pinned(segment):
            # Mostly some microseconds; a thread costs ten times that, and the wait for its turn.
            if (rows := segment.rows_now(ledger_id)) is not None:
                return rows
            try:
                return await in_thread(segment.load_rows, ledger_id)
            except CorruptDataError as error:
                damage = error
            async with self._rebuilding:
                try:
                    # Another read may have loaded it.
                    return await in_thread(segment.load_rows, ledger_id)
                except CorruptDataError:  # rebuilt below from the blocks, which have checksums of their own
                    _log.error("%s", damage)
                await in_thread(rebuild_index, segment, self._disk)
                segment.count_live(self._segments.deleted)
                self.indexes_rebuilt += 1
                return await in_thread(segment.load_rows, ledger_id)

    # -- reading ------------------------------------------------------------------------------

    def read_now(self, index: LedgerIndex, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        """Like `read`, but returns None instead of waiting for the device."""
        runs, extents = self._start(index, first, last, bytes_max)
        for extent in extents:
            segment = self._segment(extent, index)
            try:
                with self._segments.pinned(segment) as fd:
                    data = self._disk.read_now(fd, extent.offset, extent.length)
            except OSError as error:
                raise storage_error(error, self._directory, "read entries") from error
            if data is None:
                if runs:
                    break
                return None
            if not self._decode(extent, data, index, segment, runs):
                break
        return self._finish(index, runs, first, last, bytes_max)

    async def read(self, index: LedgerIndex, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        """Entries `first..last` of a ledger, as many as fit `bytes_max`, at least one.

        `first` must be a written entry. Raises LostEntriesError when it is damaged, DeletedLedgerError,
        StorageError when the device fails.
        """
        found = self.read_now(index, first, last, bytes_max)
        if found is not None:
            return found
        runs, extents = self._start(index, first, last, bytes_max)
        with ExitStack() as pins:
            # All at once: the places are those of these files, and a segment may be rewritten meanwhile.
            try:
                pinned = [self._pinned(extent, index, pins) for extent in extents]
                for extent, segment in zip(extents, pinned, strict=True):
                    data = await in_thread(self._disk.read, segment.fd, extent.offset, extent.length)
                    if _goes_on_elsewhere(index, extent):
                        segment.scattered_reads += 1
                    if not self._decode(extent, data, index, segment, runs):
                        break
            except OSError as error:
                raise storage_error(error, self._directory, "read entries") from error
        return self._finish(index, runs, first, last, bytes_max)

    def read_blocking(self, index: LedgerIndex, entry: int) -> list[EntryRun]:
        """One entry; blocks on the device if necessary. Raises what `read` raises."""
        runs, extents = self._start(index, entry, entry, 0)
        for extent in extents:
            segment = self._segment(extent, index)
            try:
                with self._segments.pinned(segment) as fd:
                    data = self._disk.read(fd, extent.offset, extent.length)
            except OSError as error:
                raise storage_error(error, self._directory, "read entries") from error
            if not self._decode(extent, data, index, segment, runs):
                break
        return self._finish(index, runs, entry, entry, 0)

    def _pinned(self, extent: Extent, index: LedgerIndex, pins: ExitStack) -> SegmentFile:
        segment = self._segment(extent, index)
        pins.enter_context(self._segments.pinned(segment))
        return segment

    def _start(
        self, index: LedgerIndex, first: int, last: int, bytes_max: int
    ) -> tuple[list[EntryRun], list[Extent]]:
        """The runs that are decoded already, and the extents to read."""
        if index.deleted:
            raise DeletedLedgerError(index.ledger_id)
        places = index.select(first, last, bytes_max)
        if not places:
            raise self._segments.missing(index, first)
        rest = self._take_rest(places[0])
        if rest is not None:
            return [rest], plan(places[1:])
        return [], plan(places)

    def _segment(self, extent: Extent, index: LedgerIndex) -> SegmentFile:
        segment = self._segments.get(extent.segment_id)
        if segment is None:
            # A segment is deleted only when every ledger in it is deleted.
            raise DeletedLedgerError(index.ledger_id)
        return segment

    def _decode(
        self, extent: Extent, data: bytes, index: LedgerIndex, segment: SegmentFile, runs: list[EntryRun]
    ) -> bool:
        """Adds the extent's runs; False when a bad block ends the result."""
        more, bad = decode(extent, data, index.ledger_id, segment.salt)
        runs += more
        if bad is None:
            return True
        error = corrupt(segment, bad.place, bad.detail, index.ledger_id)
        if not runs:
            raise error
        return False

    def _finish(
        self, index: LedgerIndex, runs: list[EntryRun], first: int, last: int, bytes_max: int
    ) -> list[EntryRun]:
        trimmed = trim(runs, first, last, bytes_max)
        cut = trimmed[-1].last_entry
        if cut < runs[-1].last_entry:
            run = next(run for run in runs if run.last_entry >= cut)
            if run.last_entry > cut and (place := index.place_of(cut)) is not None:
                self._take_rest(place)
                self._keep_rest(place, run)
        return trimmed

    # -- blocks of which only a part was asked for --------------------------------------------

    def _keep_rest(self, place: BlockPlace, run: EntryRun) -> None:
        """The rest of the block is what its reader asks for next, so it need not be read and checked
        again."""
        self._rests[(place.segment_id, place.offset)] = (run, place.size)
        self._rests_bytes += place.size
        while self._rests_bytes > _REST_BYTES_MAX:
            _, (_, size) = self._rests.popitem(last=False)
            self._rests_bytes -= size

    def _take_rest(self, place: BlockPlace) -> EntryRun | None:
        kept = self._rests.pop((place.segment_id, place.offset), None)
        if kept is None:
            return None
        self._rests_bytes -= kept[1]
        return kept[0]


def _goes_on_elsewhere(index: LedgerIndex, extent: Extent) -> bool:
    """Whether the ledger's next block is in the same segment, but not right after this extent."""
    following = index.place_of(extent.places[-1].last_entry + 1)
    if following is None or following.segment_id != extent.segment_id:
        return False
    return following.offset != extent.offset + extent.length
