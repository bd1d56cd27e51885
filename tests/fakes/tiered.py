"""Tiered storage in memory: a worker that converts nothing, and a process that offloads."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from fakes.ledgers import FakeLedgers
from fakes.managed_logs import Process
from fakes.metadata import FakeMetadataStore
from magnetar.base.clock import ManualClock
from magnetar.base.entries import EntryRun, cut
from magnetar.base.ids import Position
from magnetar.managedlog.logs import ManagedLogs
from magnetar.runtime.threads import in_thread
from magnetar.tiered.attempt import Effect
from magnetar.tiered.context import parse_object_name
from magnetar.tiered.errors import StoreError
from magnetar.tiered.guarded import ObjectOwners, installation_id
from magnetar.tiered.offloader import Offloader
from magnetar.tiered.offloading import Offloading
from magnetar.tiered.owner import OwnerContext, StoreOwner
from magnetar.tiered.pace import Pace
from magnetar.tiered.parquet.parquet_history import (
    AsyncByteSource,
    DamagedSegmentError,
    FoundMessage,
    HistoryPackagesError,
    KeyPlace,
    KeySource,
    MessagePlace,
    SegmentOrigin,
    SegmentSummary,
    SegmentWorker,
    StoredTopicSchema,
)
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.storage import CopyStores, TieredStorage
from magnetar.tiered.stores.memory import MEMORY_URL, MemoryStore
from magnetar.tiered.stores.object_store import ObjectStore, Tagged

Row = tuple[int, bytes, int, int, int]
"""Entry id, entry, count, index, broker time."""


def rows_of(runs: Sequence[EntryRun]) -> list[Row]:
    """Everything that a reader can tell of entries, one by one."""
    rows = []
    for run in runs:
        index = run.base_index
        for offset, entry in enumerate(run.entries):
            rows.append((run.first_entry + offset, entry, run.count_of(offset), index, run.broker_time_ms))
            index += run.count_of(offset)
    return rows


class FakeWorker:
    """Segments are pickled rows: whole, compared and read as the real ones are."""

    def __init__(self) -> None:
        self.closed = False
        self.refusal = ""
        """Why nothing can be converted."""
        self.alike_runs: Sequence[int] = ()
        """How many segments can be merged, run by run; empty: all."""
        self.reads = 0
        """Calls of `entries`."""

    async def convert(
        self, runs: AsyncIterator[Sequence[EntryRun]], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        if self.refusal:
            raise HistoryPackagesError(self.refusal)
        return await self._write([run async for vector in runs for run in vector], origin, path)

    async def alike(self, parts: Sequence[AsyncByteSource]) -> list[int]:
        return list(self.alike_runs) or [len(parts)]

    async def merge(
        self, parts: Sequence[AsyncByteSource], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        if self.refusal:
            raise HistoryPackagesError(self.refusal)
        return await self._write([run for part in parts for run in await self._load(part)], origin, path)

    async def _write(self, taken: list[EntryRun], origin: SegmentOrigin, path: str) -> SegmentSummary:
        data = pickle.dumps([_state(run) for run in taken])
        await in_thread(lambda: Path(path).write_bytes(data))
        rows = rows_of(taken)
        return SegmentSummary(
            topic=origin.topic,
            ledger_id=origin.ledger_id,
            first_entry=rows[0][0],
            last_entry=rows[-1][0],
            rows=len(rows),
            messages=sum(row[2] for row in rows),
            base_index=rows[0][3],
            raw_bytes=sum(len(row[1]) for row in rows),
            file_bytes=len(data),
            crc32c=0,
            publish_time_min_ms=None,
            publish_time_max_ms=None,
            broker_time_min_ms=rows[0][4],
            broker_time_max_ms=rows[-1][4],
            raw_entries=0,
            keys=0,
            key_min=b"",
            key_max=b"",
            row_groups=1,
        )

    async def _load(self, source: AsyncByteSource) -> list[EntryRun]:
        data = await source.read_at(0, source.size)
        try:
            states = pickle.loads(data)
        except Exception as error:  # whatever damage makes of a pickle
            raise DamagedSegmentError(f"{source.name} is damaged") from error
        return [EntryRun(*state) for state in states]

    async def entries(
        self, source: AsyncByteSource, ledger_id: int, first_entry: int, bytes_max: int
    ) -> list[EntryRun]:
        self.reads += 1
        runs = [run for run in await self._of(source, ledger_id) if run.last_entry >= first_entry]
        pairs = ((run, run.size_bytes) for run in runs)
        return cut(pairs, Position(ledger_id, first_entry), bytes_max, 1 << 60)

    async def _of(self, source: AsyncByteSource, ledger_id: int) -> list[EntryRun]:
        return [run for run in await self._load(source) if run.ledger_id == ledger_id]

    async def position_at(self, source: AsyncByteSource, ledger_id: int, time_ms: int) -> int | None:
        for run in await self._of(source, ledger_id):
            if run.broker_time_ms >= time_ms:
                return run.first_entry
        return None

    async def lookup(
        self, source: AsyncByteSource, key: bytes, count_max: int, before: MessagePlace | None = None
    ) -> list[FoundMessage]:
        # The log never looks a key up; `history` itself is tested for that.
        raise NotImplementedError

    async def merge_keys(self, sources: Sequence[KeySource], path: str) -> int:
        # As if there were too many keys.
        return 0

    async def find_key(self, source: AsyncByteSource, key: bytes) -> tuple[list[KeyPlace], list[KeyPlace]]:
        raise NotImplementedError

    async def verify(self, source: AsyncByteSource, runs: AsyncIterator[Sequence[EntryRun]]) -> int:
        wanted = rows_of([run async for vector in runs for run in vector])
        if rows_of(await self._load(source)) != wanted:
            raise DamagedSegmentError(f"{source.name} holds other entries")
        return len(wanted)

    async def verify_merged(self, source: AsyncByteSource, parts: Sequence[AsyncByteSource]) -> int:
        wanted = [_state(run) for part in parts for run in await self._load(part)]
        if [_state(run) for run in await self._load(source)] != wanted:
            raise DamagedSegmentError(f"{source.name} holds other entries")
        return sum(len(state[2]) for state in wanted)

    async def close(self) -> None:
        self.closed = True


def _state(run: EntryRun) -> tuple[Any, ...]:
    return (run.ledger_id, run.first_entry, run.entries, run.counts, run.base_index, run.broker_time_ms)


class FaultyStore:
    """A store that fails when the test wants it to, and remembers what was asked."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.url = store.url
        self.fault: Callable[[str, str], Exception | None] = lambda call, name: None
        """Asked before each call; what it returns is raised."""

    def _check(self, call: str, name: str) -> None:
        if (error := self.fault(call, name)) is not None:
            raise error

    async def put(self, name: str, file: Path) -> None:
        self._check("put", name)
        await self.store.put(name, file)

    async def get(self, name: str, start: int, length: int) -> bytes:
        self._check("get", name)
        return await self.store.get(name, start, length)

    async def size(self, name: str) -> int:
        self._check("size", name)
        return await self.store.size(name)

    async def read(self, name: str) -> Tagged | None:
        self._check("read", name)
        return await self.store.read(name)

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        self._check("swap", name)
        await self.store.swap(name, data, known)

    async def list(self, folder: str) -> AsyncIterator[Any]:
        self._check("list", folder)
        async for found in self.store.list(folder):
            yield found

    async def delete(self, name: str) -> None:
        self._check("delete", name)
        await self.store.delete(name)

    def file_of(self, name: str) -> Path | None:
        return None

    async def close(self) -> None:
        await self.store.close()


def refusal(what: str = "object") -> StoreError:
    """What a store says that answers 500."""
    return StoreError(what, "500 Internal Server Error", "it is tried again")


async def _no_schemas(log_name: str) -> tuple[str, Sequence[StoredTopicSchema]]:
    return f"topic of {log_name}", ()


class FakeTiering:
    """Tiered storage whose store and worker belong to the test."""

    def __init__(
        self,
        folder: Path,
        clock: ManualClock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        *,
        objects: FaultyStore | None = None,
        policy: OffloadPolicy | None = None,
        segment_bytes: int = 1 << 20,
        ids: Callable[[], UUID] | None = None,
    ) -> None:
        self.objects = objects or FaultyStore(MemoryStore(clock))
        self.worker = FakeWorker()
        self.new_worker: Callable[[bool], SegmentWorker] = lambda waited_for: self.worker
        """Gives the workers; another one puts real ones in its place."""
        self.open_store: Callable[[str], ObjectStore] = lambda url: self.objects
        """Gives the stores."""
        self.policy = policy or OffloadPolicy(deletion_lag_ms=0)
        numbers = itertools.count(1)
        self.new_id = ids or (lambda: UUID(int=next(numbers)))
        self.effects: list[Effect] = []
        self.on_effect: Callable[[Effect], None] = lambda effect: None
        self.storage = TieredStorage(
            CopyStores(MEMORY_URL, lambda url: self.open_store(url)),
            work_dir=folder,
            clock=clock,
            new_worker=lambda waited_for: self.new_worker(waited_for),
            spawn=spawn,
        )
        offloader = Offloader(
            self.storage,
            clock=clock,
            pace=Pace(),
            schemas_of=_no_schemas,
            segment_bytes=segment_bytes,
        )
        offloader.step = self._step
        self.offloading = Offloading(
            self.storage, offloader, default=self.policy, new_id=self.new_id, spawn=spawn
        )

    def _step(self, effect: Effect) -> None:
        self.effects.append(effect)
        self.on_effect(effect)


class TieredProcess(Process):
    """A process whose logs may be offloaded; its store outlives it."""

    def __init__(
        self,
        folder: Path,
        *,
        objects: FaultyStore | None = None,
        policy: OffloadPolicy | None = None,
        segment_bytes: int = 1 << 20,
        ids: Callable[[], UUID] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.tiering = FakeTiering(
            folder,
            self.clock,
            self.spawn,
            objects=objects,
            policy=policy,
            segment_bytes=segment_bytes,
            ids=ids,
        )
        self.objects = self.tiering.objects
        self.worker = self.tiering.worker
        self.effects = self.tiering.effects
        self.storage = self.tiering.storage
        self.offloading = self.tiering.offloading
        self.logs = ManagedLogs(
            store=self.store,
            ledgers=self.ledgers,
            clock=self.clock,
            config=self.config,
            spawn=self.spawn,
            tiers=self.storage,
        )

    def own_stores(self) -> StoreOwner:
        """Checks the owner of the store from now on, without waiting for other owners."""

        async def pause(seconds: float) -> None:
            self.clock.advance(int(seconds * 1000))

        context = OwnerContext(
            self.store,
            self.clock,
            lambda: installation_id(self.store, self.tiering.new_id),
            self.tiering.new_id,
            pause,
            5.0,
        )
        self.storage.owners = ObjectOwners(context, default_url="", alone=True)
        self.objects.url = "test://store"
        self.storage.url = "test://store"
        return self.storage.owners.of(self.objects)

    async def crash(self) -> TieredProcess:
        """kill -9; what is in the object store stays."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self._next(self.store.crash(), self.ledgers.crash())

    async def restart(self) -> TieredProcess:
        await self.logs.close()
        await self.settle()
        return self._next(self.store, self.ledgers)

    def _next(self, store: FakeMetadataStore, ledgers: FakeLedgers) -> TieredProcess:
        return TieredProcess(
            self.folder,
            objects=self.objects,
            policy=self.tiering.policy,
            segment_bytes=self.segment_bytes,
            ids=self.tiering.new_id,
            config=self.config,
            store=store,
            ledgers=ledgers,
            clock=self.clock,
        )

    def object_attempts(self) -> set[UUID]:
        """Attempts that have objects in the store."""
        found = set()
        for name in self.objects.store.objects:
            parsed = parse_object_name(name)
            assert parsed is not None
            found.add(parsed[2])
        return found
