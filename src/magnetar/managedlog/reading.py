"""The way out: from the tail cache when the position is near the end, else from the ledgers."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.ledger.api import LedgerReader, Ledgers, NoSuchLedgerError
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from magnetar.managedlog.tail_cache import TailCache


class LogReading:
    """Reads entries of one log; opens ledgers when they are first read."""

    __slots__ = ("_cache", "_ledgers", "_readers", "_source")

    def __init__(self, ledgers: LedgerList, cache: TailCache, source: Ledgers) -> None:
        self._ledgers = ledgers
        self._cache = cache
        self._source = source
        self._readers: dict[int, LedgerReader] = {}

    def use(self, reader: LedgerReader) -> None:
        """Reads this ledger through `reader` from now on."""
        self._readers[reader.ledger_id] = reader

    def forget(self, ledger_id: int) -> None:
        """The ledger has left the log."""
        self._readers.pop(ledger_id, None)

    def _start(self, position: Position) -> tuple[Position, Ledger] | None:
        """The first readable entry >= `position` and its ledger; None at the end of the log."""
        start = self._ledgers.next_position(Position(position.ledger_id, position.entry_id - 1))
        ledger = self._ledgers.find(start.ledger_id)
        if ledger is None or start.entry_id >= ledger.entries:
            return None
        return start, ledger

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        """See ManagedLog.read_now."""
        found = self._start(position)
        if found is None:
            return []
        start, ledger = found
        cached_from = self._cache.first_position
        if cached_from is not None and start >= cached_from:
            return cut(self._cache.runs_from(start), start, bytes_max, entries_max)
        reader = self._readers.get(ledger.ledger_id)
        if reader is None:
            return None
        last = min(ledger.entries, start.entry_id + entries_max) - 1
        return reader.read_now(start.entry_id, last, bytes_max)

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """See ManagedLog.read."""
        while True:
            runs = self.read_now(position, bytes_max, entries_max)
            if runs is not None:
                return runs
            found = self._start(position)
            assert found is not None, "read_now has found an entry there"
            start, ledger = found
            try:
                reader = await self._reader(ledger.ledger_id)
                last = min(ledger.entries, start.entry_id + entries_max) - 1
                return await reader.read(start.entry_id, last, bytes_max)
            except NoSuchLedgerError:
                if self._ledgers.find(ledger.ledger_id) is not None:
                    raise
                # Trimmed meanwhile: the first readable entry is another one now.
                self.forget(ledger.ledger_id)

    async def _reader(self, ledger_id: int) -> LedgerReader:
        reader = self._readers.get(ledger_id)
        if reader is None:
            reader = await self._source.open(ledger_id)
            # Two readers may open it at once; both are good, one is kept.
            if self._ledgers.find(ledger_id) is not None:
                reader = self._readers.setdefault(ledger_id, reader)
        return reader


def cut(
    runs: Iterator[tuple[EntryRun, int]], start: Position, bytes_max: int, entries_max: int
) -> list[EntryRun]:
    """Runs with their bytes, cut to begin at `start` and to fit; at least one entry when there is any."""
    out: list[EntryRun] = []
    for run, size_bytes in runs:
        entries = run.entries
        offset = max(0, start.entry_id - run.first_entry) if run.ledger_id == start.ledger_id else 0
        count = len(entries) - offset
        if not offset and size_bytes <= bytes_max and count <= entries_max:
            out.append(run)
            bytes_max -= size_bytes
            entries_max -= count
        else:
            stop = offset
            while stop < len(entries) and entries_max > 0:
                size = len(entries[stop])
                if size > bytes_max and (out or stop > offset):
                    break
                bytes_max -= size
                entries_max -= 1
                stop += 1
            if stop > offset:
                out.append(run.slice(offset, stop))
            if stop < len(entries):
                break
        if bytes_max <= 0 or entries_max <= 0:
            break
    return out
