"""Ledgers in memory whose durability, delays and failures the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError, LostEntriesError, LostRange
from magnetar.ledger.api import (
    Copies,
    LedgerClosedError,
    LedgerEnd,
    LedgerFencedError,
    LedgerWriteError,
    NoSuchEntryError,
    NoSuchLedgerError,
    WriterListener,
)


class FakeLedger:
    """Stored entries of one ledger."""

    def __init__(self, ledger_id: int, custom_metadata: Mapping[str, bytes]) -> None:
        self.ledger_id = ledger_id
        self.custom_metadata = dict(custom_metadata)
        self.runs: list[EntryRun] = []
        self.lost: set[int] = set()
        """Entries that damage took."""
        self.loss = ""
        """What damage may have taken behind the last one."""
        self.durable = -1
        self.closed = False
        self.writer: FakeWriter | None = None

    def entry_runs(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        out: list[EntryRun] = []
        size = 0
        for run in self.runs:
            for offset in range(len(run.entries)):
                entry_id = run.first_entry + offset
                if not first <= entry_id <= last:
                    continue
                size += len(run.entries[offset])
                if size > bytes_max and out:
                    return out
                if out and out[-1].last_entry == entry_id - 1 and out[-1].first_entry >= run.first_entry:
                    start = out.pop().first_entry - run.first_entry
                    out.append(run.slice(start, offset + 1))
                else:
                    out.append(run.slice(offset, offset + 1))
        return out

    @property
    def length_bytes(self) -> int:
        return sum(
            len(entry)
            for run in self.runs
            for offset, entry in enumerate(run.entries)
            if run.first_entry + offset <= self.durable
        )


class FakeReader:
    def __init__(self, ledgers: FakeLedgers, ledger: FakeLedger) -> None:
        self._ledgers = ledgers
        self._ledger = ledger

    @property
    def ledger_id(self) -> int:
        return self._ledger.ledger_id

    @property
    def last_entry(self) -> int:
        return self._ledger.durable

    @property
    def length_bytes(self) -> int:
        return self._ledger.length_bytes

    @property
    def loss(self) -> str:
        return self._ledger.loss

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        if self._ledgers.reads_wait:
            return None
        return self._read(first, last, bytes_max)

    async def read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        await asyncio.sleep(0)
        self._ledgers.reads += 1
        return self._read(first, last, bytes_max)

    def _read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        if self.ledger_id not in self._ledgers.ledgers:
            raise NoSuchLedgerError(self.ledger_id)
        if not 0 <= first <= self.last_entry:
            raise NoSuchEntryError(self.ledger_id, first)
        lost = self._ledger.lost
        if first in lost:
            start, stop = first, first
            while start - 1 in lost:
                start -= 1
            while stop + 1 in lost:
                stop += 1
            raise LostEntriesError("fake", 0, "damaged", LostRange(self.ledger_id, start, stop))
        last = min([last, *(entry - 1 for entry in lost if entry > first)])
        return self._ledger.entry_runs(first, min(last, self.last_entry), bytes_max)


class FakeWriter(FakeReader):
    def __init__(self, ledgers: FakeLedgers, ledger: FakeLedger, listener: WriterListener) -> None:
        super().__init__(ledgers, ledger)
        self._listener = listener
        self._pushed = -1
        self.error: LedgerError | None = None
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def last_pushed(self) -> int:
        return self._pushed

    @property
    def pending_bytes(self) -> int:
        return sum(
            len(entry)
            for run in self._ledger.runs
            for offset, entry in enumerate(run.entries)
            if run.first_entry + offset > self._ledger.durable
        )

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        if self.error is not None:
            raise self.error
        if self._closing:
            raise LedgerClosedError(f"ledger {self.ledger_id} is closed")
        first = self._pushed + 1
        self._ledger.runs.append(
            EntryRun(self.ledger_id, first, list(entries), counts, base_index, broker_time_ms)
        )
        self._pushed += len(entries)
        self._idle.clear()
        self._ledgers.pushed()
        return first

    def sync(self, count: int | None = None) -> None:
        """Makes the next `count` entries (default: all) durable and says so."""
        target = self._pushed if count is None else min(self._pushed, self._ledger.durable + count)
        if self.error is None and target > self._ledger.durable:
            self._ledger.durable = target
            self._listener.durable(target)
            if self._ledger.durable == self._pushed:
                self._idle.set()

    def fail(self, error: LedgerError) -> None:
        """Loses what is not durable."""
        if self.error is None:
            self.error = error
            self._idle.set()
            self._listener.failed(error)

    async def close(self) -> LedgerEnd:
        self._closing = True
        await self._idle.wait()
        if self.error is not None:
            raise self.error
        self._ledger.closed = True
        return LedgerEnd(self._ledger.durable, self._ledger.length_bytes)


class FakeLedgers:
    """Ledgers of one process; `crash` gives those of the next one."""

    def __init__(self, *, auto_sync: bool = True) -> None:
        self.auto_sync = auto_sync
        """Entries become durable by themselves, at the next turn of the loop."""
        self.reads_wait = False
        """`read_now` says that it would wait."""
        self.reads = 0
        self.ledgers: dict[int, FakeLedger] = {}
        self.deleted: list[int] = []
        self.room = True
        """Whether there is room for more."""
        self.create_errors: list[LedgerError] = []
        """Raised by the next calls of `create`, first one first."""
        self.copies: dict[int, Copies | None] = {}
        """What `create` was told, by ledger."""
        self.delete_errors: list[LedgerError] = []
        self.create_gate: asyncio.Event | None = None
        """`create` waits for it when set."""
        self._next_id = 0
        self._sync_scheduled = False
        self._dead = False

    def pushed(self) -> None:
        if self.auto_sync and not self._sync_scheduled:
            self._sync_scheduled = True
            asyncio.get_running_loop().call_soon(self._auto)

    def _auto(self) -> None:
        self._sync_scheduled = False
        if self.auto_sync:
            self.sync()

    def sync(self) -> None:
        """Makes everything that was appended by now durable, in the order of the ledgers."""
        for ledger in list(self.ledgers.values()):
            if ledger.writer is not None and not self._dead:
                ledger.writer.sync()

    def writer(self, ledger_id: int) -> FakeWriter:
        writer = self.ledgers[ledger_id].writer
        assert writer is not None
        return writer

    def tagged(self, cursor: str | None) -> list[int]:
        """Existing ledgers of a cursor, or of the logs (None)."""
        wanted = None if cursor is None else cursor.encode()
        return [
            ledger_id
            for ledger_id, ledger in self.ledgers.items()
            if ledger.custom_metadata.get("pulsar/cursor") == wanted
        ]

    def has_room(self) -> bool:
        return self.room

    async def create(
        self,
        listener: WriterListener,
        custom_metadata: Mapping[str, bytes],
        copies: Copies | None = None,
    ) -> FakeWriter:
        await asyncio.sleep(0)
        if self.create_gate is not None:
            await self.create_gate.wait()
        if self.create_errors:
            raise self.create_errors.pop(0)
        # Ids have gaps, as other logs create ledgers too.
        self._next_id += 3
        ledger = self.ledgers[self._next_id] = FakeLedger(self._next_id, custom_metadata)
        ledger.writer = FakeWriter(self, ledger, listener)
        self.copies[self._next_id] = copies
        return ledger.writer

    async def open(self, ledger_id: int, *, to_replace: bool = False) -> FakeReader:
        await asyncio.sleep(0)
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise NoSuchLedgerError(ledger_id)
        if not ledger.closed:
            if ledger.writer is not None:
                ledger.writer.fail(LedgerFencedError(f"ledger {ledger_id} was fenced"))
            self._truncate(ledger)
            ledger.closed = True
        return FakeReader(self, ledger)

    async def delete(self, ledger_id: int) -> None:
        await asyncio.sleep(0)
        if self.delete_errors:
            raise self.delete_errors.pop(0)
        if self.ledgers.pop(ledger_id, None) is not None:
            self.deleted.append(ledger_id)

    @staticmethod
    def _truncate(ledger: FakeLedger) -> None:
        kept = [run for run in ledger.runs if run.first_entry <= ledger.durable]
        if kept and kept[-1].last_entry > ledger.durable:
            kept[-1] = kept[-1].slice(0, ledger.durable + 1 - kept[-1].first_entry)
        ledger.runs = kept

    def crash(self) -> FakeLedgers:
        """What the next process finds: only what is durable. The old writers never speak again."""
        self._dead = True
        after = FakeLedgers(auto_sync=self.auto_sync)
        after._next_id = self._next_id
        for ledger in self.ledgers.values():
            copy = FakeLedger(ledger.ledger_id, ledger.custom_metadata)
            copy.runs = list(ledger.runs)
            copy.durable = ledger.durable
            copy.closed = ledger.closed
            self._truncate(copy)
            after.ledgers[ledger.ledger_id] = copy
        return after


def write_error() -> LedgerWriteError:
    """What a writer says when the device is gone."""
    return LedgerWriteError("the device failed")
