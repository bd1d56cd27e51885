"""The source of segments: a spare file written before, or a new one that is only allocated.

dead segment ──┐
               ├─► spare file (spares.py) ─► ready ─► the next segment
zeros ─────────┘                               ▲
           allocated, not written yet ─────────┘   when there is no spare in time
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
from magnetar.bookie.prewriter import Prewriter
from magnetar.bookie.roster import Roster
from magnetar.bookie.segment import DATA_OFFSET, PAGE_BYTES, SEGMENT_BYTES_MAX
from magnetar.bookie.segment_file import SegmentFile, create_segment, recycle_segment, remove_segment
from magnetar.bookie.spares import SparePool
from magnetar.bookie.store_options import StoreOptions
from magnetar.runtime.tasks import TaskGroup
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.bookie")

_READY_AT: Final = 0.25
"""Used share of the prewritten bytes at which the next spare is prepared."""
_SET_ASIDE_AT: Final = 0.5
"""Used share of the active segment at which the next one is prepared, without a spare."""
_LAST_AT: Final = 0.85
"""The same while zeros are still being written: the log waits for them up to here."""
_MARGIN_BYTES: Final = 64 << 10
"""Bytes before the end of the prewritten ones at which the log moves to the next segment, if one is ready."""
_EARLY_S: Final = 1.0
"""Seconds that a segment is used before that: entries that come fast stay in large segments."""
_FULL_S: Final = 0.5
"""Seconds for which a full disk counts as still full, so that not every request measures it."""
_SMALL_BYTES: Final = 1 << 20
"""Size of a segment that only takes deletions, until there is space again."""
_BESIDE_BYTES: Final = 128 << 10
"""Bytes that a start on a full disk writes besides: footers, and small files in the folder."""
_CLOSE_S: Final = 30.0
_PAGES_MAX_BYTES: Final = SEGMENT_BYTES_MAX - SEGMENT_BYTES_MAX % PAGE_BYTES


class Supplied(NamedTuple):
    """An empty segment."""

    segment: SegmentFile
    size: int
    """Upper bound of the end of a block."""
    written_bytes: int
    """Leading bytes that were written on the device before; 0 for a new file."""


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
        """`first_id`: id of the first segment that is created."""
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
        """Whether the next segment is being prepared: the log does not wait for it."""
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
        # Whole pages, whatever was requested: after a kill any other file would count as ended, and the space
        # allocated after its blocks as lost blocks (opening.py).
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
                # An unused file is cut there, while it still has the name of a segment.
                written -= written % PAGE_BYTES
                segment, has = recycle_segment(self._folder, self._disk, segment_id, salt, spare, size)
                self.recycled += 1
                return Supplied(segment, has, written)
            except OSError as error:  # a new segment is created below, which needs no spare
                _log.warning("%s", storage_error(error, self._folder.root, "use a spare file"))
        try:
            segment = create_segment(self._folder, self._disk, segment_id, salt, size)
        except OSError:
            # Space kept for speed must not be the missing space.
            if not self.spares.clear():
                raise
            segment = create_segment(self._folder, self._disk, segment_id, salt, size)
        return Supplied(segment, size, 0)

    def first(self) -> Supplied:
        """The first segment; on a full disk a small one, for deletions. Blocking. Raises OSError."""
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
        """Allocates the reserve for a start on a full disk, if there is space. Blocking. Raises OSError."""
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
            # Writing was faster than the preparation: this takes a few milliseconds, rarely.
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
        """Whether the next segment is ready; creates it when it is not. For a full disk that has space again:
        blocks for milliseconds."""
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
        """Whether the log, which reaches `end`, comes to bytes that were never written while a segment with
        written bytes is ready."""
        ready = self._ready
        if ready is None or not ready.written_bytes or end + _MARGIN_BYTES < self._active.written_bytes:
            return False
        return self._loop.time() - self._active_since_s >= _EARLY_S

    @property
    def durable_end(self) -> tuple[str, int]:
        """Name of the active segment, and up to which byte it is durable."""
        return self._active.segment.path.name, self._end

    def committed(self, size: int, block_count: int, end: int, used: float) -> None:
        """A group is durable; the log reaches `end`, the share `used` of the segment is used."""
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
            # A writer without a prepared segment creates one itself, and raises the error.
            _log.warning("%s", storage_error(error, self._folder.root, "prepare the next segment"))
            return
        finally:
            self.is_preparing = False
        if segment_id < self._active.segment.segment_id:
            # The log could not wait and continued in a later segment; ids must ascend.
            await self._return(ready)
        else:
            self._ready = ready

    @property
    def _fill_bytes(self) -> int:
        """Bytes that the next segment will need, judged by the rate so far: zeros are not written for
        nothing."""
        options = self._options
        by_blocks = self.committed_bytes // max(self.committed_blocks, 1) * options.segment_blocks_max
        size = max(options.prewrite_bytes_min, min(self.committed_bytes, by_blocks))
        size = min(size, options.segment_bytes)
        return size - size % PAGE_BYTES

    def _fill_one(self) -> None:
        size = self._fill_bytes
        # If it fails or is not wanted, it is tried again after as many bytes.
        self._fill_from_bytes = self.committed_bytes + size
        # Space for two: the next segment needs some as well.
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
        """Takes the file of a segment that is in no set any more. Raises OSError."""
        stat = segment.path.stat()
        # A reader of a deleted ledger must not find other bytes there, nor a backup that has linked the file
        # under another name.
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
        """Makes the file a spare. Blocking. Raises OSError."""
        self._roster.remove(segment.segment_id)
        self.spares.keep(segment.path)

    def _delete(self, segment: SegmentFile) -> None:
        """Deletes the file. Blocking. Raises OSError."""
        self._roster.remove(segment.segment_id)
        remove_segment(segment, self._disk)

    async def close(self, *, active_is_empty: bool) -> None:
        """Ends the preparation under way. Empty segments become spares again, or are deleted."""
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
        """Returns an empty segment. Space that was only allocated is freed."""
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
