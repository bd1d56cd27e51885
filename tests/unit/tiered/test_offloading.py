"""Offloading of a log over fakes: copy, read back, delete; a crash and a fault at every step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fakes.managed_logs import read_all, until
from fakes.tiered import TieredProcess, refusal, rows_of
from magnetar.base.entries import EntryRun
from magnetar.base.errors import DiskFullError, LostEntriesError, MetadataError
from magnetar.base.ids import LATEST, Position
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.visible import Visible
from magnetar.metadata.store import Stat
from magnetar.observability.metrics import Registry
from magnetar.tiered.api import LedgerMovedError
from magnetar.tiered.attempt import DiscardObjects, Effect, Remember
from magnetar.tiered.ownership import RECORD
from magnetar.tiered.parquet.parquet_history import SegmentOrigin
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.request import OffloadRunningError, OffloadStatus

KEEP = Retention(ms=-1, size_bytes=-1)
EVERYTHING = OffloadPolicy(threshold_bytes=0, deletion_lag_ms=0)


async def filled(process: TieredProcess, ledgers: int = 2, entries: int = 6) -> ManagedLog:
    """A log with so many sealed ledgers, and a current one that is not empty."""
    log, _ = await process.open()
    log.retention = KEEP
    process.offloading.apply(log.offloading, {}, {})
    known = len(log.info().ledgers)
    for number in range(ledgers):
        for entry in range(entries // 2):
            process.clock.advance(100)
            text = b"%d/%d " % (number, entry)
            log.append([text * 10, text * 20], [1, 3])
        await until(process, lambda number=number: len(log.info().ledgers) > known + number)  # type: ignore[misc]
    log.append([b"tail"], None)
    await process.settle()
    return log


def new_process(folder: Path, **options: object) -> TieredProcess:
    # Nothing is kept in memory: what is read comes from a ledger or its copy.
    limits = {"entries_max_per_ledger": 6, "cache_bytes": 0}
    return TieredProcess(folder, segment_bytes=150, **limits, **options)  # type: ignore[arg-type]


async def offload(process: TieredProcess, log: ManagedLog) -> OffloadStatus:
    process.offloading.offload(log.offloading, log.last_position)
    await finished(process)
    return process.offloading.request_of(log.offloading).status


async def finished(process: TieredProcess) -> None:
    """Waits for everything under way; files are behind threads."""
    while process.tasks:
        tasks = list(process.tasks)
        process.tasks.difference_update(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)


async def rounds(process: TieredProcess, count: int = 2) -> None:
    for _ in range(count):
        await process.offloading.round()
    await process.settle()


def test_a_reader_cannot_tell(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        local = set(process.ledgers.ledgers)
        assert await offload(process, log) is OffloadStatus.SUCCESS
        info = log.info()
        assert [ledger.offloaded for ledger in info.ledgers] == [True, True, False]
        assert log.offloading.offloaded_bytes == sum(ledger.size_bytes for ledger in info.ledgers[:2])
        assert set(process.ledgers.ledgers) == local, "nothing leaves the bookies before its lag"
        assert process.offloading.request_of(log.offloading).first_not_offloaded == Position(
            info.ledgers[2].ledger_id, 0
        )
        await rounds(process)
        assert [ledger.offload.local_deleted for ledger in info.ledgers[:2] if ledger.offload] == [False] * 2
        assert len(process.ledgers.ledgers) == len(local) - 2
        assert rows_of(await read_all(log)) == before
        assert rows_of(await read_all(log, entries_max=1)) == before
        assert rows_of(await read_all(log, bytes_max=1)) == before
        assert len(process.objects.store.objects) > 2, "a ledger is copied in several segments"
        log.check()
        process.storage.cache.check()

        after = await process.restart()
        again, _ = await after.open()
        assert rows_of(await read_all(again)) == before

    asyncio.run(story())


def test_a_copy_has_what_readers_get_and_all_places(tmp_path: Path) -> None:
    """Copies of ledgers are without messages of aborted transactions, and cursors go over these."""

    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process)
        first, second = (ledger.ledger_id for ledger in log.info().ledgers[:2])
        log.reading.visible = visible = Visible()
        visible.hide(first, 1, 3)
        # All of a ledger.
        visible.hide(second, 0, 5)
        before = rows_of(await read_all(log))
        assert [row[0] for row in before] == [0, 4, 5, 0]
        visible.unkept["transaction"] = {second}
        await offload(process, log)
        assert [ledger.offloaded for ledger in log.info().ledgers] == [True, False, False]
        visible.unkept.clear()
        await offload(process, log)
        await rounds(process)
        assert [ledger.offload.local_deleted for ledger in log.info().ledgers[:2] if ledger.offload] == [
            True,
            True,
        ]
        objects = b"".join(data for data in map(bytes, process.objects.store.objects.values()))
        assert objects.count(b"0/0 ") == 10, "what is hidden is in no object"
        for entries_max in (1, 100):
            assert rows_of(await read_all(log, entries_max=entries_max)) == before
        assert [ledger.entries for ledger in log.info().ledgers[:2]] == [6, 6]
        assert await log.position_of_index(before[-1][3]) == Position(log.last_position.ledger_id, 0)

    asyncio.run(story())


def test_times_and_indexes_are_found_in_copies(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process)
        runs = await read_all(log)
        times = sorted({run.broker_time_ms for run in runs})
        wanted = {time_ms: await log.position_of_time(time_ms - 1) for time_ms in times}
        indexes = {index: await log.position_of_index(index) for index in range(log.next_index)}
        await rounds(process)
        assert not any(ledger.local for ledger in list(log._ledgers)[:2])
        reads = process.worker.reads
        assert {time_ms: await log.position_of_time(time_ms - 1) for time_ms in times} == wanted
        assert process.worker.reads == reads, "times are looked up in the copy's own index"
        assert {index: await log.position_of_index(index) for index in indexes} == indexes

    asyncio.run(story())


def test_thresholds_and_lags_are_kept(tmp_path: Path) -> None:
    async def story() -> None:
        policy = OffloadPolicy(threshold_s=3600, deletion_lag_ms=60_000)
        process = new_process(tmp_path, policy=policy)
        log = await filled(process)
        await rounds(process)
        assert process.effects == []
        process.clock.advance(3_600_000)
        await rounds(process)
        assert [ledger.offloaded for ledger in log.info().ledgers] == [True, True, False]
        assert process.storage.figures.local_deleted == 0
        process.clock.step(3_600_000)
        await rounds(process)
        assert process.storage.figures.local_deleted == 0, "the clock was set"
        process.clock.step(-3_600_000)
        process.clock.advance(60_000)
        await rounds(process)
        assert process.storage.figures.local_deleted == 2
        effects = len(process.effects)
        await rounds(process)
        assert len(process.effects) == effects, "what is done is done once"

    asyncio.run(story())


def effects_of_one_attempt(folder: Path) -> int:
    async def story() -> int:
        process = new_process(folder)
        log = await filled(process, ledgers=1)
        await offload(process, log)
        return len(process.effects)

    return asyncio.run(story())


class KilledError(Exception):
    """The process ends here."""


def test_a_crash_at_every_step_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    steps = effects_of_one_attempt(tmp_path)
    assert steps > 6

    async def story(step: int) -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))

        def die(effect: Effect) -> None:
            if len(process.effects) == step:
                raise KilledError

        process.tiering.on_effect = die
        process.offloading.offload(log.offloading, log.last_position)
        await finished(process)
        after = await process.crash()
        again = await reopened(after)
        assert rows_of(await read_all(again)) == before
        assert await offload(after, again) is OffloadStatus.SUCCESS
        await rounds(after)
        assert rows_of(await read_all(again)) == before
        named = {ledger.offload.attempt for ledger in again.info().ledgers if ledger.offload is not None}
        assert after.object_attempts() == named, "nothing is left of attempts that did not end"

    for step in range(1, steps + 1):
        asyncio.run(story(step))
        assert list(tmp_path.iterdir()) == []


async def reopened(process: TieredProcess) -> ManagedLog:
    log, _ = await process.open()
    log.retention = KEEP
    process.offloading.apply(log.offloading, {}, {})
    return log


@pytest.mark.parametrize("call", ["put", "size", "get", "list"])
def test_a_store_that_fails_changes_nothing(tmp_path: Path, call: str) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process)
        before = rows_of(await read_all(log))
        process.objects.fault = lambda asked, name: refusal(name) if asked == call else None
        if call == "list":
            # Lists are asked for only to clean up after another failure.
            process.objects.fault = lambda asked, name: refusal(name) if asked in ("list", "get") else None
        await rounds(process, 1)
        assert process.storage.figures.errors == 1
        assert rows_of(await read_all(log)) == before
        assert len(process.ledgers.ledgers) >= 3
        effects = len(process.effects)
        await rounds(process)
        assert len(process.effects) == effects, "it waits before it tries again"
        process.objects.fault = lambda asked, name: None
        process.clock.advance(60_000)
        await rounds(process)
        assert rows_of(await read_all(log)) == before
        named = {ledger.offload.attempt for ledger in log.info().ledgers if ledger.offload is not None}
        assert process.object_attempts() == named
        assert [ledger.offloaded for ledger in log.info().ledgers] == [True, True, False]

    asyncio.run(story())


def damage_object(process: TieredProcess, *, truncate: bool) -> None:
    objects = process.objects.store.objects
    for name, data in objects.items():
        objects[name] = data[: len(data) // 2] if truncate else data[:-20] + b"x" + data[-19:]


@pytest.mark.parametrize("truncate", [True, False])
def test_a_damaged_upload_is_found_before_it_counts(tmp_path: Path, truncate: bool) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process, ledgers=1)
        process.objects.fault = lambda call, name: (
            damage_object(process, truncate=truncate) if call == "size" else None
        )
        assert await offload(process, log) is OffloadStatus.ERROR
        assert process.offloading.request_of(log.offloading).error
        assert not any(ledger.offloaded for ledger in log.info().ledgers)
        assert process.objects.store.objects == {}

    asyncio.run(story())


def test_objects_that_vanish_before_the_lag_ends_keep_the_ledger(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process, ledgers=1)
        before = rows_of(await read_all(log))
        await offload(process, log)
        process.objects.store.objects.clear()
        await rounds(process, 1)
        assert process.storage.figures.local_deleted == 0
        assert log.info().ledgers[0].offloaded, "it was copied anew"
        await rounds(process, 1)
        assert process.storage.figures.local_deleted == 1
        assert rows_of(await read_all(log)) == before

    asyncio.run(story())


@pytest.mark.leaves("the log stays open, and reads ahead")
def test_a_missing_object_is_named_with_its_log(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process, ledgers=1)
        await rounds(process)
        name = min(process.objects.store.objects)
        data = process.objects.store.objects.pop(name)
        with pytest.raises(LostEntriesError) as raised:
            await log.read(log.first_position, 100, 100)
        assert name in str(raised.value)
        assert log.name in str(raised.value)
        assert not raised.value.retriable
        process.objects.store.objects[name] = data
        assert await log.read(log.first_position, 100, 100), "it is read as soon as it is back"

    asyncio.run(story())


def test_missing_objects_of_a_store_that_is_there_are_passed_over_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    """A store that is not mounted has no object either: no reader is led past it."""

    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process, ledgers=1)
        before = await read_all(log)
        await rounds(process)
        objects = process.objects.store.objects
        name = min(objects)
        assert process.logs.holes.skip_all is False
        process.logs.holes.skip_all = True
        data = objects.pop(name)
        with pytest.raises(LostEntriesError) as raised:
            await log.read(log.first_position, 100, 100)
        assert not raised.value.certain
        with pytest.raises(LostEntriesError):
            await log.reading.read_intact(log.first_position, 100, 100)
        await process.objects.swap(RECORD, b"", None)
        first, last = raised.value.first_entry, raised.value.last_entry
        assert last is not None
        runs = await log.read(log.first_position, 100, 100)
        assert runs[0].first_entry == last + 1
        assert log.reading.skipped is not None
        ledger_id = runs[0].ledger_id
        assert log.reading.skipped.shown() == [f"{ledger_id}:{first}-{last}"]
        assert process.logs.holes.skipped_entries == last - first + 1
        objects[name] = data
        again, _ = await (await process.restart()).open()
        assert rows_of(await read_all(again)) == rows_of(before), "what is back is read again"

    asyncio.run(story())


def test_what_was_given_up_is_passed_over_whatever_the_store_says(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process, ledgers=1)
        await rounds(process)
        process.objects.store.objects.pop(min(process.objects.store.objects))
        with pytest.raises(LostEntriesError) as raised:
            await log.read(log.first_position, 100, 100)
        last = raised.value.last_entry
        assert last is not None
        process.logs.holes.given_up = lambda: {log.first_position.ledger_id: [(0, last)]}
        assert (await log.read(log.first_position, 100, 100))[0].first_entry == last + 1

    asyncio.run(story())


def test_what_the_bookies_lost_is_read_from_the_copy(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        assert await offload(process, log) is OffloadStatus.SUCCESS
        ledger_id = log.first_position.ledger_id
        process.ledgers.ledgers[ledger_id].lost = {1, 2}
        assert rows_of(await read_all(log)) == before
        assert log.reading.skipped is None
        process.objects.store.objects.clear()
        context = log.info().ledgers[0].offload
        assert context is not None
        process.storage.cache.forget(context.attempt)
        with pytest.raises(LostEntriesError, match="fake"):
            await read_all(log)

    asyncio.run(story())


def test_another_owner_ends_an_attempt(tmp_path: Path) -> None:
    async def story() -> None:
        first = new_process(tmp_path)
        log = await filled(first)
        second = new_process(
            tmp_path,
            objects=first.objects,
            ids=first.tiering.new_id,
            store=first.store,
            ledgers=first.ledgers,
            clock=first.clock,
        )

        async def take_over() -> None:
            await reopened(second)

        taken: list[asyncio.Task[None]] = []

        def race(effect: Effect) -> None:
            if isinstance(effect, Remember) and effect.context.complete and not taken:
                taken.append(asyncio.get_running_loop().create_task(take_over()))

        gate = asyncio.Event()
        remember = log.offloading.remember

        async def late(*arguments: object) -> None:
            if taken:
                await taken[0]
                gate.set()
            await remember(*arguments)  # type: ignore[arg-type]

        log.offloading.remember = late  # type: ignore[assignment,method-assign]
        first.tiering.on_effect = race
        assert await offload(first, log) is OffloadStatus.ERROR
        assert gate.is_set()
        assert log.state.value == "fenced"
        again = second.logs.opened(log.name)
        assert again is not None
        assert await offload(second, again) is OffloadStatus.SUCCESS
        named = {ledger.offload.attempt for ledger in again.info().ledgers if ledger.offload is not None}
        assert second.object_attempts() == named

    asyncio.run(story())


def test_a_stored_list_that_may_have_changed_keeps_the_objects(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process, ledgers=1)

        def lose(effect: Effect) -> None:
            if isinstance(effect, Remember) and effect.context.complete:
                process.store.put_errors.append(MetadataError("the answer was lost"))

        process.tiering.on_effect = lose
        assert await offload(process, log) is OffloadStatus.ERROR
        assert process.objects.store.objects, "the list may name them as complete"
        assert not any(isinstance(effect, DiscardObjects) for effect in process.effects)

    asyncio.run(story())


def test_retention_deletes_objects_too(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process)
        await rounds(process)
        assert process.objects.store.objects
        process.objects.fault = lambda call, name: refusal(name) if call == "delete" else None
        log.retention = Retention()
        await until(process, lambda: len(log.info().ledgers) == 1)
        await process.settle()
        assert process.objects.store.objects, "the store could not delete them"
        after = await process.crash()
        after.objects.fault = lambda call, name: None
        await after.open()
        await after.settle()
        assert after.objects.store.objects == {}, "they are noted until they are gone"

    asyncio.run(story())


def test_deleting_a_log_deletes_its_objects(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process)
        await rounds(process)
        await process.logs.delete(log.name)
        assert process.objects.store.objects == {}
        assert process.ledgers.ledgers == {}

    asyncio.run(story())


def test_deleting_a_log_ends_its_offload(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        deletion: list[asyncio.Task[None]] = []

        def delete(effect: Effect) -> None:
            if len(process.effects) == 3:
                deletion.append(asyncio.get_running_loop().create_task(process.logs.delete(log.name)))

        process.tiering.on_effect = delete
        assert await offload(process, log) is OffloadStatus.ERROR
        await deletion[0]
        await process.settle()
        assert process.objects.store.objects == {}

    asyncio.run(story())


def test_one_request_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        process.offloading.offload(log.offloading, LATEST)
        with pytest.raises(OffloadRunningError):
            process.offloading.offload(log.offloading, LATEST)
        await finished(process)
        assert process.offloading.request_of(log.offloading).status is OffloadStatus.SUCCESS

    asyncio.run(story())


def test_attempts_have_ids_of_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        await offload(process, log)
        attempts = [ledger.offload.attempt for ledger in log.info().ledgers if ledger.offload is not None]
        assert attempts == [UUID(int=1), UUID(int=2)]

    asyncio.run(story())


def test_readers_go_on_while_a_ledger_leaves(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        await offload(process, log)
        # Every read has to wait for a device, so that the ledger goes while reads are under way.
        process.ledgers.reads_wait = True
        ledgers = [ledger.ledger_id for ledger in log.info().ledgers[:2]]

        async def leave() -> None:
            for ledger_id in ledgers:
                await asyncio.sleep(0)
                await log.offloading.delete_local(ledger_id)

        found = await asyncio.gather(*(read_all(log, entries_max=1) for _ in range(20)), leave())
        assert all(rows_of(runs) == before for runs in found[:-1] if runs is not None)
        assert rows_of(await read_all(log)) == before
        with pytest.raises(LedgerMovedError):
            await log.offloading.delete_local(log.info().ledgers[-1].ledger_id)

    asyncio.run(story())


def test_figures_are_shown(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process)
        await rounds(process)
        await read_all(log)
        await log.position_of_time(0)
        registry = Registry()
        registry.collector(process.storage.figures.collect)
        text = "".join(registry.scrape())
        assert "magnetar_offloaded_ledgers_total 2" in text
        assert "magnetar_offload_local_deleted_total 2" in text
        assert "brk_ledgeroffloader_read_offload_error 0" in text
        assert "brk_ledgeroffloader_read_offload_data_latency_seconds_count 0" not in text
        assert 'brk_ledgeroffloader_delete_offload_ops{status="succeed"} 0' in text

    asyncio.run(story())


def test_nothing_is_converted_for_a_store_that_does_not_answer(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path, policy=EVERYTHING)
        log = await filled(process)

        async def ask() -> None:
            raise refusal("the store")

        process.offloading.before_each = ask
        await rounds(process)
        assert process.effects == []
        assert await offload(process, log) is OffloadStatus.ERROR
        assert "500" in process.offloading.request_of(log.offloading).error

    asyncio.run(story())


def test_a_full_disk_ends_an_attempt_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))

        async def full(runs: AsyncIterator[Sequence[EntryRun]], origin: SegmentOrigin, path: str) -> None:
            await anext(runs)
            raise DiskFullError(f"no room left for {path}")

        with monkeypatch.context() as patch:
            patch.setattr(process.worker, "convert", full)
            assert await offload(process, log) is OffloadStatus.ERROR
        assert "no room left" in process.offloading.request_of(log.offloading).error
        assert process.objects.store.objects == {}
        log.append([b"goes on"], None)
        await process.settle()
        assert await offload(process, log) is OffloadStatus.SUCCESS
        assert rows_of(await read_all(log))[: len(before)] == before

    asyncio.run(story())


def test_a_copy_that_counts_without_our_knowing_is_not_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process, ledgers=1)
        before = rows_of(await read_all(log))
        put = process.store.put

        async def put_and_lose_the_answer(*arguments: Any, **options: Any) -> Stat:
            process.store.put = put  # type: ignore[method-assign]
            await put(*arguments, **options)
            raise MetadataError("the answer was lost")

        def lose(effect: Effect) -> None:
            if isinstance(effect, Remember) and effect.context.complete:
                process.store.put = put_and_lose_the_answer  # type: ignore[method-assign]

        process.tiering.on_effect = lose
        assert await offload(process, log) is OffloadStatus.ERROR
        objects = dict(process.objects.store.objects)
        assert await offload(process, log) is OffloadStatus.ERROR, "the list is not what this process knows"
        assert process.objects.store.objects == objects
        again = await reopened(process)
        assert again is not log
        assert [ledger.offloaded for ledger in again.info().ledgers] == [True, False, False]
        await rounds(process)
        assert process.storage.figures.local_deleted == 1
        assert rows_of(await read_all(again)) == before

    asyncio.run(story())
