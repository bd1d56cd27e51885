"""Ledgers and metadata in memory that are slow, fail and stall, as the story says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError, MetadataError
from magnetar.base.ids import LedgerId
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
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    Notification,
    Operation,
    SessionEvent,
    Stat,
    Value,
)
from sim.cluster.loop import PROCESS, SimLoop
from sim.world import World


class Weather:
    """How storage is just now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.failing = False
        """Whether one request in four fails."""
        self.calm = asyncio.Event()
        """Cleared while nothing is answered."""
        self.calm.set()
        self.syncs = asyncio.Event()
        """Cleared while nothing that was written to a ledger becomes durable; all else goes on."""
        self.syncs.set()

    async def pass_by(self) -> bool:
        """A request takes its time; whether it fails."""
        random = self.world.random
        await asyncio.sleep(random.choice((0.0, 0.0, 0.001, 0.005, 0.03)))
        while not self.calm.is_set():
            await self.calm.wait()
        return self.failing and random.random() < 0.25


class SimStore:
    """A metadata store; it fails before or after it did what was asked."""

    def __init__(self, inner: MemoryMetadataStore, weather: Weather) -> None:
        self._inner = inner
        self._weather = weather

    async def _read(self) -> None:
        if await self._weather.pass_by():
            raise MetadataError("simulated: the store is away")

    async def get(self, path: str) -> Value | None:
        await self._read()
        return await self._inner.get(path)

    async def children(self, path: str) -> list[str]:
        await self._read()
        return await self._inner.children(path)

    async def exists(self, path: str) -> bool:
        await self._read()
        return await self._inner.exists(path)

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        await self._read()
        stat = await self._inner.put(
            path, data, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )
        await self._read()
        return stat

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        await self._read()
        await self._inner.delete(path, expected_version=expected_version, expected_creation=expected_creation)

    async def delete_recursive(self, path: str) -> None:
        await self._read()
        await self._inner.delete_recursive(path)

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        await self._read()
        return await self._inner.transact(operations)

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        process = PROCESS.get()

        def told(notification: Notification) -> None:
            if process is None or process.is_up:
                callback(notification)

        return self._inner.watch(prefix, told)

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._inner.watch_session(callback)

    async def sync(self) -> None:
        await self._inner.sync()

    async def close(self) -> None:
        await self._inner.close()


class _Ledger:
    def __init__(self, ledger_id: LedgerId) -> None:
        self.ledger_id = ledger_id
        self.runs: list[EntryRun] = []
        self.durable = -1
        self.closed = False
        self.writer: SimWriter | None = None


class SimReader:
    def __init__(self, ledgers: SimLedgers, ledger: _Ledger) -> None:
        self._ledgers = ledgers
        self._ledger = ledger

    @property
    def ledger_id(self) -> LedgerId:
        return self._ledger.ledger_id

    @property
    def last_entry(self) -> int:
        return self._ledger.durable

    @property
    def length_bytes(self) -> int:
        return sum(sum(map(len, run.entries)) for run in self._ledger.runs)

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        """Everything must be waited for."""
        return None

    async def read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        if await self._ledgers.weather.pass_by():
            raise LedgerError("simulated: the ledger cannot be read now")
        if self.ledger_id not in self._ledgers.ledgers:
            raise NoSuchLedgerError(self.ledger_id)
        if not 0 <= first <= self.last_entry:
            raise NoSuchEntryError(self.ledger_id, first)
        last = min(last, self.last_entry)
        found = []
        for run in self._ledger.runs:
            start, stop = max(first, run.first_entry), min(last, run.last_entry)
            if start <= stop:
                found.append(run.slice(start - run.first_entry, stop + 1 - run.first_entry))
        return found


