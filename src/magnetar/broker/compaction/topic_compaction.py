"""Compaction of one topic: two passes, one switch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError, MagnetarError
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.broker.compaction.codec import encode
from magnetar.broker.compaction.stored import CompactedLedger
from magnetar.broker.compaction.survivors import Survivors, is_heavy, last_index
from magnetar.broker.compaction.view import CompactedView
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import ConflictError, ServiceNotReadyError
from magnetar.broker.topic.any_topic import ReaderStart
from magnetar.ledger.api import LedgerWriter, NoSuchLedgerError
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.cursors.cursor_ledgers import CursorLedgers
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.visible_reading import last_visible_entry
from magnetar.runtime.tasks import yield_loop
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.broker.compaction")

COMPACTION_CURSOR: Final = "__compaction"
"""Cursor that holds horizon and compacted ledger (Pulsar's name)."""
LEDGER_PROPERTY: Final = "CompactedTopicLedger"
"""Its property with the id of the compacted ledger (Pulsar's name)."""
_HORIZON_LEDGER: Final = "CompactionHorizonLedger"
_HORIZON_ENTRY: Final = "CompactionHorizonEntry"
THRESHOLD_POLICY: Final = "compaction_threshold"
"""Key of the policy of a namespace or topic: bytes since the horizon that begin a compaction; 0: never."""

_READ_BYTES: Final = 1 << 20
_READ_ENTRIES: Final = 1_000
"""Read at a time."""
_MESSAGES_PER_TURN: Final = 100
"""Looked at before the loop's other work gets its turn: half a millisecond."""
_APPEND_BYTES: Final = 64 << 10
"""Appended to the compacted ledger at a time, where survivors are neighbours."""
_PENDING_BYTES_MAX: Final = 4 << 20
"""Written and not durable yet; above it the second pass waits."""


class Status(Enum):
    """How the last compaction went, in Pulsar's words (LongRunningProcessStatus)."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


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


class _Group:
    """Survivors that are appended together: neighbours in one run, so that their indexes need no telling."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.size_bytes = 0
        self._writer = writer
        self._run: EntryRun | None = None
        self._offset = 0
        """Of the next entry of the run, whose message has the index `_index`."""
        self._index = 0
        self._first_index = 0
        self._entries: list[bytes] = []
        self._counts: list[int] = []

    def add(self, run: EntryRun, offset: int, stored: bytes) -> None:
        """Takes the next survivor, the entry at `offset` of `run`."""
        if run is not self._run or offset != self._offset:
            self.write()
            if run is not self._run:
                self._run, self._offset, self._index = run, 0, run.base_index
            skipped = range(self._offset, offset)
            self._index += len(skipped) if run.counts is None else sum(run.counts[self._offset : offset])
            self._first_index = self._index
        count = run.count_of(offset)
        self._entries.append(stored)
        self._counts.append(count)
        self._offset, self._index = offset + 1, self._index + count
        self.size_bytes += len(stored)

    def write(self) -> None:
        """Appends what is there. Raises LedgerError."""
        run = self._run
        if run is None or not self._entries:
            return
        counts = None if run.counts is None else self._counts
        self._writer.append(self._entries, counts, self._first_index, run.broker_time_ms)
        self._entries, self._counts, self.size_bytes = [], [], 0
        self._first_index = self._index


class TopicCompaction:
    """Compacts a topic and reads what is compacted."""

    def __init__(
        self,
        topic: TopicName,
        log: ManagedLog,
        *,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        closed: Callable[[], bool],
    ) -> None:
        self.threshold_bytes = 0
        """Bytes after the horizon that begin a compaction; 0: only on demand."""
        self.retain_null_key = False
        """Whether messages without a key are kept."""
        self.status = Status.NOT_RUN
        self.error = ""
        """Why the last compaction failed."""
        self.removed_messages = 0
        """Entries that the last compaction left out."""
        self.succeeded_ms = 0
        """When the last compaction that succeeded ended, Unix ms; 0: none since loading."""
        self.failed_ms = 0
        self.duration_ms = 0
        self._topic = topic
        self._topic_log = log
        self._clock = clock
        self._spawn = spawn
        self._closed = closed
        self._stored: CompactedLedger | None = None
        self._horizon = EARLIEST

    # -- what is compacted -------------------------------------------------------------------------

    @property
    def stored(self) -> CompactedLedger | None:
        """The compacted ledger; None before the first compaction."""
        return self._stored

    @property
    def horizon(self) -> Position:
        """The last entry of the log that was compacted."""
        return self._horizon

    def covers(self, position: Position) -> bool:
        """Whether the compacted ledger stands for the log here."""
        return self._stored is not None and position <= self._horizon

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
        ledger_id = cursor.properties.get(LEDGER_PROPERTY)
        if ledger_id is not None:
            self._stored = CompactedLedger(await side.open(ledger_id))
            properties = cursor.properties
            self._horizon = Position(
                properties.get(_HORIZON_LEDGER, cursor.mark_delete.ledger_id),
                properties.get(_HORIZON_ENTRY, cursor.mark_delete.entry_id),
            )
            cursor.ack_cumulative(self._horizon)
        await side.drop(tuple(known for known in side.ids if known != ledger_id))

    @staticmethod
    def _side(cursor: Cursor) -> CursorLedgers:
        assert cursor.ledgers is not None, "the cursor is durable"
        return cursor.ledgers

    async def read(
        self, position: Position, bytes_max: int, entries_max: int
    ) -> tuple[list[EntryRun], Position]:
        """Compacted entries from `position` on, and the horizon that they belong to."""
        while True:
            stored, horizon = self._stored, self._horizon
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
        if self._stored is None or (last is not None and last > self._horizon):
            return None
        run = await self._stored.last()
        if run is None:
            return EARLIEST, -1
        return Position(run.ledger_id, run.first_entry), last_index(run.entries[0])

    def apply(
        self, config: BrokerConfig, topic_policies: Mapping[str, Any], namespace_policies: Mapping[str, Any]
    ) -> None:
        """What is in force now."""
        default = namespace_policies.get(THRESHOLD_POLICY, config.compaction_threshold_bytes)
        self.threshold_bytes = int(topic_policies.get(THRESHOLD_POLICY, default) or 0)
        self.retain_null_key = config.compaction_retain_null_key

    # -- compacting --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins a compaction in the background. Raises ConflictError while one runs."""
        if self.status is Status.RUNNING:
            raise ConflictError(f"compaction of {self._topic} is already in progress")
        self.status = Status.RUNNING
        self._spawn(self._run())

    async def start_if_due(self) -> None:
        """Begins one when enough was published since the last. Raises MetadataError, LogError."""
        if not self.threshold_bytes or not self._may_start():
            return
        # From now on what is not compacted is not trimmed.
        await self._open_cursor()
        # Meanwhile an admin call, changed policies or the round may have begun one, or the topic be unloaded.
        if not self._may_start():
            return
        log = self._topic_log
        new = log.entries_between(self._horizon, log.last_position)
        if new and log.size_bytes * new >= self.threshold_bytes * max(log.entry_count, 1):
            self.start()

    def _may_start(self) -> bool:
        return self.status is not Status.RUNNING and not self._closed()

    async def _open_cursor(self) -> Cursor:
        return await self._topic_log.open_cursor(COMPACTION_CURSOR, initial="earliest")

    async def _run(self) -> None:
        began_ms = self._clock.monotonic_ms()
        try:
            await self._compact()
        except MagnetarError as error:
            self.status, self.error, self.failed_ms = Status.ERROR, str(error), self._clock.now_ms()
            _log.warning("%s: compaction failed, the previous result stays in force: %s", self._topic, error)
        except BaseException as error:
            self.status, self.error, self.failed_ms = Status.ERROR, repr(error), self._clock.now_ms()
            raise
        else:
            self.status, self.error, self.succeeded_ms = Status.SUCCESS, "", self._clock.now_ms()
        self.duration_ms = int(self._clock.monotonic_ms() - began_ms)

    async def _compact(self) -> None:
        cursor = await self._open_cursor()
        # What a transaction may still abort is left to the next round.
        horizon = last_visible_entry(self._topic_log)
        if horizon is None or (self._stored is not None and horizon <= self._horizon):
            return
        survivors = Survivors(retain_null_key=self.retain_null_key)
        async for position, run, offset in self._entries(horizon):
            entry = run.entries[offset]
            if is_heavy(entry):
                await in_thread(partial(survivors.see, position, entry))
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
        # From here on the ledger may be what the cursor names: whatever fails, only loading may delete it.
        # The mark-delete follows once that is durable: it lets the log be trimmed, and after a crash in
        # between the old view would end where the log does not yet begin.
        cursor.set_properties(
            {
                LEDGER_PROPERTY: writer.ledger_id,
                _HORIZON_LEDGER: horizon.ledger_id,
                _HORIZON_ENTRY: horizon.entry_id,
            }
        )
        await cursor.flush()
        cursor.ack_cumulative(horizon)
        old, self._stored = self._stored, CompactedLedger(reader)
        self._horizon = horizon
        self.removed_messages = removed
        if old is not None:
            await side.drop((old.ledger_id,))

    async def _write(self, survivors: Survivors, horizon: Position, writer: LedgerWriter, pace: _Pace) -> int:
        removed = 0
        group = _Group(writer)
        async for position, run, offset in self._entries(horizon):
            stored = run.entries[offset]
            if is_heavy(stored):
                entry = await in_thread(partial(survivors.keep, position, stored))
            else:
                entry = survivors.keep(position, stored)
            if entry is None:
                removed += 1
            else:
                group.add(run, offset, encode(position, self._topic.partition, entry))
                if group.size_bytes >= _APPEND_BYTES:
                    group.write()
                    await pace.wait(writer)
        group.write()
        await pace.wait(writer)
        return removed

    async def _entries(self, horizon: Position) -> AsyncIterator[tuple[Position, EntryRun, int]]:
        """What is compacted already and the log after it, up to the horizon: place, run, offset in it."""
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
