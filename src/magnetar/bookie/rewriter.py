"""Frees the space of dead ledgers in segments that still hold living ones.

A segment without living ledgers is deleted at once. Otherwise one slow subscription would keep 256 MiB of
other topics' consumed messages for every segment that holds a little of its own. So the sealed segment with
the smallest living part is rewritten without the rest now and then (segment_copy.py).

Where the options say so, a segment is also rewritten because reads ask for it: the blocks of ledgers that
were written at the same time alternate, and a reader of one of them needs a read from the device for each
block. In the new file each ledger is in one piece.

The work is done in small pieces in a thread, at a bounded rate, and waits while entries wait for their sync:
it takes a bounded share from live traffic, and is never urgent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.files import Disk, storage_error
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import BlockPlace
from magnetar.bookie.reader import BlockReader
from magnetar.bookie.segment import DATA_OFFSET
from magnetar.bookie.segment_copy import SegmentCopy
from magnetar.bookie.segment_file import SegmentFile
from magnetar.bookie.segment_set import SegmentSet
from magnetar.bookie.store_options import StoreOptions
from magnetar.runtime.tasks import begin, happens_within
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.bookie")

_STEP_BYTES: Final = 128 << 10
"""Bytes of living blocks copied per step: some milliseconds in which a thread competes with the loop. The few
blocks that cursors leave in a large segment are one such step, so that freeing keeps up with the fastest
writers."""
_YIELDS_MAX: Final = 20
"""Times that a step waits for the store to be idle before it runs anyway."""


@dataclass(slots=True)
class Reclaimed:
    """Totals of rewriting since the store was opened."""

    segments: int = 0
    """Segments rewritten."""
    copied_bytes: int = 0
    """Bytes of living blocks that were copied."""
    freed_bytes: int = 0
    """Bytes freed."""
    sorted_segments: int = 0
    """Those of the segments that were rewritten because reads asked for it."""


class Rewriter:
    """Rewrites mostly dead segments of one store, one at a time."""

    def __init__(
        self,
        segments: SegmentSet,
        reader: BlockReader,
        folder: StoreFolder,
        disk: Disk,
        options: StoreOptions,
        busy: Callable[[], bool],
        replaced: Callable[[SegmentFile], None],
    ) -> None:
        """`busy` tells whether live traffic waits for the disk; `replaced` is called with each new
        segment."""
        self.reclaimed = Reclaimed()
        self._segments = segments
        self._reader = reader
        self._folder = folder
        self._disk = disk
        self._options = options
        self._busy = busy
        self._replaced = replaced
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._once = asyncio.Lock()
        self._refused: dict[int, int] = {}
        """Segments not worth rewriting, or damaged, with their number of living ledgers at that time: checked
        again with fewer."""

    def start(self) -> None:
        """Works in the background until `close`."""
        self._task = begin(self._run())

    async def close(self) -> None:
        """Stops; a rewriting under way is abandoned."""
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not await happens_within(self._stop, self._options.rewrite_interval_s):
            try:
                while await self.rewrite_one():
                    pass
            except Exception:  # noqa: BLE001 - one failed round must not end the rounds
                _log.exception("rewriting segments failed")

    # -- choosing -----------------------------------------------------------------------------

    def _candidate(self) -> SegmentFile | None:
        """The sealed segment with the smallest living share of blocks, if it is small enough; else the one
        that reads ask for most."""
        best: tuple[float, SegmentFile] | None = None
        for segment in self._segments:
            # A damaged segment stays as it is: its damage is known by offsets in this file.
            if segment.sealed is None or segment.live_count == 0 or segment.damages:
                continue
            if segment.live_count == len(segment.sealed.ledger_ids):
                # Nothing in it is dead. By far the most segments are like that, and counting block by block
                # would be slow.
                continue
            if self._refused.get(segment.segment_id, segment.live_count + 1) <= segment.live_count:
                continue
            total, alive = segment.sealed.count_rows(self._segments.deleted)
            share = alive / total
            if share <= self._options.rewrite_below and (best is None or share < best[0]):
                best = share, segment
        return self._asked_for() if best is None else best[1]

    def _asked_for(self) -> SegmentFile | None:
        asked = [
            each
            for each in self._segments
            if self._is_asked_for(each) and each.live_count and not each.damages
        ]
        return max(asked, key=lambda segment: segment.scattered_reads, default=None)

    def _is_asked_for(self, segment: SegmentFile) -> bool:
        enough = self._options.sort_after_reads
        return enough > 0 and segment.sealed is not None and segment.scattered_reads >= enough

    async def rewrite_one(self) -> bool:
        """Rewrites the segment that frees most; False when there is none, or it was abandoned."""
        async with self._once:
            segment = self._candidate()
            if segment is None or self._stop.is_set():
                return False
            self._refused[segment.segment_id] = segment.live_count
            by_ledger = self._is_asked_for(segment)
            # Whatever the result, reads must ask for it anew.
            segment.scattered_reads = 0
            try:
                segment.pin()
            except OSError as error:
                _log.warning("%s", storage_error(error, self._folder.root, "rewrite a segment"))
                return False
            segment.rewriting = True
            try:
                return await self._rewrite(segment, by_ledger=by_ledger)
            except CorruptDataError as error:
                # Damaged blocks stay where they are: the reader reports them, the doctor shows them.
                _log.error("%s", error)
            except OSError as error:  # the old segment is intact; the next round tries again
                _log.warning("%s", storage_error(error, self._folder.root, "rewrite a segment"))
            finally:
                segment.rewriting = False
                segment.unpin()
                if (now := self._segments.get(segment.segment_id)) is not None:
                    self._replaced(now)
            return False

    # -- copying ------------------------------------------------------------------------------

    async def _rewrite(self, segment: SegmentFile, *, by_ledger: bool) -> bool:
        places: list[BlockPlace] = []
        for ledger_id in segment.ledger_ids():
            if ledger_id not in self._segments.deleted:
                places += await self._places(segment, ledger_id)
        if segment.damages:
            # Found only now, when the index was rebuilt: the segment stays as it is.
            return False
        if not by_ledger:
            places.sort(key=lambda place: place.offset)
        size = sum(place.size for place in places)
        before = segment.path.stat().st_size
        if not by_ledger and DATA_OFFSET + size > before * self._options.rewrite_bytes_below:
            return False
        copy = await in_thread(SegmentCopy, self._folder, self._disk, segment, places, size)
        try:
            while not copy.done:
                await in_thread(copy.step, _STEP_BYTES)
                if await self._give_way():
                    copy.discard()
                    return False
            tombstones = self._segments.needed_tombstones(segment)
            fresh = await in_thread(copy.finish, tombstones)
        except BaseException:
            copy.discard()
            raise
        # From here to the end of `replace` no other task runs: readers see the one file or the other.
        self._reader.replace(segment, fresh, copy.rows())
        self._segments.replace(segment, fresh)
        self._refused.pop(segment.segment_id, None)
        after = fresh.path.stat().st_size
        self.reclaimed.segments += 1
        self.reclaimed.sorted_segments += by_ledger
        self.reclaimed.copied_bytes += copy.copied_bytes
        self.reclaimed.freed_bytes += before - after
        _log.info("%s: rewritten from %d to %d bytes", segment.path, before, after)
        return True

    async def _places(self, segment: SegmentFile, ledger_id: LedgerId) -> list[BlockPlace]:
        """The ledger's blocks in the segment. Raises OSError."""
        rows = await self._reader.rows_of(segment, ledger_id)
        return [] if rows is None else [rows.place(row) for row in range(len(rows))]

    async def _give_way(self) -> bool:
        """Waits as the rate demands, and longer while live traffic waits; returns whether to stop."""
        delay_s = _STEP_BYTES / self._options.rewrite_bytes_per_s
        if await happens_within(self._stop, delay_s):
            return True
        for _ in range(_YIELDS_MAX):
            if not self._busy():
                break
            if await happens_within(self._stop, delay_s):
                return True
        return False
