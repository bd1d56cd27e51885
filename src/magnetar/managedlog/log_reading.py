"""Reads entries of a log: from the tail cache near the end, else from the ledgers.

A ledger that was deleted from the bookies is read from its copy in an object store; readers see no
difference. Lost entries are errors, or skipped where an operator said so (holes.py).
"""

from __future__ import annotations

import logging

from magnetar.base.entries import EntryRun, cut
from magnetar.base.errors import LedgerError, LostEntriesError, MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.ledger.api import LedgerReader, Ledgers, NoSuchLedgerError
from magnetar.managedlog.holes import HolePolicy, Skipped
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from magnetar.managedlog.tail_cache import TailCache, memory_of
from magnetar.managedlog.visible import Visible
from magnetar.tiered.api import CopyReader, Tiers
from magnetar.tiered.context import OffloadedCopy

_log = logging.getLogger("magnetar.managedlog")


class LogReading:
    """Reads entries of one log; opens ledgers when they are first read."""

    __slots__ = (
        "_cache",
        "_holes",
        "_ledgers",
        "_name",
        "_readers",
        "_source",
        "_tiers",
        "skipped",
        "visible",
    )

    def __init__(
        self,
        name: str,
        ledgers: LedgerList,
        cache: TailCache,
        source: Ledgers,
        tiers: Tiers | None = None,
        holes: HolePolicy | None = None,
    ) -> None:
        self.skipped: Skipped | None = None
        """Lost entries that were skipped; None: none were."""
        self.visible: Visible | None = None
        """Which entries readers of the log get; see `ManagedLog.visible`. Not applied here."""
        self._holes = holes or HolePolicy()
        self._name = name
        self._ledgers = ledgers
        self._cache = cache
        self._source = source
        self._tiers = tiers
        self._readers: dict[LedgerId, LedgerReader] = {}

    def use(self, reader: LedgerReader) -> None:
        """Reads this ledger through `reader` from now on."""
        self._readers[reader.ledger_id] = reader

    def forget(self, ledger_id: LedgerId) -> None:
        """The ledger has left the log."""
        self._readers.pop(ledger_id, None)

    def _start(self, position: Position) -> tuple[Position, Ledger] | None:
        """The first readable entry >= `position` and its ledger; None at the end of the log."""
        current = self._ledgers.current
        if (
            current is not None
            and position.ledger_id == current.ledger_id
            and position.entry_id >= 0
            and self.skipped is None
        ):
            # Readers that keep up are here, twice for each entry: once with it and once behind it.
            return (position, current) if position.entry_id < current.entries else None
        start = self._ledgers.next_position(Position(position.ledger_id, position.entry_id - 1))
        if self.skipped is not None:
            start = self.skipped.behind(start)
            start = self._ledgers.next_position(Position(start.ledger_id, start.entry_id - 1))
        ledger = self._ledgers.find(start.ledger_id)
        if ledger is None or start.entry_id >= ledger.entries:
            return None
        return start, ledger

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        """See ManagedLog.read_now."""
        while True:
            found = self._start(position)
            if found is None:
                return []
            start, ledger = found
            try:
                return self._read_there(start, ledger, bytes_max, entries_max)
            except LostEntriesError as error:
                if ledger.copied:
                    # `read` tries the copy.
                    return None
                self._skip(ledger, start.entry_id, error)

    def _skip(self, ledger: Ledger, entry: int, error: LostEntriesError) -> None:
        """Skips a hole from `entry` on; raises the error where that is not allowed."""
        last = self._holes.skips_to(error, ledger.entries - 1)
        if last is None or last < entry:
            raise error
        if self.skipped is None:
            self.skipped = Skipped()
        self.skipped.add(ledger.ledger_id, entry, last)
        self._holes.skipped_entries += last - entry + 1
        _log.error("log %s: entries %d to %d are skipped: %s", self._name, entry, last, error)

    def _read_there(
        self, start: Position, ledger: Ledger, bytes_max: int, entries_max: int
    ) -> list[EntryRun] | None:
        cached_from = self._cache.first_position
        if cached_from is not None and start >= cached_from:
            return cut(self._cache.runs_from(start), start, bytes_max, entries_max)
        reader = self._readers.get(ledger.ledger_id)
        if reader is None:
            return None
        last = min(ledger.entries, start.entry_id + entries_max) - 1
        runs = reader.read_now(start.entry_id, last, bytes_max)
        if runs is not None:
            self._share_end(runs)
        return runs

    def _share_end(self, runs: list[EntryRun]) -> None:
        """A read up to the end of the log fills an empty cache: after a start each of many subscriptions
        reads that."""
        end = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)
        if self._cache.first_position is None and self._start(end) is None:
            for run in runs:
                self._cache.add(run, memory_of(run))

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """See ManagedLog.read."""
        while True:
            runs = self.read_now(position, bytes_max, entries_max)
            if runs is not None:
                return runs
            found = self._start(position)
            assert found is not None, "read_now has found an entry there"
            start, ledger = found
            local, offload = ledger.local, ledger.offload
            last = min(ledger.entries, start.entry_id + entries_max) - 1
            try:
                reader = await self._reader(ledger)
                runs = await reader.read(start.entry_id, last, bytes_max)
                self._share_end(runs)
                return runs
            except LostEntriesError as error:
                if self._ledgers.find(ledger.ledger_id) is not ledger or ledger.offload != offload:
                    # Trimmed, or another copy has replaced this one.
                    self.forget(ledger.ledger_id)
                    continue
                runs = await self._from_copy(ledger, start.entry_id, last, bytes_max, error)
                if runs is not None:
                    return runs
                self._skip(ledger, start.entry_id, error)
            except NoSuchLedgerError:
                self.forget(ledger.ledger_id)
                # Trimmed meanwhile: the first readable entry has changed. Or deleted from the bookies: then
                # it is read from its copy.
                if self._ledgers.find(ledger.ledger_id) is not None and (ledger.local or not local):
                    raise

    async def read_intact(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """Like `read`, but lost entries are left out: for data derived from a log, never for consumers."""
        while True:
            try:
                return await self.read(position, bytes_max, entries_max)
            except LostEntriesError as error:
                if not error.certain:
                    raise
                hole = error
            start = self._start(position)
            if start is None:
                return []
            (ledger_id, entry), ledger = start
            if ledger_id == hole.ledger_id:
                last = ledger.entries - 1 if hole.last_entry is None else hole.last_entry
                position = Position(ledger_id, max(entry, last) + 1)

    async def _reader(self, ledger: Ledger) -> LedgerReader:
        reader = self._readers.get(ledger.ledger_id)
        if reader is None:
            if not ledger.local:
                return self._copy(ledger)
            reader = await self._source.open(ledger.ledger_id)
            # Two readers may open it at once; both are good, one is kept.
            if self._ledgers.find(ledger.ledger_id) is ledger and ledger.local:
                reader = self._readers.setdefault(ledger.ledger_id, reader)
        return reader

    async def _from_copy(
        self, ledger: Ledger, first: int, last: int, bytes_max: int, error: LostEntriesError
    ) -> list[EntryRun] | None:
        """The entries that the bookies have lost, from the copy in the object store; None: there is no
        copy."""
        if not ledger.copied:
            return None
        last = last if error.last_entry is None else min(last, error.last_entry)
        try:
            runs = await self._open_copy(ledger).read(first, last, bytes_max)
        except MagnetarError as other:
            _log.warning("log %s: %s; and the copy: %s", self._name, error, other)
            return None
        _log.warning("log %s: read from the copy in the object store: %s", self._name, error)
        return runs

    def _copy(self, ledger: Ledger) -> CopyReader:
        """Reads the only copy of a ledger from now on. Raises LedgerError, StoreError."""
        reader = self._open_copy(ledger)
        self._readers[ledger.ledger_id] = reader
        return reader

    def _open_copy(self, ledger: Ledger) -> CopyReader:
        """Reads the copy of a ledger that has a complete one. Raises LedgerError, StoreError."""
        assert ledger.offload is not None
        if self._tiers is None or ledger.offload.foreign:
            raise LedgerError(
                f"ledger {ledger.ledger_id} of log {self._name} is in an object store"
                " that this process cannot read"
            )
        return self._tiers.reader(
            self._name,
            OffloadedCopy(ledger.ledger_id, ledger.offload),
            entries=ledger.entries,
            size_bytes=ledger.size_bytes,
        )

    async def entry_of_time(self, ledger: Ledger, time_ms: int) -> int | None:
        """The first entry of an offloaded ledger with broker time >= `time_ms`; None: it must be searched.

        Raises what `read` raises, except for lost entries.
        """
        if ledger.local:
            return None
        try:
            return await self._copy(ledger).position_at(time_ms)
        except LostEntriesError as error:
            if not error.certain:
                raise
            _log.warning("log %s: a time is searched entry by entry: %s", self._name, error)
            return None
