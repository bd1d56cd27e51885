"""A managed log: one topic's entries in as many ledgers as necessary, and its cursors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError, LogError, MagnetarError
from magnetar.base.ids import LATEST, Position
from magnetar.ledger.api import Copies, LedgerClosedError, LedgerFencedError, LedgerWriteError
from magnetar.managedlog import visible_reading
from magnetar.managedlog.appender import Appender
from magnetar.managedlog.broker_times import BrokerTimes
from magnetar.managedlog.config import Retention
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.cursors.cursor_state import CursorState
from magnetar.managedlog.errors import LogClosedError, LogFencedError
from magnetar.managedlog.info import LogInfo, describe_cursors, describe_ledger
from magnetar.managedlog.lifecycle import LedgerLifecycle
from magnetar.managedlog.listener import LogListener
from magnetar.managedlog.log_life import LogLife
from magnetar.managedlog.log_metadata import LogMetadata
from magnetar.managedlog.log_places import LogPlaces
from magnetar.managedlog.log_state import LogState
from magnetar.managedlog.parts import LogParts
from magnetar.managedlog.resources import LogResources


class ManagedLog(LogPlaces):
    """An append-only sequence of entries with durable cursors. See `ManagedLogs.open`."""

    def __init__(
        self,
        *,
        parts: LogParts,
        resources: LogResources,
        found: LogMetadata,
        closed: Callable[[ManagedLog], None],
    ) -> None:
        """`found`: what the log had when it was recovered; `closed` is called when it has ended."""
        stored, ledgers, reading = parts.stored, parts.ledgers, parts.reading
        self.listener: LogListener | None = None
        self._name, self.stored = stored.name, stored
        self._ledgers = ledgers
        self.reading = reading
        self._cache = parts.cache
        self._cursors = cursors = parts.cursors
        self._life = LogLife(stored.name, terminated=stored.metadata.terminated is not None)
        self._appender = Appender(
            ledgers=ledgers,
            cache=parts.cache,
            times=BrokerTimes(resources.clock, ledgers, found.last_broker_time_ms, stored.name),
            next_index=found.next_index,
            appended=self._appended,
            drained=lambda feed: self._lifecycle.drained(feed),
            failed=self._writer_failed,
        )
        self.believed_ms = self._appender.times.believed
        self._lifecycle = LedgerLifecycle(
            parts=parts,
            resources=resources,
            appender=self._appender,
            mark_deletes=lambda: visible_reading.kept_from(cursors.by_name.values(), reading, ledgers),
            fenced=self.fence,
        )
        self.offloading = parts.offloading
        """Its ledgers from the point of view of tiered storage."""
        self.offloading.belong_to(self, self._lifecycle.leave)
        self.has_room = resources.ledgers.has_room
        """Whether a log that failed on a full disk could be written after being opened again."""
        self._clock = resources.clock
        self._closed = closed

    def __repr__(self) -> str:
        return f"ManagedLog({self._name!r}, {self.state.value}, last={self.last_position})"

    # Properties and statistics

    @property
    def name(self) -> str:
        """`tenant/namespace/persistent/<encoded topic>`."""
        return self._name

    @property
    def state(self) -> LogState:
        """The operations that the log allows now."""
        return self._life.now

    @property
    def error(self) -> LogError | None:
        """Why the log refuses writes; None while it accepts them."""
        return self._life.error

    @property
    def properties(self) -> Mapping[str, str]:
        """The topic's stored properties."""
        return self.stored.metadata.properties

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replaces the properties; durable on return. Raises LogFencedError, MetadataError."""
        await self.update_properties(lambda _: properties)

    async def update_properties(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Stores the result of `change` as the properties, atomically. Durable on return.

        Raises LogFencedError, MetadataError.
        """
        await self._update(lambda metadata: replace(metadata, properties=dict(change(metadata.properties))))

    async def _update(self, change: Callable[[LogMetadata], LogMetadata]) -> None:
        try:
            await self.stored.update(change)
        except LogFencedError as error:
            self.fence(error)
            raise

    @property
    def retention(self) -> Retention:
        """How long consumed ledgers are kept; may be set at any time."""
        return self._lifecycle.retention

    @retention.setter
    def retention(self, retention: Retention) -> None:
        before, self._lifecycle.retention = self._lifecycle.retention, retention
        if retention != before and len(self._ledgers) > 1:
            self._lifecycle.trim_soon()

    def set_copies(self, copies: Copies | None) -> None:
        """How many bookies hold new ledgers, from the next append on; None: the process's default."""
        self._lifecycle.rollover.copies = copies

    @property
    def pending_bytes(self) -> int:
        """Bytes of appended entries that are not durable yet."""
        return self._appender.pending_bytes

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable cursors by name."""
        return self._cursors.by_name

    # Appending

    def append(self, entries: list[bytes], counts: list[int] | None = None) -> Position:
        """Appends entries, at least one, and returns the position of the first; never waits.

        All get consecutive ids in one ledger, and one broker time. `counts` are messages per entry, None when
        each entry is one message. The caller must not change the lists any more. The listener is told when
        they are durable. Raises LogClosedError, LogFailedError, LogFencedError, LogTerminatedError; after
        LogFailedError the listener has been told as well.
        """
        if self._life.now is not LogState.OPEN:
            raise self._life.refusal()
        try:
            position = self._appender.append(entries, counts)
        except LedgerError as error:
            self._appender.fail(error)
            raise self._life.refusal() from error
        self._lifecycle.roll_if_due(self._appender.clock_ms)
        return position

    def _appended(self, run: EntryRun) -> None:
        if self.listener is not None:
            self.listener.appended(run)

    def _writer_failed(self, cause: LedgerError) -> None:
        error = self._life.writer_failed(cause)
        if self.listener is not None:
            self.listener.failed(error)

    def fence(self, error: LogFencedError) -> None:
        """Another owner has the log: nothing more is written, and no open append is reported durable."""
        if self._life.fence(error):
            self._appender.fail(LedgerFencedError(str(error)))

    # Cursors

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Literal["earliest", "latest"] | Position,
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> Cursor:
        """The durable cursor of that name; created, durably, when there is none.

        `initial`: where a new cursor begins; a Position is the last entry not to deliver. `properties` and
        `cursor_properties` are those of a new one. Raises MetadataError, LogFencedError, LogClosedError.
        """
        if self.state in (LogState.CLOSING, LogState.CLOSED):
            raise self._life.refusal()
        mark_delete = self._ledgers.previous_position(self.first_position)
        if initial != "earliest":
            mark_delete = self._existing(LATEST if initial == "latest" else initial)
        return await self._cursors.open(name, mark_delete, properties or {}, cursor_properties or {})

    def new_reader_cursor(self, start_after: Position) -> Cursor:
        """A cursor in memory only, which does not hold back trimming; it delivers the entries after
        `start_after`."""
        return Cursor(
            name="",
            state=CursorState(self._ledgers, self._existing(start_after)),
            ledgers=self._ledgers,
            store=None,
            advanced=lambda position: None,
        )

    def _existing(self, start_after: Position) -> Position:
        """A valid mark-delete for a client's position: at most the last durable entry."""
        last = self.last_position
        if start_after >= last:
            return last
        return self._ledgers.previous_position(self._ledgers.next_position(start_after))

    async def delete_cursor(self, name: str) -> None:
        """Removes a durable cursor. Raises CursorNotFoundError, MetadataError."""
        await self._cursors.delete(name)
        if len(self._ledgers) > 1:
            self._lifecycle.trim_soon()

    # Life

    async def start(self, recovered: Callable[[LogMetadata], LogMetadata]) -> None:
        """Takes over the log: recovers its cursors, and creates a ledger unless it is terminated. The list is
        changed by version in any case: each owner has a higher one than all before it. Called once.

        Raises LedgerError, MetadataError, StorageError, LogFencedError, InvalidLogDataError.
        """
        await self._cursors.recover(self._lifecycle.cursor_advanced, self.fence, is_new=self.stored.is_new)
        if self.state is LogState.OPEN:
            await self._lifecycle.begin(recovered)
        else:
            await self.stored.update(recovered)
        self._cursors.settle()

    async def terminate(self) -> Position:
        """Terminates the log once all appends are durable; returns its last position.

        Raises LogClosedError, LogFailedError, LogFencedError, MetadataError.
        """
        if (known := self.terminated) is not None:
            return known
        if self.state is not LogState.OPEN:
            raise self._life.refusal()
        self._life.terminate()
        # From here on appends are refused; the log may be closed, fail or be taken over meanwhile.
        last = self.last_position

        def ended(metadata: LogMetadata) -> LogMetadata:
            nonlocal last
            last = self._ledgers.previous_position(LATEST)
            return replace(metadata, terminated=last)

        try:
            await self._lifecycle.stop(ended)
        except LogFencedError as error:
            self.fence(error)
            raise
        except MagnetarError as error:
            # Whether the end was stored is unknown: the next opening of the log finds out.
            self._appender.fail(LedgerWriteError(f"the end could not be stored: {error}"))
            raise
        return last

    async def trim(self) -> int:
        """Ends a ledger that is too old, and deletes consumed ledgers that are not retained; returns their
        number.

        To be called regularly. Raises LedgerError, LogFencedError, MetadataError.
        """
        if self.state is LogState.OPEN:
            self._lifecycle.roll_if_due(self._clock.now_ms())
        try:
            return await self._lifecycle.trim()
        except LogFencedError as error:
            self.fence(error)
            raise

    async def close(self) -> None:
        """Waits until all appends are durable, makes the cursors durable, and seals the log.

        Raises the first error; the log is closed all the same, and reported entries are safe: the next
        opening recovers them. A call during another one waits for its end.
        """
        async with self._lifecycle.ending:
            if self.state is LogState.CLOSED:
                return
            self._life.close("another caller closes it")
            # Meanwhile the writer may fail or another owner be found; no other task ends the log.
            errors: list[MagnetarError] = []
            try:
                await (self._lifecycle.stop() if self.error is None else self._lifecycle.abandon())
            except LogFencedError as error:
                self.fence(error)
                errors.append(error)
            except MagnetarError as error:
                errors.append(error)
            try:
                # This owner must not overwrite state that another owner has read.
                if isinstance(self.error, LogFencedError):
                    self._cursors.abandon()
                else:
                    await self._cursors.close()
            except MagnetarError as error:
                errors.append(error)
            await self._end()
            if errors:
                raise errors[0]

    async def abandon(self) -> None:
        """Ends the log without writing, before its deletion. Appends that are not durable are reported as
        failed."""
        async with self._lifecycle.ending:
            if self.state is LogState.CLOSED:
                return
            self._life.close("it is deleted", LogClosedError(f"log {self._name} was deleted"))
            self._appender.fail(LedgerClosedError(f"log {self._name} was deleted"))
            self._cursors.abandon()
            await self._lifecycle.abandon()
            # The deletion reads next which ledgers the cursors name: none may name others after that.
            await self._cursors.abandoned()
            await self._end()

    async def _end(self) -> None:
        await self.stored.settled()
        self.listener = None
        self._life.closed()
        self._cache.clear()
        self._closed(self)
        self._lifecycle.end()
        self._cursors.end()

    def info(self) -> LogInfo:
        """A snapshot of the statistics."""
        ledgers, current = self._ledgers, self._appender.current
        return LogInfo(
            name=self._name,
            state=self.state.value,
            entries_added=self._appender.entries_added,
            entries=ledgers.entry_count,
            size_bytes=ledgers.size_bytes,
            pending_bytes=self.pending_bytes,
            cached_bytes=self._cache.size_bytes,
            current_ledger_entries=0 if current is None else current.ledger.entries,
            current_ledger_bytes=0 if current is None else current.ledger.size_bytes,
            last_position=self.last_position,
            next_index=self.next_index,
            terminated=self.terminated,
            ledgers=tuple(map(describe_ledger, ledgers)),
            cursors=describe_cursors(self._cursors.by_name, self._cursors.damaged),
            properties=self.properties,
            created_ms=self.stored.created_ms,
        )

    def check(self) -> None:
        """Asserts the invariants."""
        self._ledgers.check()
        self._appender.check()
        self._cache.check()
        self._cursors.check()
        self._lifecycle.check()
        self._life.check()
        assert (self.error is None) == (self._appender.error is None)
        if self.state is LogState.OPEN and not self._lifecycle.rollover.beginning:
            assert self._appender.current is not None
            assert self._ledgers[len(self._ledgers) - 1] is self._appender.current.ledger
