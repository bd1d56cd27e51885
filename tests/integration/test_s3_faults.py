"""S3's protocol on a bad day: what is refused, cut off or gone is tried again or said; nothing is left."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from fakes.managed_logs import read_all, until
from fakes.s3_server import FakeS3
from fakes.tiered import TieredProcess, rows_of
from magnetar.base.clock import ManualClock
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.tiered.errors import DamagedObjectError, MissingObjectError, StoreError, StoreSetupError
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.stores.object_store import ObjectStore
from magnetar.tiered.stores.retrying import RetryingStore
from magnetar.tiered.stores.urls import open_store

pytestmark = pytest.mark.one_process("own")

NAME = "public/default/persistent/a%2Fb c/0000-1.parquet"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-0123456789")
    with FakeS3() as server:
        yield server


def store_of(s3: FakeS3) -> ObjectStore:
    async def pause(seconds: float) -> None: ...

    return RetryingStore(open_store(s3.url, ManualClock()), pause)


def test_the_protocol(s3: FakeS3, tmp_path: Path) -> None:
    async def story() -> None:
        store = store_of(s3)
        for size in (10, 20 << 20):
            file = tmp_path / "object"
            file.write_bytes(bytes(range(10)) * (size // 10))
            await store.put(NAME, file)
            assert await store.size(NAME) == size // 10 * 10
            assert await store.get(NAME, 3, 4) == bytes(range(3, 7))
        assert s3.uploads == {}
        assert [found.name async for found in store.list("public/default/persistent/a%2Fb c")] == [NAME]
        with pytest.raises(DamagedObjectError):
            await store.get(NAME, 19 << 20, 2 << 20)
        await store.delete(NAME)
        with pytest.raises(MissingObjectError):
            await store.get(NAME, 0, 1)

    asyncio.run(story())


@pytest.mark.parametrize("fault", ["500", "503", "gone", "cut"])
def test_what_passes_is_tried_again(s3: FakeS3, tmp_path: Path, fault: str) -> None:
    async def story() -> None:
        store = store_of(s3)
        file = tmp_path / "object"
        file.write_bytes(b"0123456789")
        for what in ("put", "get", "size"):
            faults = iter([fault, fault])
            s3.fault = lambda method, key, faults=faults: next(faults, None)  # type: ignore[misc]
            if what == "put":
                await store.put(NAME, file)
            elif what == "get":
                assert await store.get(NAME, 2, 3) == b"234"
            else:
                assert await store.size(NAME) == 10

    asyncio.run(story())


def test_what_does_not_pass_is_said(s3: FakeS3, tmp_path: Path) -> None:
    async def story() -> None:
        store = store_of(s3)
        s3.fault = lambda method, key: "500"
        with pytest.raises(StoreError, match="history") as raised:
            await store.get(NAME, 0, 1)
        assert raised.value.retriable
        s3.fault = lambda method, key: "403"
        before = len(s3.requests)
        with pytest.raises(StoreSetupError, match="credentials"):
            await store.size(NAME)
        assert len(s3.requests) == before + 1

    asyncio.run(story())


async def filled(process: TieredProcess) -> ManagedLog:
    log, _ = await process.open()
    log.retention = Retention(ms=-1, size_bytes=-1)
    process.offloading.apply(log.offloading, {}, {})
    for number in range(2):
        log.append([b"%d %d" % (number, entry) * 50 for entry in range(4)], None)
        await until(process, lambda number=number: len(log.info().ledgers) > number + 1)  # type: ignore[misc]
    await process.settle()
    return log


@pytest.mark.parametrize("fault", ["500", "gone", "cut"])
def test_a_store_that_fails_now_and_then_loses_nothing(s3: FakeS3, tmp_path: Path, fault: str) -> None:
    async def story() -> None:
        policy = OffloadPolicy(threshold_bytes=0, deletion_lag_ms=0)
        process = TieredProcess(tmp_path, policy=policy, entries_max_per_ledger=4, cache_bytes=0)
        process.storage.url = s3.url
        process.tiering.open_store = lambda url: store_of(s3)
        log = await filled(process)
        before = rows_of(await read_all(log))
        turns = itertools.count()
        # Five in a row are more than are tried again: some attempts fail as a whole.
        s3.fault = lambda method, key: fault if next(turns) % 12 < 5 else None
        for _ in range(20):
            process.clock.advance(4_000_000)
            await process.offloading.round()
        assert process.storage.figures.errors > 0 or fault == "cut", "an answer without a body is never cut"
        s3.fault = lambda method, key: None
        for _ in range(2):
            process.clock.advance(4_000_000)
            await process.offloading.round()
        assert process.storage.figures.local_deleted == 2
        assert rows_of(await read_all(log)) == before
        attempts = {
            str(ledger.offload.attempt) for ledger in log.info().ledgers if ledger.offload is not None
        }
        assert {key.rpartition("/")[2][20:56] for key in s3.objects} == attempts
        await process.logs.delete(log.name)
        assert s3.objects == {}

    asyncio.run(story())