class SimWriter(SimReader):
    def __init__(self, ledgers: SimLedgers, ledger: _Ledger, listener: WriterListener) -> None:
        super().__init__(ledgers, ledger)
        self._listener = listener
        self.error: LedgerError | None = None
        self._closing = False
        self._pushed = -1
        self.process = PROCESS.get()
        """The process that writes."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._syncing = False

    @property
    def last_pushed(self) -> int:
        return self._pushed

    @property
    def pending_bytes(self) -> int:
        durable = self._ledger.durable
        return sum(sum(map(len, run.entries)) for run in self._ledger.runs if run.last_entry > durable)

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        if self.error is not None:
            raise self.error
        if self._closing:
            raise LedgerClosedError(f"ledger {self.ledger_id} is closed")
        first = self._pushed + 1
        run = EntryRun(self.ledger_id, first, list(entries), counts, base_index, broker_time_ms)
        self._ledger.runs.append(run)
        self._pushed += len(entries)
        self._idle.clear()
        if not self._syncing:
            self._syncing = True
            asyncio.get_running_loop().create_task(self._sync())  # the simulated loop keeps it
        return first

    async def _sync(self) -> None:
        while self._ledger.durable < self._pushed and self.error is None:
            target = self._pushed
            failed = await self._ledgers.weather.pass_by()
            await self._ledgers.weather.syncs.wait()
            if failed and self._ledgers.weather.world.random.random() < 0.1:
                self.fail(LedgerWriteError("simulated: the device failed"))
            elif self.error is None:
                self._ledger.durable = target
                self._listener.durable(target)
        self._syncing = False
        self._idle.set()

    def fail(self, error: LedgerError) -> None:
        """What is not durable is lost."""
        if self.error is None:
            self.error = error
            self._idle.set()
            process = self.process
            if process is None or process is PROCESS.get():
                self._listener.failed(error)
            elif self._pushed > self._ledger.durable:
                # Another process fenced it: the writer's hears of it when it runs, by what it wrote last, or
                # where nothing is under way by what it writes next.
                loop = asyncio.get_running_loop()
                assert isinstance(loop, SimLoop)
                loop.within(process, self._listener.failed, error)

    async def close(self) -> LedgerEnd:
        self._closing = True
        await self._idle.wait()
        if self.error is not None:
            raise self.error
        self._ledger.closed = True
        return LedgerEnd(self._ledger.durable, self.length_bytes)


class SimLedgers:
    """All ledgers of the broker."""

    def __init__(self, weather: Weather) -> None:
        self.weather = weather
        self.ledgers: dict[LedgerId, _Ledger] = {}
        self._next_id = LedgerId(0)

    def forget_writers(self) -> None:
        """Drops the writers of a killed process: what is not durable is lost, and no callback runs."""
        for ledger in self.ledgers.values():
            ledger.writer = None

    def has_room(self) -> bool:
        return True

    async def create(
        self,
        listener: WriterListener,
        custom_metadata: Mapping[str, bytes],
        copies: Copies | None = None,
    ) -> SimWriter:
        if await self.weather.pass_by():
            raise LedgerWriteError("simulated: no ledger now")
        self._next_id = LedgerId(self._next_id + 3)
        ledger = self.ledgers[self._next_id] = _Ledger(self._next_id)
        ledger.writer = SimWriter(self, ledger, listener)
        return ledger.writer

    async def open(self, ledger_id: LedgerId, *, to_replace: bool = False) -> SimReader:
        if await self.weather.pass_by():
            raise LedgerError("simulated: the ledger cannot be opened now")
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise NoSuchLedgerError(ledger_id)
        if not ledger.closed:
            if ledger.writer is not None:
                ledger.writer.fail(LedgerFencedError(f"ledger {ledger_id} was fenced"))
            kept = [run for run in ledger.runs if run.first_entry <= ledger.durable]
            if kept and kept[-1].last_entry > ledger.durable:
                kept[-1] = kept[-1].slice(0, ledger.durable + 1 - kept[-1].first_entry)
            ledger.runs, ledger.closed = kept, True
        return SimReader(self, ledger)

    async def delete(self, ledger_id: LedgerId) -> None:
        if await self.weather.pass_by():
            raise LedgerError("simulated: the ledger cannot be deleted now")
        self.ledgers.pop(ledger_id, None)
