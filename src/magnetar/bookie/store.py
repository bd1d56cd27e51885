"""The segment store: the driver that moves blocks between its pure parts, the disk and the event loop.

    append ─► CommitQueue ─► Tail.place ─► Disk.write ─► Syncer.sync ─► index ─► sinks
              (commit.py)    (commit.py)   (files.py)    (runtime)      (index.py)

Everything here runs on the event loop's thread except where a comment says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakValueDictionary

from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError, DiskFullError, StartupError, StorageError
from magnetar.bookie.blocks import Block, Kind, blocks_of, mark_block, start_block, tombstone_block
from magnetar.bookie.commit import CommitQueue, Tail
from magnetar.bookie.files import Disk, storage_error
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import UNKNOWN_OWNER, BlockPlace, LedgerIndex
from magnetar.bookie.lock import FolderLock
from magnetar.bookie.options import Durability, StoreOptions
from magnetar.bookie.reading import decode, plan, trim
from magnetar.bookie.segment import DATA_OFFSET, encode_footer
from magnetar.bookie.segment_file import (
    SegmentFile,
    create_segment,
    load_segments,
    seal_segment,
    sealed_index,
)
from magnetar.runtime.syncer import HelperSyncer, NoSyncer, Syncer
from magnetar.runtime.tasks import TaskGroup

_log = logging.getLogger("magnetar.bookie")

_SPARE_AT: Final = 0.5
"""Share of the active segment that is used when the next one is prepared."""


class AppendSink(Protocol):
    """Told how far the entries of one ledger are durable."""

    def durable(self, last_entry: int) -> None:
        """Everything up to `last_entry` is durable. Calls come in order and never nest."""

    def failed(self, error: StorageError) -> None:
        """Nothing beyond the last `durable` mark is known to be kept; called at most once, last."""


class LedgerAppender:
    """Appends to one ledger. Made by `SegmentStore.appender`."""

    __slots__ = (
        "_settled",
        "_sink",
        "_store",
        "durable_bytes",
        "error",
        "index",
        "last_durable",
        "last_pushed",
        "ledger_id",
        "pending_bytes",
    )

    def __init__(self, store: SegmentStore, ledger_id: int, sink: AppendSink) -> None:
        self._store = store
        self._sink = sink
        self._settled: list[asyncio.Future[None]] = []
        self.ledger_id = ledger_id
        self.index = LedgerIndex(ledger_id)
        """The durable blocks."""
        self.last_pushed = -1
        """Last entry handed in; -1 at first."""
        self.last_durable = -1
        """Last durable entry; -1 at first."""
        self.durable_bytes = 0
        """Bytes of all durable entries."""
        self.pending_bytes = 0
        """Bytes handed in that are not durable yet."""
        self.error: StorageError | None = None
        """Why no more entries are taken."""

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        """Takes the next entries (see EntryRun) and returns the id of the first. Raises `error`."""
        if self.error is not None:
            raise self.error
        first = self.last_pushed + 1
        for block in blocks_of(self.ledger_id, first, entries, counts, base_index, broker_time_ms):
            self.pending_bytes += block.data_bytes
            self._store.enqueue(block)
        self.last_pushed = first + len(entries) - 1
        return first

    async def settle(self) -> None:
        """Waits until nothing is pending: all durable, or failed."""
        if self.pending_bytes or self.last_durable < self.last_pushed:
            if self.error is not None:
                return
            future = asyncio.get_running_loop().create_future()
            self._settled.append(future)
            await future

    def committed(self) -> None:
        """Tells the sink how far the ledger is durable now; for the store."""
        self._sink.durable(self.last_durable)
        if self.last_durable == self.last_pushed:
            self._settle()

    def fail(self, error: StorageError) -> None:
        """Takes no more; the sink hears of it from the event loop. For the store."""
        if self.error is None:
            self.error = error
            self.pending_bytes = 0
            asyncio.get_running_loop().call_soon(self._sink.failed, error)
        self._settle()

    def _settle(self) -> None:
        waiting, self._settled = self._settled, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class SegmentStore:
    """Entries of many ledgers in one log of segments. Use `open`."""

    def __init__(
        self,
        folder: StoreFolder,
        disk: Disk,
        syncer: Syncer,
        lock: FolderLock,
        options: StoreOptions,
        durability: Durability,
        on_fatal: Callable[[StorageError], None] | None,
        temporary: bool,
    ) -> None:
        self.durability: Final = durability
        self.directory: Final = folder.root
        self._folder = folder
        self._disk = disk
        self._syncer = syncer
        self._lock = lock
        self._options = options
        self._on_fatal = on_fatal
        self._temporary = temporary
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskGroup("segment store")
        self._segments: dict[int, SegmentFile] = {}
        self._deleted: set[int] = set()
        self._appenders: dict[int, LedgerAppender] = {}
        self._indexes: WeakValueDictionary[int, LedgerIndex] = WeakValueDictionary()
        self._deletions: dict[int, list[asyncio.Future[None]]] = {}
        self._queue = CommitQueue()
        self._offsets: list[int] = []
        self._flush_scheduled = False
        self._must_roll = False
        self._failure: StorageError | None = None
        self._closed = False
        self._next_segment_id = 1
        self._active: SegmentFile
        self._tail: Tail
        self._slot = -1
        self._spare: tuple[SegmentFile, int] | None = None
        self._preparing = False
        self._idle: asyncio.Future[None] | None = None
        self._mark_timer: asyncio.TimerHandle | None = None
        self._marked = True
        self._commits = 0

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
        """Opens the store in the folder `root`, which is made where it is missing, and recovers it.

        `root` None stands for a temporary folder that goes with `close`. `on_fatal` is called once,
        on the event loop, when a write or sync has failed: no entry is taken after that.

        Raises StartupError: in use by another process, of a newer format, not usable, disk full.
        """
        temporary = root is None
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="magnetar-"))
        disk = disk if disk is not None else Disk() if durability is Durability.FSYNC else VolatileDisk()
        if syncer is None:
            syncer = HelperSyncer() if durability is Durability.FSYNC else NoSyncer()
        lock: FolderLock | None = None
        try:
            folder = StoreFolder.open(root, disk, sync=durability is Durability.FSYNC)
            lock = FolderLock(root)
            store = cls(
                folder,
                disk,
                syncer,
                lock,
                options if options is not None else StoreOptions(),
                durability,
                on_fatal,
                temporary,
            )
            store._recover()
        except OSError as error:
            await syncer.close()
            if lock is not None:
                lock.release()
            raise StartupError(str(storage_error(error, root, "open the segments"))) from error
        except StartupError:
            await syncer.close()
            if lock is not None:
                lock.release()
            raise
        return store

    def _recover(self) -> None:
        segments = load_segments(self._folder, self._disk)
        for segment in segments:
            self._segments[segment.segment_id] = segment
            if segment.sealed is not None:
                self._deleted.update(segment.sealed.tombstones)
        self._next_segment_id = segments[-1].segment_id + 1 if segments else 1
        self._activate(*self._create(self._options.segment_bytes))
        present: set[int] = set()
        for segment in segments:
            ids = segment.ledger_ids()
            present.update(ids)
            segment.live_count = sum(1 for ledger_id in ids if ledger_id not in self._deleted)
            self._reclaim_if_dead(segment)
        self._deleted &= present

    async def close(self) -> None:
        """Waits for what was appended, seals the active segment, and gives the folder back."""
        if self._closed:
            return
        self._closed = True
        if self._mark_timer is not None:
            self._mark_timer.cancel()
        if self._failure is None and (self._queue.in_flight or len(self._queue)):
            self._idle = self._loop.create_future()
            await self._idle
        await self._tasks.drain(30.0)
        await self._tasks.close()
        try:
            if self._failure is None:
                await asyncio.to_thread(self._seal_last)
        finally:
            await self._syncer.close()
            for segment in self._segments.values():
                segment.drop()
            if self._spare is not None:
                self._spare[0].drop()
                self._spare[0].path.unlink(missing_ok=True)
            self._lock.release()
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    def _seal_last(self) -> None:
        active, end = self._active, self._tail.offset
        assert active.index is not None
        if not (active.index.ledgers or active.index.tombstones):
            active.path.unlink()
            return
        try:
            seal_segment(active, self._disk, encode_footer(active.index, active.salt, end), end)
        except OSError as error:
            # The blocks are synced: the next start scans them.
            _log.warning("%s", storage_error(error, self.directory, "seal the active segment"))

    # -- appending ----------------------------------------------------------------------------

    def appender(self, ledger_id: int, sink: AppendSink) -> LedgerAppender:
        """The only appender of a ledger that has no entries yet. Raises StorageError after a failure."""
        if self._failure is not None:
            raise self._failure
        assert ledger_id not in self._appenders
        appender = LedgerAppender(self, ledger_id, sink)
        self._appenders[ledger_id] = appender
        self._indexes[ledger_id] = appender.index
        return appender

    def release(self, appender: LedgerAppender) -> None:
        """The appender appends no more; nothing of it may be pending."""
        assert appender.error is not None or appender.last_durable == appender.last_pushed
        self._appenders.pop(appender.ledger_id, None)

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a sync, headers included."""
        return self._queue.waiting_bytes + self._queue.in_flight_bytes

    def enqueue(self, block: Block) -> None:
        """Puts a block into the next group; for the store's own parts."""
        assert not self._closed
        self._queue.add(block)
        if not self._flush_scheduled and not self._queue.in_flight:
            # Not now: what the other connections of this tick bring shares the sync.
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        queue = self._queue
        if queue.in_flight or self._failure is not None or not len(queue):
            return
        group: list[Block] = []
        if not self._must_roll:
            group = queue.take(self._tail.room_bytes, self._blocks_room)
        if not group:
            try:
                self._roll(queue.first_bytes)
            except OSError as error:
                self._write_failed(error, "set aside the next segment")
                return
            group = queue.take(self._tail.room_bytes, self._blocks_room)
        tail = self._tail
        self._offsets, pieces = tail.place(group)
        try:
            self._disk.write(self._active.fd, pieces, tail.offset)
        except OSError as error:
            self._write_failed(error, "write entries")
            return
        self._syncer.sync(self._slot, self._synced)

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
        touched = self._admit(group)
        self._tail.advance(queue.in_flight_bytes, len(group))
        queue.done()
        self._commits += 1
        self._marked = group[-1].kind == Kind.MARK
        # The disk goes on before anybody is told: the callbacks run while the next group is synced.
        self._flush()
        for appender in touched:
            try:
                appender.committed()
            except Exception as failure:  # noqa: BLE001 - one listener's bug must not cost the others their mark
                self._loop.call_exception_handler(
                    {"message": f"listener of ledger {appender.ledger_id} failed", "exception": failure}
                )
        if not queue.in_flight and not len(queue):
            self._went_idle()
        self._prepare_spare()

    def _admit(self, group: list[Block]) -> list[LedgerAppender]:
        """Makes a durable group readable; returns the appenders it concerns."""
        index = self._active.index
        assert index is not None
        index.block_count += len(group)
        touched: dict[int, LedgerAppender] = {}
        for block, offset in zip(group, self._offsets, strict=True):
            ledger_id = block.ledger_id
            if block.kind == Kind.ENTRIES:
                appender = self._appenders.get(ledger_id)
                if appender is None or ledger_id in self._deleted:
                    continue
                rows = index.ledgers.get(ledger_id)
                if rows is None:
                    rows = index.rows(ledger_id)
                    appender.index.parts.append(rows)
                rows.append(block.first_entry, offset, block.size, block.entry_count, block.data_bytes)
                appender.last_durable = block.last_entry
                appender.durable_bytes += block.data_bytes
                appender.pending_bytes -= block.data_bytes
                touched[ledger_id] = appender
            elif block.kind == Kind.TOMBSTONE:
                index.tombstones.append(ledger_id)
                self._bury(ledger_id)
        return list(touched.values())

    def _went_idle(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        if not self._marked and self._mark_timer is None and not self._closed:
            self._arm_mark()

    def _arm_mark(self) -> None:
        self._mark_timer = self._loop.call_later(
            self._options.idle_mark_ms / 1000, self._mark_due, self._commits
        )

    def _mark_due(self, commits: int) -> None:
        self._mark_timer = None
        if self._failure is not None or self._closed or self._marked:
            return
        if commits != self._commits:
            self._arm_mark()
        elif not self._queue.in_flight and not len(self._queue):
            mark = mark_block()
            if mark.size <= self._tail.room_bytes and self._blocks_room > 0:
                self.enqueue(mark)

    # -- failing ------------------------------------------------------------------------------

    @property
    def failure(self) -> StorageError | None:
        """Why the store takes nothing any more; None while it works."""
        return self._failure

    def _write_failed(self, error: OSError, action: str) -> None:
        failure = storage_error(error, self.directory, action)
        if not isinstance(failure, DiskFullError):
            self._fail(failure)
            return
        # Part of the group may lie in the file. Nothing is written over it: the log goes on in a new
        # segment, whose first block says where this one ended.
        self._must_roll = True
        _log.error("%s", failure)
        self._drop_pending(failure)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _fail(self, failure: StorageError) -> None:
        _log.critical("the store stops: %s", failure)
        self._failure = failure
        self._drop_pending(failure)
        for appender in list(self._appenders.values()):
            appender.fail(failure)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        if self._on_fatal is not None:
            self._loop.call_soon(self._on_fatal, failure)

    def _drop_pending(self, failure: StorageError) -> None:
        for block in self._queue.fail():
            if block.kind == Kind.ENTRIES and (appender := self._appenders.get(block.ledger_id)) is not None:
                appender.fail(failure)
        deletions, self._deletions = self._deletions, {}
        for futures in deletions.values():
            for future in futures:
                if not future.done():
                    future.set_exception(failure)

    # -- segments -----------------------------------------------------------------------------

    def _create(self, size: int) -> tuple[SegmentFile, int]:
        segment_id = self._next_segment_id
        self._next_segment_id += 1
        salt = secrets.randbits(64)
        return create_segment(self._folder, self._disk, segment_id, salt, size), size

    def _activate(self, segment: SegmentFile, size: int) -> None:
        slot = self._syncer.attach(segment.fd)
        if self._slot >= 0:
            self._syncer.detach(self._slot)
        self._slot = slot
        self._segments[segment.segment_id] = segment
        self._active = segment
        self._tail = Tail(segment.segment_id, segment.salt, DATA_OFFSET, size)

    def _roll(self, first_bytes: int) -> None:
        """Goes on in the next segment, in which a block of `first_bytes` bytes must fit. Raises OSError."""
        old, end = self._active, self._tail.offset
        start = start_block(old.segment_id, end)
        needed = DATA_OFFSET + start.size + first_bytes
        if self._spare is not None and self._spare[1] >= needed:
            spare, self._spare = self._spare, None
        else:
            # Writing was faster than the preparation, or failed: a few milliseconds here, rarely.
            spare = self._create(max(self._options.segment_bytes, needed))
        self._activate(*spare)
        self._must_roll = False
        self._queue.add_first(start)
        self._tasks.spawn(self._seal(old, end))

    def _prepare_spare(self) -> None:
        used = self._tail.offset / self._tail.limit, self._tail.block_count / self._options.segment_blocks_max
        if max(used) < _SPARE_AT or self._spare is not None or self._preparing or self._closed:
            return
        self._preparing = True
        self._tasks.spawn(self._prepare())

    async def _prepare(self) -> None:
        try:
            spare = await asyncio.to_thread(self._create, self._options.segment_bytes)
        except OSError as error:
            _log.warning("%s", storage_error(error, self.directory, "prepare the next segment"))
            return
        finally:
            self._preparing = False
        if spare[0].segment_id < self._active.segment_id:
            # The log could not wait and went on in a later one; ids must ascend.
            spare[0].drop()
            spare[0].path.unlink(missing_ok=True)
        else:
            self._spare = spare

    async def _seal(self, segment: SegmentFile, end: int) -> None:
        index = segment.index
        assert index is not None
        footer = encode_footer(index, segment.salt, end)
        segment.pin()
        try:
            await asyncio.to_thread(seal_segment, segment, self._disk, footer, end)
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
        segment.live_count = sum(1 for i in segment.sealed.ledger_ids if i not in self._deleted)
        self._reclaim_if_dead(segment)

    # -- deleting -----------------------------------------------------------------------------

    def ledger_ids(self) -> set[int]:
        """Ledgers that are not deleted and have entries here."""
        ids = {ledger_id for segment in self._segments.values() for ledger_id in segment.ledger_ids()}
        return ids - self._deleted

    async def delete(self, ledger_id: int) -> None:
        """Deletes a ledger: durable on return; not an error when there is none. Raises StorageError."""
        if self._failure is not None:
            raise self._failure
        if (index := self._indexes.get(ledger_id)) is not None:
            index.deleted = True
        appender = self._appenders.get(ledger_id)
        if appender is not None:
            await appender.settle()
            self._appenders.pop(ledger_id, None)
        if ledger_id not in self._deleted and any(s.holds(ledger_id) for s in self._segments.values()):
            await self._write_tombstone(ledger_id)

    async def _write_tombstone(self, ledger_id: int) -> None:
        future = self._loop.create_future()
        waiting = self._deletions.setdefault(ledger_id, [])
        waiting.append(future)
        if len(waiting) == 1:
            self.enqueue(tombstone_block(ledger_id))
        await future

    def _bury(self, ledger_id: int) -> None:
        """The tombstone of a ledger is durable."""
        self._deleted.add(ledger_id)
        if (index := self._indexes.pop(ledger_id, None)) is not None:
            index.parts.clear()
        for segment in list(self._segments.values()):
            if segment.sealed is not None:
                if segment.holds(ledger_id):
                    segment.live_count -= 1
                    self._reclaim_if_dead(segment)
            elif segment.index is not None:
                segment.index.ledgers.pop(ledger_id, None)
        for future in self._deletions.pop(ledger_id, ()):
            if not future.done():
                future.set_result(None)

    def _reclaim_if_dead(self, segment: SegmentFile) -> None:
        if segment.live_count == 0 and segment.sealed is not None:
            self._tasks.spawn(self._reclaim(segment))

    async def _reclaim(self, segment: SegmentFile) -> None:
        """Deletes a segment in which no ledger lives any more."""
        if self._segments.get(segment.segment_id) is not segment or segment.sealed is None:
            return
        others = [other for other in self._segments.values() if other is not segment]
        for ledger_id in segment.sealed.tombstones:
            # Without it the blocks that lie in older segments would come back at the next start.
            if ledger_id in self._deleted and any(other.holds(ledger_id) for other in others):
                if self._closed or self._failure is not None:
                    return
                await self._write_tombstone(ledger_id)
        if self._segments.pop(segment.segment_id, None) is None:
            return
        segment.drop()
        await asyncio.to_thread(self._unlink, segment.path)
        for ledger_id in segment.sealed.ledger_ids:
            if not any(other.holds(ledger_id) for other in self._segments.values()):
                self._deleted.discard(ledger_id)

    def _unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._disk.sync_folder(path.parent)

    # -- reading ------------------------------------------------------------------------------

    async def index_of(self, ledger_id: int) -> LedgerIndex:
        """Where the ledger's blocks lie; empty when there are none. Raises CorruptDataError, StorageError."""
        index = self._indexes.get(ledger_id)
        if index is not None:
            return index
        if ledger_id in self._deleted:
            return LedgerIndex(ledger_id)
        segments = [s for s in self._segments.values() if s.holds(ledger_id)]
        for segment in segments:
            segment.pin()
        try:
            parts = [
                rows
                for s in segments
                if (rows := await asyncio.to_thread(s.load_rows, ledger_id)) is not None
            ]
        except OSError as error:
            raise storage_error(error, self.directory, "read an index") from error
        finally:
            for segment in segments:
                segment.unpin()
        return self._indexes.setdefault(ledger_id, LedgerIndex(ledger_id, parts))

    def uncertain_end(self, index: LedgerIndex) -> CorruptDataError | None:
        """Damage behind the ledger's last known entry that may have been more of it, or None."""
        ledger_id = index.ledger_id
        last = index.parts[-1] if index.parts else None
        for segment in self._segments.values():
            for damage in segment.damages:
                if damage.ledger_id != UNKNOWN_OWNER:
                    continue
                if last is not None:
                    if segment.segment_id < last.segment_id:
                        continue
                    place = last.place(len(last) - 1)
                    if segment.segment_id == last.segment_id and damage.offset < place.offset:
                        continue
                detail = "the ledger's last entries may have been here"
                return CorruptDataError(str(segment.path), damage.offset, detail, ledger_id)
        return None

    def last_lost(self, ledger_id: int) -> int:
        """Last entry of the ledger that is known to be lost to damage; -1 when none is."""
        return max(
            (
                damage.last_entry
                for segment in self._segments.values()
                for damage in segment.damages
                if damage.ledger_id == ledger_id
            ),
            default=-1,
        )

    def read_now(self, index: LedgerIndex, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        """Like `read`, but None instead of waiting for the device."""
        runs: list[EntryRun] = []
        for extent in plan(self._select(index, first, last, bytes_max)):
            segment = self._segments[extent.segment_id]
            try:
                data = self._disk.read_now(segment.fd, extent.offset, extent.length)
            except OSError as error:
                raise storage_error(error, self.directory, "read entries") from error
            if data is None:
                return trim(runs, first, last, bytes_max) if runs else None
            more, bad = decode(extent, data, index.ledger_id, segment.salt)
            runs += more
            if bad is not None:
                if not runs:
                    raise self._corrupt(segment, bad.place.offset, bad.detail, index.ledger_id)
                break
        return trim(runs, first, last, bytes_max)

    async def read(self, index: LedgerIndex, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        """Entries `first..last` of a ledger, as many as fit `bytes_max`, at least one.

        `first` must be an entry that was written. Raises CorruptDataError when it is damaged,
        StorageError when it cannot be read.
        """
        runs = self.read_now(index, first, last, bytes_max)
        if runs is not None:
            return runs
        runs = []
        for extent in plan(self._select(index, first, last, bytes_max)):
            segment = self._segments[extent.segment_id]
            segment.pin()
            try:
                data = await asyncio.to_thread(self._disk.read, segment.fd, extent.offset, extent.length)
            except OSError as error:
                raise storage_error(error, self.directory, "read entries") from error
            finally:
                segment.unpin()
            more, bad = decode(extent, data, index.ledger_id, segment.salt)
            runs += more
            if bad is not None:
                if not runs:
                    raise self._corrupt(segment, bad.place.offset, bad.detail, index.ledger_id)
                break
        return trim(runs, first, last, bytes_max)

    def _select(self, index: LedgerIndex, first: int, last: int, bytes_max: int) -> list[BlockPlace]:
        places = index.select(first, last, bytes_max)
        if not places:
            raise self._missing(index.ledger_id, first)
        return places

    def _missing(self, ledger_id: int, entry: int) -> CorruptDataError:
        """The error for an entry that was written and is in no block any more."""
        for owner in (ledger_id, UNKNOWN_OWNER):
            for segment in self._segments.values():
                for damage in segment.damages:
                    if damage.ledger_id == owner and (damage.last_entry < 0 or damage.last_entry >= entry):
                        return self._corrupt(segment, damage.offset, f"entry {entry} was here", ledger_id)
        error = CorruptDataError(str(self._folder.segments), 0, f"entry {entry} is in no segment", ledger_id)
        _log.error("%s", error)
        return error

    def _corrupt(self, segment: SegmentFile, offset: int, detail: str, ledger_id: int) -> CorruptDataError:
        error = CorruptDataError(str(segment.path), offset, detail, ledger_id)
        _log.error("%s", error)
        return error

    def check(self) -> None:
        """Walks the invariants of the queue, the active segment and the open ledgers."""
        self._queue.check()
        assert self._active.index is not None
        self._active.index.check()
        for appender in self._appenders.values():
            appender.index.check()
            assert appender.last_durable <= appender.last_pushed
            assert appender.index.last_entry <= appender.last_durable


class VolatileDisk(Disk):
    """A disk that is never waited for."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass
