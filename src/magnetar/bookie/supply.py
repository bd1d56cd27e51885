"""Where segments come from: a spare file written before, or a new one that is only set aside.

dead segment ──┐
               ├─► spare file (spares.py) ─► ready ─► the next segment
zeros ─────────┘                               ▲
                  set aside, not written yet ──┘   when there is no spare in time
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.errors import DiskFullError
from magnetar.bookie.files import Disk, storage_error
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.options import StoreOptions
from magnetar.bookie.prewriter import Prewriter
from magnetar.bookie.roster import Roster
from magnetar.bookie.segment import DATA_OFFSET, PAGE_BYTES, SEGMENT_BYTES_MAX
from magnetar.bookie.segment_file import SegmentFile, create_segment, recycle_segment, remove_segment
from magnetar.bookie.spares import SparePool
from magnetar.runtime.tasks import TaskGroup
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.bookie")

_READY_AT: Final = 0.25
"""Share of the bytes written before that is used when the next spare is prepared."""
_SET_ASIDE_AT: Final = 0.5
"""Share of the active segment that is used when the next one is prepared, without a spare."""
_LAST_AT: Final = 0.85
"""The same while zeros are still being written: they are waited for until here."""
_MARGIN_BYTES: Final = 64 << 10
"""So much before the end of the bytes written before the log goes on in the next segment, if one is ready."""
_EARLY_S: Final = 1.0
"""A segment is in use for so long before that: entries that come fast stay in large segments."""
_FULL_S: Final = 0.5
"""For so long a full disk is taken to be full still: many may ask."""
_SMALL_BYTES: Final = 1 << 20
"""A segment that only takes deletions, until there is space again."""
_BESIDE_BYTES: Final = 128 << 10
"""What a start on a full disk writes besides: footers, and small files in the folder."""
_CLOSE_S: Final = 30.0
_PAGES_MAX_BYTES: Final = SEGMENT_BYTES_MAX - SEGMENT_BYTES_MAX % PAGE_BYTES


class Supplied(NamedTuple):
    """A segment that holds nothing yet."""

    segment: SegmentFile
    size: int
    """Blocks must end here at the latest."""
    written_bytes: int
    """Its first bytes on the device were written before: so many, 0 for a new file."""


class SegmentSupply:
    """Prepares the segments of one store, each before it is needed."""

    def __init__(
        self,
        folder: StoreFolder,
        disk: Disk,
        options: StoreOptions,
        roster: Roster,
        first_id: int,
        *,
        is_durable: bool,
    ) -> None:
        """`first_id`: of the first segment that is made."""
        self._folder = folder
        self._disk = disk
        self._roster = roster
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._next_id = first_id
        self._is_durable = is_durable
        self._prewrites = is_durable and options.prewrite_bytes_per_s > 0 and options.spare_segments > 0
        self._ready: Supplied | None = None
        self._filling = False
        self._fill_from_bytes = 1
        self._closed = False
        self._full_until_s = 0.0
        self._active: Supplied
        self._end = 0
        self._active_since_s = 0.0
        self._tasks = TaskGroup("segment supply")
        self.committed_bytes = 0
        """Bytes of blocks made durable since the store was opened."""
        self.committed_blocks = 0
        self.recycled = 0
        """Segments made of spare files."""
        self.is_preparing = False
        """Whether the next segment is under way: the log does not wait for it."""
        self.spares: Final = SparePool(
            folder, disk, count_max=options.spare_segments, segment_bytes=options.segment_bytes
        )
        self.prewriter: Final = Prewriter(
            disk, bytes_per_s=options.prewrite_bytes_per_s, committed=lambda: self.committed_bytes
        )

    # -- making -------------------------------------------------------------------------------

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _make(self, segment_id: int, size: int) -> Supplied:
        """Blocking. Raises OSError."""
        # Whole pages, whatever was asked for: after a kill any other file would be taken for one that was
        # ended, and the place that is set aside behind its blocks for blocks that were lost (opening.py).
        made = self._create(segment_id, min(size + -size % PAGE_BYTES, _PAGES_MAX_BYTES))
        try:
            self._roster.add(segment_id)
        except OSError:
            self._remove(made.segment)
            raise
        return made

    def _create(self, segment_id: int, size: int) -> Supplied:
        salt = secrets.randbits(64)
        spare = self.spares.take()
        if spare is not None:
            try:
                written = min(spare.stat().st_size, size)
                # The file is cut there when it is given back unused, while it still has a name of a segment.
                written -= written % PAGE_BYTES
                segment, has = recycle_segment(self._folder, self._disk, segment_id, salt, spare, size)
                self.recycled += 1
                return Supplied(segment, has, written)
            except OSError as error:  # a new segment is made below, which needs no spare
                _log.warning("%s", storage_error(error, self._folder.root, "use a spare file"))
        try:
            segment = create_segment(self._folder, self._disk, segment_id, salt, size)
        except OSError:
            # What is kept for speed must not be what is missing.
            if not self.spares.clear():
                raise
            segment = create_segment(self._folder, self._disk, segment_id, salt, size)
        return Supplied(segment, size, 0)

    def first(self) -> Supplied:
        """The segment to begin with; on a full disk a small one, for deletions. Blocking. Raises OSError."""
        self.spares.load()
        size = self._options.segment_bytes
        while True:
            try:
                first = self._activated(self._make(self._take_id(), size))
                self._refill_reserve()
                return first
            except OSError as error:
                if not isinstance(storage_error(error, self._folder.root, ""), DiskFullError):
                    raise
                if size <= _SMALL_BYTES and not self._give_up_reserve():
                    raise
                size = min(size, max(size // 4, _SMALL_BYTES))

    def _refill_reserve(self) -> None:
        """Sets aside what a start on a full disk needs, where there is space. Blocking. Raises OSError."""
        file = self._folder.reserve_file
        if self._is_durable and not file.exists() and self.spares.has_room(4 * self._options.segment_bytes):
            size = min(_SMALL_BYTES, self._options.segment_bytes) + _BESIDE_BYTES
            os.close(self._disk.create(file, size))

    def _give_up_reserve(self) -> bool:
        file = self._folder.reserve_file
        is_there = file.exists()
        file.unlink(missing_ok=True)
        return is_there

    def _activated(self, supplied: Supplied) -> Supplied:
        self._active, self._end = supplied, DATA_OFFSET
        self._active_since_s = self._loop.time()
        return supplied

    def take(self, size_min: int) -> Supplied:
        """The next segment, of at least `size_min` bytes. Raises OSError."""
        ready, self._ready = self._ready, None
        if ready is not None and ready.size < size_min:
            # Ids must ascend, so it cannot be kept for later either.
            self._discard(ready.segment)
            ready = None
        if ready is None:
            # Writing was faster than the preparation: a few milliseconds here, rarely.
            ready = self._make(self._take_id(), max(self._options.segment_bytes, size_min))
            if ready.size < size_min:
                self._discard(ready.segment)
                raise OSError(errno.ENOSPC, "a spare file could not be enlarged")
        return self._activated(ready)

    def _discard(self, segment: SegmentFile) -> None:
        self._roster.remove(segment.segment_id)
        self._remove(segment)

    @staticmethod
    def _remove(segment: SegmentFile) -> None:
        segment.drop()
        segment.path.unlink(missing_ok=True)

    # -- ahead of need ------------------------------------------------------------------------

    def set_aside(self) -> bool:
        """Whether the next segment is ready; makes it when it is not. For after a full disk: blocks for
        milliseconds."""
        if self._ready is not None or self.is_preparing or self._closed:
            return self._ready is not None
        if self._loop.time() < self._full_until_s:
            return False
        try:
            self._ready = self._make(self._take_id(), self._options.segment_bytes)
        except OSError:
            self._full_until_s = self._loop.time() + _FULL_S
            return False
        return True

    def has_better(self, end: int) -> bool:
        """Whether the log, which goes to `end`, comes to bytes that were never written, and a segment is
        ready whose bytes were."""
        ready = self._ready
        if ready is None or not ready.written_bytes or end + _MARGIN_BYTES < self._active.written_bytes:
            return False
        return self._loop.time() - self._active_since_s >= _EARLY_S

    @property
    def durable_end(self) -> tuple[str, int]:
        """Name of the segment that is written to, and up to which byte it is durable."""
        return self._active.segment.path.name, self._end

    def committed(self, size: int, block_count: int, end: int, used: float) -> None:
        """A group of blocks is durable; the log goes to `end`, the share `used` of the segment is used."""
        self._end = end
        self.committed_bytes += size
        self.committed_blocks += block_count
        if self._ready is not None or self.is_preparing:
            return
        early = end >= self._active.written_bytes * _READY_AT
        if len(self.spares):
            if early:
                self._prepare()
        elif self._filling:
            if used >= _LAST_AT:
                self._prepare()
        elif early and self._prewrites and self.committed_bytes >= self._fill_from_bytes:
            self._fill_one()
        elif used >= _SET_ASIDE_AT:
            self._prepare()

    def _prepare(self) -> None:
        if not self._closed:
            self.is_preparing = True
            self._tasks.spawn(self._prepare_one(self._take_id()))

    async def _prepare_one(self, segment_id: int) -> None:
        try:
            ready = await in_thread(self._make, segment_id, self._options.segment_bytes)
        except OSError as error:
            # A writer that finds no segment prepared makes one itself, and raises what it meets.
            _log.warning("%s", storage_error(error, self._folder.root, "prepare the next segment"))
            return
        finally:
            self.is_preparing = False
        if segment_id < self._active.segment.segment_id:
            # The log could not wait and went on in a later one; ids must ascend.
            await self._return(ready)
        else:
            self._ready = ready

    @property
    def _fill_bytes(self) -> int:
        """What the next segment will need, by what came until now: zeros are not written for nothing."""
        options = self._options
        by_blocks = self.committed_bytes // max(self.committed_blocks, 1) * options.segment_blocks_max
        size = max(options.prewrite_bytes_min, min(self.committed_bytes, by_blocks))
        size = min(size, options.segment_bytes)
        return size - size % PAGE_BYTES

    def _fill_one(self) -> None:
        size = self._fill_bytes
        # Should it fail or not be wanted: so much later it may be different.
        self._fill_from_bytes = self.committed_bytes + size
        # Room for two: the next segment must find some as well.
        has_room = self.spares.has_room(2 * self._options.segment_bytes)
        if has_room and not self._closed and self.spares.reserve(size):
            self._filling = True
            self._tasks.spawn(self._fill(self._folder.new_segment_path(self._take_id()), size))

    async def _fill(self, path: Path, size: int) -> None:
        try:
            if await self.prewriter.fill(path, size):
                await in_thread(self.spares.keep, path)
                self._fill_from_bytes = 0
        except OSError as error:  # a spare only saves time later
            _log.warning("%s", storage_error(error, self._folder.root, "write zeros ahead"))
        finally:
            self._filling = False
            self.spares.forgo()

    # -- dead segments, the end ---------------------------------------------------------------

    async def give_back(self, segment: SegmentFile) -> None:
        """The file of a segment that is in no set any more. Raises OSError."""
        stat = segment.path.stat()
        # Whoever reads a deleted ledger still must not find other bytes there, nor who has the file by
        # another name: a backup links what it will copy.
        if not segment.is_read and stat.st_nlink == 1 and self.spares.reserve(stat.st_size):
            segment.drop()
            try:
                await in_thread(self._keep, segment)
            finally:
                self.spares.forgo()
            return
        segment.drop()
        await in_thread(self._delete, segment)

    def _keep(self, segment: SegmentFile) -> None:
        """Makes it a spare. Blocking. Raises OSError."""
        self._roster.remove(segment.segment_id)
        self.spares.keep(segment.path)

    def _delete(self, segment: SegmentFile) -> None:
        """Blocking. Raises OSError."""
        self._roster.remove(segment.segment_id)
        remove_segment(segment, self._disk)

    async def close(self, *, active_is_empty: bool) -> None:
        """Ends what is under way. What holds nothing becomes a spare again, or goes."""
        self._closed = True
        self.prewriter.stop()
        await self._tasks.drain(_CLOSE_S)
        await self._tasks.close()
        ready, self._ready = self._ready, None
        if ready is not None:
            await self._return(ready)
        if active_is_empty:
            await self._return(self._active)

    async def _return(self, supplied: Supplied) -> None:
        """A segment that holds nothing. What was only set aside for it is given back."""
        segment = supplied.segment
        if not self.spares.reserve(supplied.written_bytes):
            self._discard(segment)
            return
        try:
            os.ftruncate(segment.fd, supplied.written_bytes)
            segment.drop()
            await in_thread(self._keep, segment)
        except OSError as error:  # a spare only saves time later
            _log.warning("%s", storage_error(error, self._folder.root, "keep a spare file"))
        finally:
            self.spares.forgo()
