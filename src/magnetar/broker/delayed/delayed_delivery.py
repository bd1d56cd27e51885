"""Delayed entries of one subscription: held back when the dispatcher asks, returned when due.

Driver of `DelayedIndex`: one task at a time writes segments, reads them, and deletes their ledgers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.delayed.due_time import deliver_at_ms, may_be_delayed
from magnetar.broker.delayed.index import DEFAULT_LIMITS, DelayedIndex, IndexLimits
from magnetar.broker.delayed.segment import Sealing, decode_foot
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.runtime.alarms import Alarms
from magnetar.runtime.tasks import yield_loop

_log = logging.getLogger("magnetar.broker.delayed")


class DelayedDelivery:
    """Plugged into the dispatchers of a subscription (`dispatch.api.Delays`)."""

    __slots__ = (
        "_alarms",
        "_armed_ms",
        "_clock",
        "_cursor",
        "_forgotten",
        "_index",
        "_ledgers",
        "_postpones",
        "_reread",
        "_spawn",
        "_wake",
        "_working",
        "active",
        "loading",
    )

    active: bool
    """Whether further entries are held back; those already held stay."""
    loading: bool
    """Whether what an earlier process wrote is still being read: dispatch waits for it, as it would read
    all of these entries else."""

    def __init__(
        self,
        clock: Clock,
        alarms: Alarms,
        cursor: Cursor,
        spawn: Callable[[Coroutine[object, object, object]], None],
        *,
        wake: Callable[[], None],
        reread: Callable[[], None],
        limits: IndexLimits = DEFAULT_LIMITS,
    ) -> None:
        """`wake` is called when entries become due: it should call `take_due`. `reread` is called when part
        of the index is lost: all unacknowledged entries must be read, and offered to `hold`, again."""
        self._clock = clock
        self._alarms = alarms
        self._cursor = cursor
        self._ledgers = cursor.ledgers
        self._spawn = spawn
        self._wake = wake
        self._reread = reread
        self._index = DelayedIndex(limits)
        self._armed_ms: int | None = None
        self._working = False
        self._forgotten = False
        self._postpones = False
        """Whether entries may be held that have no delivery time of their own."""
        self.active = True
        self.loading = False
        if self._ledgers is not None and self._ledgers.ids:
            self.loading = self._working = True
            spawn(self._restore())

    # -- what dispatchers ask ----------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Entries that are held back."""
        return len(self._index)

    @property
    def next_due_ms(self) -> int | None:
        """When the next work is due, Unix ms, perhaps in the past; None when nothing is held."""
        return self._index.next_due_ms()

    @property
    def last_held(self) -> Position:
        """No position after it is held back."""
        return self._index.last_held

    def next_free(self, position: Position) -> Position:
        """The first position of the same ledger, from this one on, that is not held back."""
        return self._index.next_free(position)

    def screen(self, entries: Sequence[bytes]) -> bool:
        """Whether `hold` must be asked about any of these entries."""
        return (self._postpones and len(self._index) > 0) or may_be_delayed(entries)

    def hold(self, run: EntryRun, start: int, stop: int, is_acked: Callable[[Position], bool] | None) -> int:
        """Holds back the entries from `start` on that are to be delivered later; see `Delays`."""
        index, now_ms = self._index, self._clock.now_ms()
        ledger_id, entry_id = run.ledger_id, run.first_entry + start
        last_held = index.last_held
        found: list[tuple[int, int]] = []
        for entry in run.entries[start:stop]:
            if is_acked is not None and is_acked(Position(ledger_id, entry_id)):
                break
            known = (ledger_id, entry_id) <= last_held and Position(ledger_id, entry_id) in index
            if not known:
                due_ms = deliver_at_ms(entry) if self.active else 0
                if due_ms <= now_ms:
                    break
                found.append((entry_id, due_ms))
            entry_id += 1
        if found:
            index.add_many(ledger_id, found, now_ms)
            self._arm()
            self._work_soon()
        return entry_id - run.first_entry

    def take_due(self, count_max: int) -> list[Position]:
        """Takes due entries; the rest is announced by `wake` or taken by the next call."""
        index = self._index
        if not len(index):
            return []
        due = index.pop_due(self._clock.now_ms(), count_max)
        self._work_soon()
        if len(due) < count_max:
            self._arm()
        return due

    def postpone(self, positions: Sequence[Position], due_ms: int) -> None:
        """Holds these entries back until then, whatever their own delivery time; entries already held stay
        unchanged."""
        self._postpones = True
        index = self._index
        of_ledger: dict[LedgerId, list[tuple[int, int]]] = {}
        for position in positions:
            if position not in index:
                of_ledger.setdefault(position.ledger_id, []).append((position.entry_id, due_ms))
        for ledger_id, entries in of_ledger.items():
            index.add_many(ledger_id, entries, self._clock.now_ms())
        self._arm()
        self._work_soon()

    def discard(self, positions: Sequence[Position]) -> None:
        """These were acknowledged."""
        if self._index.discard(positions):
            self._work_soon()

    def _arm(self) -> None:
        due_ms = self._index.next_due_ms()
        if due_ms is not None and (self._armed_ms is None or due_ms < self._armed_ms):
            self._armed_ms = due_ms
            self._alarms.set(self, due_ms, self._ring)

    def _ring(self) -> None:
        self._armed_ms = None
        self._work_soon()
        self._wake()

    # -- called by the subscription ----------------------------------------------------------------

    def forget_upto(self, position: Position) -> None:
        """All entries up to and including this position are acknowledged."""
        if len(self._index):
            self._index.forget_upto(position)
            self._work_soon()

    def pause(self) -> None:
        """Stops waking: there are no consumers, perhaps for ever."""
        self._alarms.discard(self)
        self._armed_ms = None

    def clear(self) -> None:
        """Forgets all entries: they are read again from the cursor on."""
        self.pause()
        self._index.clear()
        self._forgotten = self.loading
        self._work_soon()

    # -- segments ----------------------------------------------------------------------------------

    def _work_soon(self) -> None:
        """Starts the task when there is something for it to do."""
        if self._working or self._ledgers is None:
            return
        index, now_ms = self._index, self._clock.now_ms()
        sealing = index.next_seal(now_ms)
        obsolete = index.take_obsolete()
        if sealing is not None or obsolete or index.next_load(now_ms) is not None:
            self._working = True
            self._spawn(self._work(sealing, obsolete))

    async def _work(self, sealing: Sealing | None, obsolete: tuple[LedgerId, ...]) -> None:
        try:
            if sealing is not None:
                await self._seal(sealing)
            if obsolete:
                await self._give_back(obsolete)
            if await self._load():
                self._wake()
        finally:
            self._working = False
            self._arm()
        self._work_soon()

    async def _seal(self, sealing: Sealing) -> None:
        assert self._ledgers is not None
        try:
            for _ in sealing.encode():
                await yield_loop()
            ledger_id = await self._ledgers.keep(sealing.entries)
        except BaseException as error:
            # Unexpected errors too: otherwise the entries would be neither in memory nor on disk.
            self._index.unsealed(sealing, self._clock.now_ms())
            if not isinstance(error, MagnetarError):
                raise
            _log.warning("%r: its delayed entries stay in memory: %s", self._cursor, error)
        else:
            self._index.sealed(sealing, ledger_id)

    async def _give_back(self, ledger_ids: tuple[LedgerId, ...]) -> None:
        assert self._ledgers is not None
        try:
            await self._ledgers.drop(ledger_ids)
        except MagnetarError as error:
            # They are still named, and deleted when the cursor is opened or deleted.
            _log.warning("%r: segments of delayed entries were not deleted: %s", self._cursor, error)

    async def _load(self) -> bool:
        """Reads chunks that are due soon; returns whether there were any."""
        assert self._ledgers is not None
        index, some = self._index, False
        while (place := index.next_load(self._clock.now_ms())) is not None:
            some = True
            try:
                index.loaded(place[0], await self._ledgers.read(*place), self._clock.now_ms())
            except MagnetarError as error:
                _log.error(
                    "%r: delayed entries are read from the log again: segment %d: %s",
                    self._cursor,
                    place[0],
                    error,
                )
                index.clear()
                self._reread()
            await yield_loop()
        return some

    async def _restore(self) -> None:
        """Restores the segments of an earlier process."""
        assert self._ledgers is not None
        spoilt: list[LedgerId] = []
        try:
            for ledger_id in self._ledgers.ids:
                try:
                    foot = await self._ledgers.read(ledger_id, await self._ledgers.last_entry(ledger_id))
                    segment, positions = decode_foot(ledger_id, foot)
                except MagnetarError as error:
                    # Its entries are read from the log.
                    _log.warning("%r: segment %d cannot be used: %s", self._cursor, ledger_id, error)
                    spoilt.append(ledger_id)
                else:
                    self._index.restore(segment, positions, self._cursor.mark_delete)
            if self._forgotten:
                self._index.clear()
            else:
                self._index.forget_upto(self._cursor.mark_delete)
            if spoilt:
                await self._give_back(tuple(spoilt))
        finally:
            self.loading = self._working = False
        self._arm()
        self._work_soon()
        self._wake()
