"""Objects that no log names go; everything else stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from fakes.managed_logs import NAME, until
from fakes.tiered import TieredProcess
from magnetar.managedlog.config import Retention
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.managedlog.log_metadata import log_path
from magnetar.managedlog.orphan_objects import OrphanObjects
from magnetar.metadata.trust import MetadataTrust
from magnetar.tiered.context import attempt_prefix
from magnetar.tiered.errors import ReadOnlyStoreError
from magnetar.tiered.ownership import RECORD
from magnetar.tiered.policy import OffloadPolicy

DAY_MS = 86_400_000
LATER = attempt_prefix(NAME, 4, UUID(int=98)) + "-0.parquet"
ORPHAN = attempt_prefix(NAME, 3, UUID(int=99)) + "-0.parquet"


def search_of(process: TieredProcess, trust: MetadataTrust | None = None) -> OrphanObjects:
    return OrphanObjects(
        process.store,
        process.storage,
        trust=trust or MetadataTrust(),
        clock=process.clock,
        age_ms=DAY_MS,
    )


async def offloaded(folder: Path) -> tuple[TieredProcess, OrphanObjects]:
    """A process that has offloaded a ledger, and an object that no list names."""
    policy = OffloadPolicy(threshold_bytes=0, deletion_lag_ms=0)
    process = TieredProcess(folder, policy=policy, entries_max_per_ledger=2)
    search = search_of(process)
    process.own_stores()
    log, _ = await process.open()
    log.retention = Retention(ms=-1, size_bytes=-1)
    process.offloading.apply(log.offloading, {}, {})
    log.append([b"a", b"b"], None)
    await until(process, lambda: len(log.info().ledgers) == 2)
    await process.settle()
    await process.offloading.round()
    file = folder / "orphan"
    file.write_bytes(b"left by a crash")
    await process.objects.put(ORPHAN, file)
    await process.objects.put("a table of somebody/metadata.json", file)
    return process, search


def test_only_old_objects_that_nobody_names_go(tmp_path: Path) -> None:
    async def story() -> None:
        process, search = await offloaded(tmp_path)
        known = set(process.objects.store.objects)
        assert RECORD in known
        assert await search.round() == 0, "it may be an upload that goes on"
        process.clock.step(DAY_MS)
        assert await search.round() == 0, "also where the clock was set ahead"
        process.clock.step(-DAY_MS)
        process.clock.advance(DAY_MS)
        assert await search.round() == 1
        assert set(process.objects.store.objects) == known - {ORPHAN}
        assert process.storage.figures.orphans == 1

    asyncio.run(story())


def test_a_store_of_another_installation_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        process, _ = await offloaded(tmp_path)
        process.clock.advance(DAY_MS)
        known = dict(process.objects.store.objects)
        ids = iter([UUID(int=1000), UUID(int=1001)])
        other = TieredProcess(tmp_path, objects=process.objects, clock=process.clock, ids=lambda: next(ids))
        other.own_stores()
        with pytest.raises(ReadOnlyStoreError):
            await search_of(other).round()
        assert process.objects.store.objects == known

    asyncio.run(story())


def test_what_was_there_before_is_kept_until_somebody_decides(tmp_path: Path) -> None:
    """Metadata that was lost or is an older copy claims the store: it names nothing of what came since."""

    async def story() -> None:
        process, _ = await offloaded(tmp_path)
        process.clock.advance(DAY_MS)
        copies = set(process.objects.store.objects) - {RECORD}
        restored = TieredProcess(
            tmp_path, objects=process.objects, clock=process.clock, ids=lambda: UUID(int=next(numbers))
        )
        numbers = iter(range(1000, 2000))
        owner = restored.own_stores()
        await owner.claim()
        process.clock.advance(10 * DAY_MS)
        search = search_of(restored)
        assert await search.round() == 0
        assert set(process.objects.store.objects) - {RECORD} == copies
        assert restored.storage.figures.kept == len(copies) - 1, "all but what is no copy"
        # What comes later and is named by no list goes as ever.
        (tmp_path / "later").write_bytes(b"x")
        await process.objects.put(LATER, tmp_path / "later")
        process.clock.advance(DAY_MS)
        assert await search.round() == 1
        await owner.claim(sweep_earlier=True)
        assert await search.round() == len(copies) - 1

    asyncio.run(story())


def test_nothing_goes_while_metadata_is_doubted(tmp_path: Path) -> None:
    async def story() -> None:
        process, _ = await offloaded(tmp_path)
        process.clock.advance(DAY_MS)
        trust = MetadataTrust()
        trust.doubted("test", "it is an older copy")
        assert await search_of(process, trust).round() == 0
        trust.cleared("test")
        assert await search_of(process, trust).round() == 1

    asyncio.run(story())


def test_a_list_that_cannot_be_read_ends_the_search(tmp_path: Path) -> None:
    async def story() -> None:
        process, search = await offloaded(tmp_path)
        process.clock.advance(DAY_MS)
        await process.store.put(log_path("public/default/persistent/damaged"), b"\xff\xff")
        with pytest.raises(InvalidLogDataError):
            await search.round()
        assert ORPHAN in process.objects.store.objects

    asyncio.run(story())
