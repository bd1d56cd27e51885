"""Compaction of one topic: two passes, one switch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError, MagnetarError
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.broker.compaction.codec import encode
from magnetar.broker.compaction.compacted_view import CompactedView
from magnetar.broker.compaction.grouping import SurvivorGroup
from magnetar.broker.compaction.job import CompactionJob, CompactionStatus
from magnetar.broker.compaction.named import COMPACTION_CURSOR, NamedLedger
from magnetar.broker.compaction.stored import CompactedLedger
from magnetar.broker.compaction.survivors import Survivors, is_heavy, last_index
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.topic.any_topic import ReaderStart
from magnetar.ledger.api import LedgerWriter, NoSuchLedgerError
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.cursors.cursor_ledgers import CursorLedgers
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.visible_reading import last_visible_entry
from magnetar.runtime.tasks import yield_loop
from magnetar.runtime.threads import in_turn

_log = logging.getLogger("magnetar.broker.compaction")

_READ_BYTES: Final = 1 << 20
_READ_ENTRIES: Final = 1_000
"""Read at a time."""
_MESSAGES_PER_TURN: Final = 100
"""Messages processed before other tasks run: half a millisecond."""
_APPEND_BYTES: Final = 64 << 10
"""Appended to the compacted ledger at a time, where survivors are neighbours."""
_PENDING_BYTES_MAX: Final = 4 << 20
"""Written and not durable yet; above it the second pass waits."""


class _Pace:
    """Lets the second pass wait for the ledger (WriterListener)."""

    def __init__(self) -> None:
        self._moved = asyncio.Event()
        self._error: LedgerError | None = None

    def durable(self, last_entry: int) -> None:
        self._moved.set()

    def failed(self, error: LedgerError) -> None:
        self._error = error
        self._moved.set()

    async def wait(self, writer: LedgerWriter) -> None:
        """Until little is under way. Raises LedgerError."""
        while writer.pending_bytes > _PENDING_BYTES_MAX and self._error is None:
            self._moved.clear()
            await self._moved.wait()
        if self._error is not None:
            raise self._error


class TopicCompaction:
    """Compacts a topic and reads what is compacted."""

    def __init__(
        self,
        topic: TopicName,
        log: ManagedLog,
        *,
        clock: Clock,
        spawn: Callable[[Coroutine[object, object, object]], None],
        closed: Callable[[], bool],
    ) -> None:
        self.job = CompactionJob(str(topic))
        """When it is compacted, and what came of it."""
        self._topic = topic
        self._topic_log = log
        self._clock = clock
        self._spawn = spawn
        self._closed = closed
        self._stored: CompactedLedger | None = None

    # -- what is compacted -------------------------------------------------------------------------

    @property
    def stored(self) -> CompactedLedger | None:
        """The compacted ledger; None before the first compaction."""
        return self._stored

    @property
    def horizon(self) -> Position:
        """The last entry of the log that was compacted; EARLIEST before the first compaction."""
        return self.job.horizon

    @property
    def status(self) -> CompactionStatus:
        """How the last compaction went, or that one runs."""
        return self.job.status

    @property
    def error(self) -> str:
        """Why the last compaction failed; empty when it did not."""
        return self.job.error

    def covers(self, position: Position) -> bool:
        """Whether the compacted ledger stands for the log here."""
        return self._stored is not None and position <= self.horizon

    def view(self) -> CompactedView:
        """Compacted ledger and log as one."""
        return CompactedView(self._topic_log, self)

    async def begin_of(self, start: ReaderStart) -> Position:
        """The first entry that a reader of the view wants. Raises LedgerError, CorruptDataError."""
        if start.since_ms is None or self._stored is None:
            return start.position
        return await self.view().position_of_time(start.since_ms)

    async def load(self) -> None:
        """Opens what an earlier process compacted, and deletes what it left unfinished.

        Raises LedgerError, MetadataError, LogError.
        """
        cursor = self._topic_log.cursors.get(COMPACTION_CURSOR)
        if cursor is None:
            return
        side = self._side(cursor)
        named = NamedLedger.of(cursor.properties, cursor.mark_delete)
        if named is not None:
            # Until loading ends the topic belongs to its flight: no other task reads or compacts.
            self._stored = CompactedLedger(await side.open(named.ledger_id))
            self.job.loaded(named.horizon)
            cursor.ack_cumulative(named.horizon)
        kept = None if named is None else named.ledger_id
        await side.drop(tuple(known for known in side.ids if known != kept))

    @staticmethod
    def _side(cursor: Cursor) -> CursorLedgers:
        assert cursor.ledgers is not None, "the cursor is durable"
        return cursor.ledgers

    async def read(
        self, position: Position, bytes_max: int, entries_max: int
    ) -> tuple[list[EntryRun], Position]:
        """Compacted entries from `position` on, and the horizon that they belong to."""
        while True:
            stored, horizon = self._stored, self.horizon
            assert stored is not None
            try:
                return await stored.read(position, bytes_max, entries_max), horizon
            except NoSuchLedgerError:
                # Read in the old ledger, switched, the old one deleted: the new one has the answer.
                if stored is self._stored:
                    raise

    async def position_of_time(self, publish_ms: int) -> Position | None:
        """The first compacted entry of that time or later; None when there is none."""
        return None if self._stored is None else await self._stored.position_of_time(publish_ms)

    async def last_message(self) -> tuple[Position, int] | None:
        """See `CompactedView.last_message`."""
        last = last_visible_entry(self._topic_log)
        if self._stored is None or (last is not None and last > self.horizon):
            return None
        run = await self._stored.last()
        if run is None:
            return EARLIEST, -1
        return Position(run.ledger_id, run.first_entry), last_index(run.entries[0])

    # -- compacting --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins a compaction in the background. Raises ConflictError while one runs."""
        self.job.begin(self._topic, self._clock.monotonic_ms())
        self._spawn(self._run())

    async def start_if_due(self) -> None:
        """Begins one when enough was published since the last. Raises MetadataError, LogError."""
        if not self.job.threshold_bytes or not self._may_start():
            return
        # From now on what is not compacted is not trimmed.
        await self._open_cursor()
        # Meanwhile an admin call, changed policies or the round may have begun one, or the topic be unloaded.
        if not self._may_start():
            return
        log = self._topic_log
        new_entries = log.entries_between(self.horizon, log.last_position)
        if self.job.is_due(new_entries=new_entries, log_bytes=log.size_bytes, log_entries=log.entry_count):
            self.start()

    def _may_start(self) -> bool:
        return not self.job.running and not self._closed()

    async def _open_cursor(self) -> Cursor:
        return await self._topic_log.open_cursor(COMPACTION_CURSOR, initial="earliest")

    async def _run(self) -> None:
        job, clock = self.job, self._clock
        try:
            await self._compact()
        except MagnetarError as error:
            job.fail(str(error) or repr(error), clock.now_ms(), clock.monotonic_ms())
            _log.warning("%s: compaction failed, the previous result stays in force: %s", self._topic, error)
        except BaseException as error:
            job.fail(repr(error), clock.now_ms(), clock.monotonic_ms())
            raise
        else:
            job.succeed(clock.now_ms(), clock.monotonic_ms())

    async def _compact(self) -> None:
        cursor = await self._open_cursor()
        # Messages whose transaction may still abort are left to the next round.
        horizon = self.job.next_horizon(last_visible_entry(self._topic_log))
        if horizon is None:
            return
        survivors = Survivors(retain_null_key=self.job.retain_null_key)
        async for position, run, offset in self._entries(horizon):
            entry = run.entries[offset]
            if is_heavy(entry):
                await in_turn(partial(survivors.see, position, entry))
            else:
                survivors.see(position, entry)
        side = self._side(cursor)
        pace = _Pace()
        writer = await side.begin(pace)
        try:
            removed = await self._write(survivors, horizon, writer, pace)
            await writer.close()
            reader = await side.open(writer.ledger_id)
        except BaseException:
            await side.drop((writer.ledger_id,))
            raise
        # From here on the cursor may name the ledger: whatever fails, only loading may delete it. The
        # mark-delete follows once the cursor is durable: it lets the log be trimmed, and after a crash in
        # between the old view would end before the log begins.
        cursor.set_properties(NamedLedger(writer.ledger_id, horizon).properties())
        await cursor.flush()
        cursor.ack_cumulative(horizon)
        # No other task switches: one compaction runs at a time, which `job` ensures.
        old, self._stored = self._stored, CompactedLedger(reader)
        self.job.switched(horizon, removed)
        if old is not None:
            await side.drop((old.ledger_id,))

    async def _write(self, survivors: Survivors, horizon: Position, writer: LedgerWriter, pace: _Pace) -> int:
        removed = 0
        group = SurvivorGroup(writer.append)
        async for position, run, offset in self._entries(horizon):
            stored = run.entries[offset]
            if is_heavy(stored):
                entry = await in_turn(partial(survivors.keep, position, stored))
            else:
                entry = survivors.keep(position, stored)
            if entry is None:
                removed += 1
            else:
                group.add(run, offset, encode(position, self._topic.partition, entry))
                if group.size_bytes >= _APPEND_BYTES:
                    group.end()
                    await pace.wait(writer)
        group.end()
        await pace.wait(writer)
        return removed

    async def _entries(self, horizon: Position) -> AsyncIterator[tuple[Position, EntryRun, int]]:
        """The compacted entries and the log after them, up to the horizon: place, run, offset in it."""
        view = self.view()
        position = EARLIEST
        turn = _MESSAGES_PER_TURN
        while position <= horizon:
            runs = await view.read(position, _READ_BYTES, _READ_ENTRIES)
            if self._closed():
                raise ServiceNotReadyError(f"{self._topic} is being unloaded")
            for run in runs:
                for offset in range(len(run.entries)):
                    place = Position(run.ledger_id, run.first_entry + offset)
                    if place > horizon:
                        return
                    yield place, run, offset
                    turn -= run.count_of(offset)
                    if turn <= 0:
                        turn = _MESSAGES_PER_TURN
                        await yield_loop()
            if not runs:
                return
            position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)
            await yield_loop()

    def check(self) -> None:
        """Asserts what must always hold."""
        self.job.check()
        assert (self._stored is None) == (self.horizon == EARLIEST), "a horizon without a ledger"
