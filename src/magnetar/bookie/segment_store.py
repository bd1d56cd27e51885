"""The segment store: the driver that moves blocks between its pure parts, the disk and the event loop.

    append ─► CommitQueue ─► Tail.place ─► Disk.write ─► Syncer.sync ─► index ─► sinks
              (commit.py)    (commit.py)   (files.py)    (runtime)      (index.py)

This code runs on the event loop's thread; files are created, sealed, deleted and read in other threads.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar.base.errors import DiskFullError, StartupError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.appender import AppendSink, BlockAppender, LedgerAppender
from magnetar.bookie.blocks import Block, BlockKind, mark_block, start_block
from magnetar.bookie.burials import Burials
from magnetar.bookie.commit import CommitQueue, Tail
from magnetar.bookie.files import Disk, VolatileDisk, storage_error
from magnetar.bookie.folder import LOCK_FILE, StoreFolder
from magnetar.bookie.idle_mark import IdleMark
from magnetar.bookie.opening import load_segments
from magnetar.bookie.pacing import Pacer
from magnetar.bookie.reader import BlockReader
from magnetar.bookie.rewriter import Rewriter
from magnetar.bookie.roster import Roster
from magnetar.bookie.segment import DATA_OFFSET, encode_footer
from magnetar.bookie.segment_file import SegmentFile, seal_segment, sealed_index
from magnetar.bookie.segment_set import SegmentSet
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.bookie.supply import SegmentSupply, Supplied
from magnetar.runtime.file_lock import FileLock
from magnetar.runtime.stillness import Stillness
from magnetar.runtime.syncer import HelperSyncer, NoSyncer, Syncer
from magnetar.runtime.tasks import TaskGroup
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.bookie")

_RESERVE_BYTES: Final = 64 << 10
_RESERVE_SHARE: Final = 8
"""A log segment keeps this many bytes free for tombstones, or this share of a small segment."""
_DRAIN_S: Final = 30.0
_PAGE: Final = bytes(4096)


class SegmentStore:
    """Entries of many ledgers in one log of segments. Use `open`."""

    def __init__(
        self,
        folder: StoreFolder,
        disk: Disk,
        syncer: Syncer,
        options: StoreOptions,
        durability: Durability,
        on_fatal: Callable[[StorageError], None] | None,
    ) -> None:
        self.durability: Final = durability
        self.directory: Final = folder.root
        self.segments: Final = SegmentSet()
        self.still: Final = Stillness()
        self.reader: Final = BlockReader(self.segments, disk, folder.root)
        self._folder = folder
        self._disk = disk
        self.syncer = syncer
        self._options = options
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskGroup("segment store")
        self._on_close: Callable[[], None] = lambda: None
        self._closed = False
        self._failure: StorageError | None = None
        self._appenders: dict[int, BlockAppender] = {}
        self._burials = Burials(self.enqueue)
        self._queue = CommitQueue()
        self._offsets: list[int] = []
        self._pacer = Pacer(self._flush, options)
        self._idle: asyncio.Future[None] | None = None
        self.mark: Final = IdleMark(options.idle_mark_ms, self._write_mark)
        self._active: SegmentFile
        self._tail: Tail
        self._slot = -1
        self._whole_pages = self._must_roll = False
        self.supply: SegmentSupply
        syncer.watch(self._syncer_broken)
        self.rewriter: Final = Rewriter(
            self.segments, self.reader, folder, disk, options, lambda: self._busy, self._reclaim_if_dead
        )

    # -- opening and closing ------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        root: Path | None,
        *,
        options: StoreOptions | None = None,
        durability: Durability = Durability.FSYNC,
        syncer: Syncer | None = None,
        disk: Disk | None = None,
        on_fatal: Callable[[StorageError], None] | None = None,
    ) -> SegmentStore:
        """Opens the store in the folder `root`, which is created if necessary, and recovers it.

        `root` None stands for a temporary folder that `close` deletes. `on_fatal` is called once, on the
        event loop, when a write or sync has failed: the store refuses entries from then on. The store closes
        `syncer`.

        Raises StartupError: in use by another process, of a newer format, not usable, disk full.
        """
        temporary = root is None
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="magnetar-"))
        safe = durability is Durability.FSYNC
        disk = disk or (Disk() if safe else VolatileDisk())
        lock: FileLock | None = None
        try:
            # First, because the helper starts in parallel.
            syncer = syncer or (HelperSyncer() if safe else NoSyncer())
            folder = StoreFolder.open(root, disk, sync=safe)
            lock = FileLock(root / LOCK_FILE, f"the data folder {root}")
            store = cls(folder, disk, syncer, options or StoreOptions(), durability, on_fatal)
            store._recover()
        except (OSError, StartupError) as error:
            if syncer is not None:
                await syncer.close()
            if lock is not None:
                lock.release()
            if isinstance(error, OSError):
                raise StartupError(str(storage_error(error, root, "open the segments"))) from error
            raise

        def release(lock: FileLock = lock) -> None:
            lock.release()
            if temporary:
                shutil.rmtree(root, ignore_errors=True)

        store._on_close = release
        return store

    def _recover(self) -> None:
        segments = load_segments(self._folder, self._disk, roster := Roster(self._folder, self._disk))
        self.segments.load(segments)
        self.supply = SegmentSupply(
            self._folder,
            self._disk,
            self._options,
            roster,
            segments[-1].segment_id + 1 if segments else 1,
            is_durable=self.durability is Durability.FSYNC,
        )
        self._activate(self.supply.first())
        for segment in segments:
            self._reclaim_if_dead(segment)
        self.rewriter.start()

    async def close(self) -> None:
        """Waits for pending blocks, seals the active segment, and releases the folder."""
        if self._closed:
            return
        self._closed = True
        self.mark.end()
        if self._failure is None and self._busy:
            self._idle = self._loop.create_future()
            await self._idle
        await self.rewriter.close()
        await self._tasks.drain(_DRAIN_S)
        await self._tasks.close()
        index = self._active.index
        is_empty = index is not None and not (index.ledgers or index.tombstones)
        if self._failure is None and not is_empty:
            await in_thread(self._seal_last)
        # The files of a failed store are left untouched.
        await self.supply.close(active_is_empty=is_empty and self._failure is None)
        await self.syncer.close()
        self.segments.close()
        self._on_close()

    def _seal_last(self) -> None:
        active, end = self._active, self._tail.offset
        assert active.index is not None
        try:
            seal_segment(active, self._disk, encode_footer(active.index, active.salt, end), end)
        except OSError as error:
            # The blocks are synced: the next start scans them.
            _log.warning("%s", storage_error(error, self.directory, "seal the active segment"))

    # -- appending ----------------------------------------------------------------------------

    def appender(self, ledger_id: LedgerId, sink: AppendSink) -> LedgerAppender:
        """The only appender of a ledger without entries. Raises StorageError after a failure."""
        self.attach(appender := LedgerAppender(ledger_id, sink, self.enqueue, self._queue.grew))
        return appender

    def attach(self, appender: BlockAppender) -> None:
        """Makes this the ledger's only appender. Raises StorageError after a failure."""
        if self._failure is not None:
            raise self._failure
        assert appender.ledger_id not in self._appenders
        self._appenders[appender.ledger_id] = appender
        self.reader.share(appender.index)

    def release(self, appender: BlockAppender) -> None:
        """Ends the use of an appender; it must have nothing pending."""
        assert appender.error is not None or not appender.pending_bytes
        self._appenders.pop(appender.ledger_id, None)

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a sync, headers included."""
        return self._queue.waiting_bytes + self._queue.in_flight_bytes

    @property
    def _busy(self) -> bool:
        return bool(self._queue.in_flight) or len(self._queue) > 0

    def enqueue(self, block: Block, last_commit_s: float = math.inf) -> None:
        """`last_commit_s`: of the ledger of these entries; other blocks do not wait."""
        queue = self._queue
        queue.add(block)
        self._pacer.added(last_commit_s, busy=bool(queue.in_flight))

    def _flush(self) -> None:
        queue = self._queue
        if queue.in_flight or self._failure is not None or not len(queue):
            return
        group: list[Block] = []
        if not self._must_roll:
            group = queue.take(self._tail.room_bytes - self._reserve_bytes, self._blocks_room)
        if not group:
            try:
                self._roll(queue.first_bytes)
            except OSError as error:
                group = self._tombstones_at_least(error)
                if not group:
                    return
            else:
                group = queue.take(self._tail.room_bytes - self._reserve_bytes, self._blocks_room)
        self._pacer.taken(all_of_it=not len(queue))
        tail = self._tail
        self._offsets, pieces = tail.place(group)
        if self._whole_pages and (end := tail.offset + queue.in_flight_bytes) < tail.limit:
            # To write a part of a page the kernel must first read the rest, perhaps from the device.
            pieces.append(_PAGE[: min(-end % len(_PAGE), tail.limit - end)])
        try:
            if group[0].kind == BlockKind.MARK:
                self._active.note_synced(tail.offset)
            self._disk.write(self._active.fd, pieces, tail.offset)
        except OSError as error:
            self._write_failed(error, "write entries")
            return
        self.syncer.sync(self._slot, self._synced)

    def _tombstones_at_least(self, error: OSError) -> list[Block]:
        """The next segment cannot be created: entries are refused, tombstones may use the reserve."""
        failure = storage_error(error, self.directory, "set aside the next segment")
        if not isinstance(failure, DiskFullError):
            self._fail(failure)
            return []
        _log.error("%s", failure)
        for block in self._queue.refuse_entries():
            self._appenders[block.ledger_id].fail(failure)
        group = [] if self._must_roll else self._queue.take(self._tail.room_bytes, self._blocks_room)
        if not group:
            self._drop_pending(failure)
        return group

    @property
    def _reserve_bytes(self) -> int:
        return min(_RESERVE_BYTES, self._tail.limit // _RESERVE_SHARE)

    @property
    def _blocks_room(self) -> int:
        return self._options.segment_blocks_max - self._tail.block_count

    def _synced(self, error: OSError | None) -> None:
        if self._failure is not None:
            return
        if error is not None:
            self._fail(storage_error(error, self.directory, "sync entries"))
            return
        queue = self._queue
        group = queue.in_flight
        touched, rare = self._admit(group, now_s := self._loop.time())
        tail, size = self._tail, queue.in_flight_bytes
        tail.advance(size, len(group))
        queue.done()
        used = max(tail.offset / tail.limit, tail.block_count / self._options.segment_blocks_max)
        self.supply.committed(size, len(group), tail.offset, used)
        self._must_roll |= self.supply.has_better(tail.offset)
        self.mark.committed(is_mark=group[-1].kind == BlockKind.MARK)
        # The next group starts before the writers are told: their callbacks run while it is synced.
        if self._pacer.freed(size, rare, now_s, waiting_bytes=queue.waiting_bytes):
            self._flush()
        for appender in touched:
            try:
                appender.announce()
            except Exception as failure:  # noqa: BLE001 - one listener's bug must not cost the others their mark
                self._loop.call_exception_handler(
                    {"message": f"listener of ledger {appender.ledger_id} failed", "exception": failure}
                )
        self._pacer.told()
        if not self._busy:
            self._went_idle()

    def _admit(self, group: list[Block], now_s: float) -> tuple[list[BlockAppender], int]:
        """Makes a durable group readable; returns its appenders, and the number of those that are rarely
        used."""
        index = self._active.index
        assert index is not None
        index.block_count += len(group)
        touched: dict[int, BlockAppender] = {}
        rare = 0
        rare_before_s = self._pacer.rare_before_s
        for block, offset in zip(group, self._offsets, strict=True):
            ledger_id = block.ledger_id
            if block.kind == BlockKind.ENTRIES:
                appender = self._appenders[ledger_id]
                rows = index.ledgers.get(ledger_id)
                if rows is None:
                    rows = index.rows(ledger_id)
                    appender.index.parts.append(rows)
                rows.append(block.first_entry, offset, block.size, block.entry_count, block.data_bytes)
                appender.admit(block)
                touched[ledger_id] = appender
                rare += appender.last_commit_s <= rare_before_s
                appender.last_commit_s = now_s
            elif block.kind == BlockKind.TOMBSTONE:
                index.tombstones.append(ledger_id)
                self._bury(ledger_id)
        return list(touched.values()), rare

    # -- idleness -----------------------------------------------------------------------------

    def _went_idle(self) -> None:
        """No block waits: the log's end is marked soon, unless another block comes."""
        self._release_idle()
        self.mark.rests()

    def _release_idle(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _write_mark(self) -> None:
        if self._failure is None and not self._closed and not self._busy:
            mark = mark_block()
            if mark.size <= self._tail.room_bytes and self._blocks_room > 0:
                self.enqueue(mark)

    # -- failing ------------------------------------------------------------------------------

    @property
    def failure(self) -> StorageError | None:
        """Why the store refuses entries; None while it works."""
        return self._failure

    def _write_failed(self, error: OSError, action: str) -> None:
        failure = storage_error(error, self.directory, action)
        if not isinstance(failure, DiskFullError):
            self._fail(failure)
            return
        # Part of the group may be in the file. It is not overwritten: the log continues in a new segment,
        # whose first block records where this one ended.
        self._must_roll = True
        _log.error("%s", failure)
        self._drop_pending(failure)

    def _fail(self, failure: StorageError) -> None:
        _log.critical("the store stops: %s", failure)
        self._failure = failure
        self._drop_pending(failure)
        for appender in self._appenders.values():
            appender.fail(failure)
        if self._on_fatal is not None:
            self._loop.call_soon(self._on_fatal, failure)

    def _syncer_broken(self, error: OSError) -> None:
        """No sync can succeed any more. An idle store reports it at once, not with the next entry."""
        if self._failure is None and not self._closed:
            self._fail(storage_error(error, self.directory, "sync entries"))

    def _drop_pending(self, failure: StorageError) -> None:
        for block in self._queue.fail():
            if block.kind == BlockKind.ENTRIES:
                self._appenders[block.ledger_id].fail(failure)
        self._burials.fail(failure)
        self._release_idle()

    # -- segments -----------------------------------------------------------------------------

    def _activate(self, supplied: Supplied) -> None:
        segment = supplied.segment
        slot = self.syncer.attach(segment.fd)
        if self._slot >= 0:
            self.syncer.detach(self._slot)
        self._slot = slot
        self.segments.add(segment)
        self._active = segment
        self._whole_pages = supplied.written_bytes > 0
        self._tail = Tail(segment.segment_id, segment.salt, DATA_OFFSET, supplied.size)

    def _roll(self, first_bytes: int) -> None:
        """Continues in the next segment, which must hold a block of `first_bytes` bytes. Raises OSError."""
        old, end = self._active, self._tail.offset
        start = start_block(old.segment_id, end)
        needed = DATA_OFFSET + start.size + first_bytes
        reserve = min(_RESERVE_BYTES, needed // (_RESERVE_SHARE - 1) + _RESERVE_SHARE)
        self._activate(self.supply.take(needed + reserve))
        self._must_roll = False
        self._queue.add_first(start)
        self._tasks.spawn(self._seal(old, end))

    async def _seal(self, segment: SegmentFile, end: int) -> None:
        index = segment.index
        assert index is not None
        footer = encode_footer(index, segment.salt, end)
        segment.pin()
        try:
            await in_thread(seal_segment, segment, self._disk, footer, end)
        except OSError as error:
            failure = storage_error(error, self.directory, "seal a segment")
            if isinstance(failure, DiskFullError):
                # The blocks are synced and the index is in memory: the next start seals it.
                _log.warning("%s", failure)
            elif self._failure is None:
                self._fail(failure)
            return
        finally:
            segment.unpin()
        segment.sealed = sealed_index(segment, footer, end)
        segment.index = None
        segment.count_live(self.segments.deleted)
        self.segments.used(segment)
        self._reclaim_if_dead(segment)

    # -- deleting -----------------------------------------------------------------------------

    def ledger_ids(self) -> set[LedgerId]:
        """Ledgers with entries here that are not deleted."""
        return self.segments.ledger_ids()

    async def delete(self, ledger_id: LedgerId) -> None:
        """Deletes a ledger: durable on return; not an error when there is none. Raises StorageError.

        The caller must have stopped its appender, if there is one.
        """
        if self._failure is not None:
            raise self._failure
        self.reader.mark_deleted(ledger_id)
        if (appender := self._appenders.get(ledger_id)) is not None:
            await appender.settle()
            self._appenders.pop(ledger_id, None)
        if self.segments.holding(ledger_id):
            await self._write_tombstones([ledger_id])

    async def _write_tombstones(self, ledger_ids: list[LedgerId]) -> None:
        await self.still.passes()
        await self._burials.bury(ledger_ids)

    def _bury(self, ledger_id: LedgerId) -> None:
        """The tombstone of a ledger is durable."""
        for segment in self.segments.bury(ledger_id, self._active):
            self._reclaim_if_dead(segment)
        self._burials.buried(ledger_id)

    def _reclaim_if_dead(self, segment: SegmentFile) -> None:
        if segment.live_count == 0 and segment.sealed is not None and not segment.rewriting:
            self._tasks.spawn(self._reclaim(segment))

    async def _reclaim(self, segment: SegmentFile) -> None:
        """Deletes a segment without living ledgers."""
        if needed := self.segments.needed_tombstones(segment):
            if self._closed or self._failure is not None:
                return
            # Without them the blocks in other segments would reappear at the next start.
            await self._write_tombstones(needed)
        if self.segments.remove(segment):
            await self.supply.give_back(segment)

    def check(self) -> None:
        """Asserts the invariants of the queue, the active segment and the open ledgers."""
        self._queue.check()
        if self._slot >= 0:  # Otherwise it is being opened, or its opening failed.
            self._tail.check(self._active.segment_id, self._active.index)
        for appender in self._appenders.values():
            appender.check()
