"""A compacted ledger: entries of the log, sparse and in its order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.base.entries import TIME_MS_MAX, EntryRun
from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.compaction.codec import decode
from magnetar.ledger.api import LedgerReader
from magnetar.wire.payload import EntryError, parse_metadata, split_broker_metadata, split_entry

_HINTS_MAX: Final = 256
"""Readers whose place is cached, so that the next read needs no search."""


class CompactedLedger:
    """Finds and reads entries by their place in the log."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader
        self._hints: dict[Position, int] = {}

    @property
    def ledger_id(self) -> LedgerId:
        return self._reader.ledger_id

    @property
    def entry_count(self) -> int:
        return self._reader.last_entry + 1

    @property
    def size_bytes(self) -> int:
        return self._reader.length_bytes

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """Entries from the first one >= `position` on, each a run; empty when there is none.

        At least one, then as many as fit. Raises LedgerError, CorruptDataError.
        """
        first = self._hints.pop(position, None)
        if first is None:
            first = await self._search(lambda run: decode(run.entries[0])[0] >= position)
        last = min(self._reader.last_entry, first + entries_max - 1)
        if first > last:
            return []
        out = [
            _restored(run.slice(i, i + 1))
            for run in await self._reader.read(first, last, bytes_max)
            for i in range(len(run.entries))
        ]
        if len(self._hints) >= _HINTS_MAX:
            del self._hints[next(iter(self._hints))]
        self._hints[Position(out[-1].ledger_id, out[-1].first_entry + 1)] = first + len(out)
        return out

    async def last(self) -> EntryRun | None:
        """The last entry. Raises LedgerError, CorruptDataError."""
        return await self._entry(self._reader.last_entry) if self.entry_count else None

    async def position_of_time(self, publish_ms: int) -> Position | None:
        """The first entry whose broker time is >= `publish_ms`. Raises LedgerError, CorruptDataError."""
        number = await self._search(lambda run: run.broker_time_ms >= publish_ms)
        if number > self._reader.last_entry:
            return None
        run = await self._entry(number)
        return Position(run.ledger_id, run.first_entry)

    async def _search(self, reached: Callable[[EntryRun], bool]) -> int:
        """Number of the first entry of which `reached` is true; it stays so for all that follow."""
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if reached((await self._reader.read(middle, middle, 1))[0]):
                high = middle
            else:
                low = middle + 1
        return low

    async def _entry(self, number: int) -> EntryRun:
        return _restored((await self._reader.read(number, number, 1))[0])


def _restored(run: EntryRun) -> EntryRun:
    position, entry = decode(run.entries[0])
    if run.broker_time_ms:
        return EntryRun(*position, [entry], run.counts, run.base_index, run.broker_time_ms)
    # In a ledger of Pulsar's, or one for it, only the entry itself tells what it holds.
    try:
        told, start = split_broker_metadata(entry)
        entry = entry[start:]
        metadata = parse_metadata(split_entry(entry).metadata)
        count = max(1, metadata.num_messages_in_batch)
    except EntryError as error:
        raise CorruptDataError("entry of a compacted ledger", 0, str(error)) from error
    if told is None:
        return EntryRun(*position, [entry], [count], run.base_index, min(metadata.publish_time, TIME_MS_MAX))
    base_index = told.index + 1 - count if told.HasField("index") else run.base_index
    return EntryRun(*position, [entry], [count], base_index, min(told.broker_timestamp, TIME_MS_MAX))
