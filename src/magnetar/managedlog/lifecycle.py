"""The ledgers of a log from creation to deletion: rollover, sealing, trimming, closing.

One change at a time. The stored list always changes first in the safe direction: a ledger is in the list
before it takes entries, and out of it before it is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.base.weak import nobody
from magnetar.managedlog import retention as retention_rules
from magnetar.managedlog.appender import Appender, LedgerFeed
from magnetar.managedlog.config import Retention
from magnetar.managedlog.errors import LogFailedError, LogFencedError
from magnetar.managedlog.ledger_list import Ledger
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata
from magnetar.managedlog.log_state import LedgersState
from magnetar.managedlog.parts import LogParts
from magnetar.managedlog.resources import LogResources
from magnetar.managedlog.rollover import Rollover

_log = logging.getLogger("magnetar.managedlog")


def _unchanged(metadata: LogMetadata) -> LogMetadata:
    return metadata


class LedgerLifecycle:
    """Changes the list of ledgers, in the store and in memory."""

    def __init__(
        self,
        *,
        parts: LogParts,
        resources: LogResources,
        appender: Appender,
        mark_deletes: Callable[[], Iterable[Position]],
        fenced: Callable[[LogFencedError], None],
    ) -> None:
        """`mark_deletes` returns the durable cursors' mark-deletes; `fenced` is called when another owner is
        found."""
        self.retention: Retention = resources.config.retention
        self.ending = asyncio.Lock()
        """Held while the log is closed, so that a second closing call waits for the end."""
        self._stored = parts.stored
        self._ledgers = parts.ledgers
        self._reading = parts.reading
        self._offloading = parts.offloading
        self._source = resources.ledgers
        self._rules = resources.config.rules
        self._clock = resources.clock
        self._spawn = resources.spawn
        self._appender = appender
        self._mark_deletes = mark_deletes
        self._fenced = fenced
        self._lock = asyncio.Lock()
        self._left: list[LedgerFeed] = []
        # Created, and perhaps not in the stored list because storing it failed.
        self._unlisted: list[LedgerId] = []
        self.rollover = Rollover(parts.stored.name, appender, resources.config)
        """When the next ledger begins, and on how many bookies."""
        self._trim_wanted = False

    @property
    def _stopped(self) -> bool:
        return self.rollover.stopped

    # Creation and rollover

    async def _create(self) -> LedgerFeed:
        feed = LedgerFeed(self._appender)
        feed.copies = copies = self.rollover.copies
        tags = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": self._stored.name.encode(),
        }
        feed.writer = await self._source.create(feed, tags, copies)
        feed.ledger = Ledger(feed.writer.ledger_id, 0, created_ms=self._clock.now_ms())
        return feed

    async def begin(self, recovered: Callable[[LogMetadata], LogMetadata]) -> None:
        """Creates the first ledger of this owner; stores it with the results of recovery, in one write.

        Raises LedgerError, LogFencedError, MetadataError.
        """
        # No other task has the log before this returns.
        async with self._lock:
            feed = await self._create()
            record = LedgerRecord(feed.ledger.ledger_id, base_index=self._appender.next_index)
            storing = self._stored.update(lambda metadata: recovered(metadata).adding(record))
            await self._rules.listed(storing, is_first=True)
            if feed.error is not None:
                raise feed.error
            self._go_on_in(feed)

    def _go_on_in(self, feed: LedgerFeed) -> None:
        left = self._appender.current
        assert not feed.next_entry, "a ledger takes entries only once it is in use"
        assert left is None or left.ledger.ledger_id < feed.ledger.ledger_id, "ledger ids only grow"
        if left is not None:
            self._left.append(left)
        self._reading.use(feed.writer)
        self._appender.switch(feed, holds=self._rules.holds_while_draining())
        self.rollover.used(feed)

    def roll_if_due(self, now_ms: int) -> None:
        """Begins a new ledger in the background when the current one is full or old. To be called at each
        append."""
        if self.rollover.is_due(now_ms):
            self._begin_roll()

    def leave(self) -> None:
        """Begins a new ledger in the background when the current one is not empty, however new it is."""
        feed = self._appender.current
        if feed is not None and feed.next_entry:
            self._begin_roll()

    def _begin_roll(self) -> None:
        if self.rollover.begin(self._clock.monotonic_ms()):
            self._spawn(self._roll())

    async def _roll(self) -> None:
        try:
            # Appends go on in the present ledger, and the log may be stopped meanwhile, or lose its writer.
            # State and lock keep other tasks from beginning a ledger.
            async with self._lock:
                await self._go_on_in_another()
        except LogFencedError as error:
            self._fenced(error)
        except Exception as error:
            # Unexpected errors too: otherwise each append would try again at once.
            self.rollover.failed(self._clock.monotonic_ms())
            if not isinstance(error, MagnetarError):
                raise
            _log.warning("log %s stays in its ledger: %s", self._stored.name, error)
        finally:
            self.rollover.over()

    async def _go_on_in_another(self) -> None:
        """Creates a ledger, and goes on in it once it is in the stored list. Under the lock."""
        feed = await self._create()
        record = LedgerRecord(feed.ledger.ledger_id)
        self._unlisted.append(record.ledger_id)
        is_stored = False
        try:
            storing = self._stored.update(lambda metadata: metadata.adding(record))
            await self._rules.listed(storing, is_first=False)
            is_stored = True
            self._unlisted.remove(record.ledger_id)
            if feed.error is not None:
                raise feed.error
            if not self._stopped and self._appender.error is None:
                self._go_on_in(feed)
        finally:
            for ledger_id in self._rules.surely_unlisted(tuple(self._unlisted), is_stored=is_stored):
                self._unlisted.remove(ledger_id)
                await self._delete([ledger_id])

    # Sealing

    def drained(self, feed: LedgerFeed) -> None:
        """The previous ledger is durable to its end."""
        if not self._stopped:
            self._spawn(self._seal_and_trim())

    async def _seal_and_trim(self) -> None:
        # Here: after a failure below, a later caller must not believe that a round is still to come.
        self._trim_wanted = False
        try:
            async with self._lock:
                await self._seal_left()
            await self.trim()
        except LogFencedError as error:
            self._fenced(error)
        except MagnetarError as error:
            # The next opening of the log finds the end of the ledger again.
            _log.warning("log %s: a ledger could not be sealed or trimmed: %s", self._stored.name, error)

    async def _seal_left(self) -> None:
        """Stores the ends of previous ledgers that are durable to the end. Under the lock."""
        while self._left and self._left[0].ledger.complete:
            feed = self._left[0]
            following = self._ledgers.following(feed.ledger.ledger_id)
            assert following is not None, "a ledger is left for another one"
            await self._seal(feed, following.base_index, _unchanged)
            if self.rollover.state.now is LedgersState.ENDED:
                # Meanwhile the log was closed: `end` waits for no lock.
                return
            self._left.remove(feed)
            self._reading.use(await self._source.open(feed.ledger.ledger_id))

    async def _seal(
        self, feed: LedgerFeed, next_index: int, also: Callable[[LogMetadata], LogMetadata]
    ) -> None:
        ledger = feed.ledger
        assert ledger.complete, "a ledger is sealed once it is durable to its end"
        end = await feed.writer.close()
        assert end.last_entry == ledger.entries - 1, "the writer ends elsewhere than the log"
        record = LedgerRecord(
            ledger.ledger_id, ledger.entries, ledger.size_bytes, ledger.timestamp_ms, ledger.base_index
        )
        last_ms = self._appender.times.last_ms
        await self._stored.update(
            lambda metadata: also(
                metadata.sealing(record, next_index=next_index, last_broker_time_ms=last_ms)
            )
        )

    async def stop(self, also: Callable[[LogMetadata], LogMetadata] = _unchanged) -> None:
        """Ends the current ledger after all appended entries are durable; no ledger follows.

        An empty current ledger leaves the list. `also` may add to the last change of the value. Raises
        LogFailedError when appends were lost, LedgerError, LogFencedError, MetadataError.
        """
        self.rollover.stop("it is closed or terminated")
        # A rollover that has begun before notices this when it has its ledger; no caller appends any more.
        async with self._lock:
            appender = self._appender
            for left in list(self._left):
                # Its last mark gives the held entries to the current writer before this returns.
                await left.writer.close()
            feed = appender.current
            if feed is None:
                return
            if appender.error is None:
                await feed.writer.close()
            if appender.error is not None or not appender.idle:
                raise LogFailedError(f"log {self._stored.name} lost its last appends") from appender.error
            await self._seal_left()
            appender.current = None
            feed.ledger.sealed_end = feed.next_entry - 1
            if feed.ledger.entries:
                await self._seal(feed, appender.next_index, also)
            else:
                ledger_id = feed.ledger.ledger_id
                await self._stored.update(lambda metadata: also(metadata.without(frozenset({ledger_id}))))
                self._ledgers.remove(ledger_id)
                await self._delete([ledger_id])

    def end(self) -> None:
        """The log is closed: drops the references to its parts, so that no cycle waits for the garbage
        collector."""
        self.rollover.state.go(LedgersState.ENDED, "the log is closed")
        self._left.clear()
        self._fenced = nobody
        self._appender.end()
        self._offloading.end()

    async def abandon(self) -> None:
        """Stops all writing; waits for a change that is under way."""
        self.rollover.stop("another owner has it, it failed, or it is deleted")
        async with self._lock:
            self._left.clear()

    # The clock

    async def _look_at_clock(self) -> None:
        """Continues with the clock's time once the clock has been behind the log's last time for long.

        Raises MetadataError, LogFencedError.
        """
        times, current = self._appender.times, self._appender.current
        if not times.look():
            self.rollover.clock_wins = False
            return
        if self.rollover.state.now is LedgersState.ROLLING:
            return
        if current is not None and current.next_entry:
            # In the next ledger: times do not decrease within one.
            self.rollover.clock_wins = True
            self.roll_if_due(self._clock.now_ms())
            return
        times.believe()
        await self._stored.update(lambda metadata: replace(metadata, last_broker_time_ms=times.last_ms))

    # Trimming

    def cursor_advanced(self, mark_delete: Position) -> None:
        """A durable cursor advanced: the first ledger may be consumed now."""
        if len(self._ledgers) <= 1:
            return
        first = self._ledgers[0]
        if (
            not self._trim_wanted
            and first.complete
            and mark_delete >= Position(first.ledger_id, first.entries - 1)
        ):
            self.trim_soon()

    def trim_soon(self) -> None:
        """Trims in the background."""
        if not self._trim_wanted and not self._stopped:
            self._trim_wanted = True
            self._spawn(self._seal_and_trim())

    async def trim(self) -> int:
        """Deletes the first ledgers that are consumed and not retained; returns their number.

        Raises LedgerError, LogFencedError, MetadataError. A ledger that could not be deleted after it left
        the list is deleted when the log is opened next.
        """
        await self._look_at_clock()
        async with self._lock:
            # A ledger is deleted only after the next one has its index base.
            await self._seal_left()
            count = retention_rules.removable(
                list(self._ledgers),
                mark_deletes=self._mark_deletes(),
                size_bytes=self._ledgers.size_bytes,
                retention=self.retention,
                times=self._appender.times.believed_of_ledgers(),
                now_ms=self._clock.settled_ms(),
            )
            if not count:
                return 0
            assert count < len(self._ledgers), "the last ledger never goes"
            ledger_ids = [self._ledgers[index].ledger_id for index in range(count)]
            # Meanwhile a cursor may be created or moved into them, or read there: it continues with the first
            # remaining ledger, as it would a moment later.
            await self._stored.update(lambda metadata: metadata.without(frozenset(ledger_ids)))
            for ledger_id in ledger_ids:
                self._ledgers.remove(ledger_id)
            self._left = [feed for feed in self._left if feed.ledger.ledger_id not in ledger_ids]
            await self._delete(ledger_ids)
        self._spawn(self._offloading.delete_copies())
        return count

    async def _delete(self, ledger_ids: list[LedgerId]) -> None:
        for ledger_id in ledger_ids:
            self._reading.forget(ledger_id)
            try:
                await self._source.delete(ledger_id)
            except MagnetarError as error:
                # It stays in the list of ledgers to delete, for the next attempt.
                _log.warning(
                    "log %s: ledger %d could not be deleted: %s", self._stored.name, ledger_id, error
                )
            else:
                self._stored.deleted((ledger_id,))

    def check(self) -> None:
        """Asserts the invariants."""
        self.rollover.check()
        current = self._appender.current
        if self.rollover.state.now is LedgersState.ENDED:
            assert not self._left, "an ended log keeps a ledger"
            return
        left = [feed.ledger.ledger_id for feed in self._left]
        assert left == sorted(set(left)), "ledgers are left in their order, each once"
        assert current is None or current not in self._left, "the current ledger was left"
        if self._lock.locked():
            # A change is under way: already stored and not in memory yet, or the other way round.
            return
        stored = {record.ledger_id: record for record in self._stored.metadata.ledgers}
        # A call that was cancelled after a ledger had left the stored list left it in memory: the next
        # trimming removes it.
        for feed in self._left:
            record = stored.get(feed.ledger.ledger_id)
            assert feed.ledger.sealed_end is not None, "a ledger that was left takes no appends"
            assert record is None or not record.sealed, "a sealed ledger is waiting to be sealed"
        if current is not None and not self.rollover.stopped:
            assert current.ledger.ledger_id in stored, "appends go to a ledger that is not in the stored list"
            assert not stored[current.ledger.ledger_id].sealed, "appends go to a sealed ledger"
        assert not set(self._unlisted) & stored.keys(), "a ledger that is not listed is listed"
