"""Small objects become one: which ones, a crash and a fault at every step, retention, another owner."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from fakes.managed_logs import read_all, until
from fakes.tiered import TieredProcess, refusal, rows_of
from magnetar.base.errors import MetadataError
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_metadata import decode, encode
from magnetar.tiered.api import SealedLedger
from magnetar.tiered.context import (
    LedgerRange,
    OffloadContext,
    OffloadedCopy,
    OffloadedSegment,
    parse_object_name,
)
from magnetar.tiered.merger import MergeError
from magnetar.tiered.merging import CHEAP_BYTES, LEDGERS_MAX, MergeLimits, plan
from magnetar.tiered.policy import OffloadPolicy

KEEP = Retention(ms=-1, size_bytes=-1)
LAG_MS = 60_000
POLICY = OffloadPolicy(threshold_bytes=0, deletion_lag_ms=LAG_MS)
LEDGERS = 5
STEPS = ("note", "write", "upload", "compare", "name", "done")
MIB = 1 << 20


# ------------------------------------------------------------ which


def ledgers(*sizes: int, **copy: object) -> list[SealedLedger]:
    """One for each size of an object; 0 for one that has none."""
    found = []
    for number, size in enumerate(sizes):
        context = OffloadContext(
            UUID(int=number + 1),
            "file:///x",
            complete=True,
            local_deleted=True,
            segments=(OffloadedSegment(0, 9, size),),
            **copy,  # type: ignore[arg-type]
        )
        found.append(SealedLedger(number, 10, 2 * size, number * 1000, context if size else None))
    return found


def planned(found: list[SealedLedger], limits: MergeLimits | None = None) -> list[list[int]]:
    groups = plan(found, limits or MergeLimits(100 * MIB))
    return [[ledger.ledger_id for block in group for ledger in block.ledgers] for group in groups]


def test_small_neighbours_are_merged_up_to_the_target() -> None:
    assert planned(ledgers(*[30 * MIB] * 7)) == [[0, 1, 2], [3, 4, 5]]
    assert planned(ledgers(MIB, MIB, 60 * MIB, MIB, MIB)) == [[0, 1], [3, 4]], "large ones stay"
    assert planned(ledgers(MIB, MIB, 0, MIB, MIB)) == [[0, 1], [3, 4]], "neighbours alone"
    assert planned(ledgers(MIB)) == planned([]) == planned(ledgers(0, 0)) == []


def test_ledgers_that_the_bookies_have_stay_as_they_are() -> None:
    for copy in ({"local_deleted": False}, {"complete": False}, {"foreign": b"x"}):
        changed = [
            replace(ledger, offload=replace(ledger.offload, **copy))  # type: ignore[type-var]
            for ledger in ledgers(MIB, MIB)
        ]
        assert planned(changed) == [], copy


def test_what_gains_little_is_left_alone() -> None:
    """However often a reader asks: each time what a byte lies in grows by half."""
    assert planned(ledgers(40 * MIB, MIB, MIB)) == [[1, 2]]
    assert planned(ledgers(MIB, 40 * MIB, MIB)) == []
    assert planned(ledgers(20 * MIB, 10 * MIB)) == [[0, 1]]
    assert planned(ledgers(CHEAP_BYTES // 2, 1)) == [[0, 1]], "this costs nothing"


def test_an_object_has_a_part_of_what_retention_keeps() -> None:
    found = ledgers(*[MIB] * 8)
    assert planned(found, MergeLimits.under(100 * MIB, (-1, -1))) == [list(range(8))]
    # Last entries are a second apart.
    assert planned(found, MergeLimits.under(100 * MIB, (30_000, -1))) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert planned(found, MergeLimits.under(100 * MIB, (-1, 40 * MIB))) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert planned(found, MergeLimits.under(100 * MIB, (0, 0))) == [], "they go soon"


def test_objects_that_were_merged_are_merged_again_as_a_whole() -> None:
    found = ledgers(2 * MIB, 2 * MIB, 3 * MIB, 3 * MIB)
    one = replace(found[0].offload, merged=LedgerRange(0, 1))  # type: ignore[type-var]
    found[:2] = [replace(ledger, offload=one) for ledger in found[:2]]
    (group,) = plan(found, MergeLimits(100 * MIB))
    assert [len(block.ledgers) for block in group] == [2, 1, 1]
    assert sum(block.file_bytes for block in group) == 8 * MIB
    many = ledgers(*[10] * (LEDGERS_MAX + 10))
    assert [len(group) for group in plan(many, MergeLimits())] == [LEDGERS_MAX, 10]


# ------------------------------------------------------------ how


def new_process(folder: Path, **options: object) -> TieredProcess:
    limits = {"entries_max_per_ledger": 6, "cache_bytes": 0}
    return TieredProcess(folder, policy=POLICY, **limits, **options)  # type: ignore[arg-type]


async def filled(process: TieredProcess, count: int = LEDGERS) -> ManagedLog:
    """A log whose sealed ledgers are in the store alone."""
    log, _ = await process.open()
    log.retention = KEEP
    for number in range(count):
        process.clock.advance(100)
        log.append([b"%d/%d " % (number, entry) * 5 for entry in range(6)], [1, 3, 1, 1, 2, 1])
        await until(process, lambda number=number: len(log.info().ledgers) > number + 1)  # type: ignore[misc]
    log.append([b"tail"], None)
    await process.settle()
    await offloaded(process, log)
    return log


async def offloaded(process: TieredProcess, log: ManagedLog) -> None:
    process.offloading.apply(log.offloading, {}, {})
    await process.offloading.round()
    process.clock.advance(LAG_MS)
    await process.offloading.round()
    await process.settle()


async def merge(process: TieredProcess, log: ManagedLog, *, dry_run: bool = False) -> tuple[int, int]:
    seen: list[tuple[int, int]] = []
    merged = await process.offloading.merge(
        log.offloading,
        target_bytes=100 * MIB,
        dry_run=dry_run,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    return merged.files, merged.made


def named(log: ManagedLog) -> set[UUID]:
    return {ledger.offload.attempt for ledger in log.info().ledgers if ledger.offload is not None}


def test_a_reader_cannot_tell(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        times = {time_ms: await log.position_of_time(time_ms) for *_, time_ms in before}
        assert await merge(process, log, dry_run=True) == (LEDGERS, 1)
        assert len(named(log)) == LEDGERS
        reader = log.info().ledgers[0].offload
        assert await merge(process, log) == (LEDGERS, 1)
        (attempt,) = named(log)
        assert await merge(process, log) == (0, 0), "there is nothing left to do"
        for options in ({}, {"entries_max": 1}, {"bytes_max": 1}):
            assert rows_of(await read_all(log, **options)) == before
        assert {time_ms: await log.position_of_time(time_ms) for time_ms in times} == times
        log.check()
        process.storage.cache.check()

        # A reader with the old objects reads on until the lag is over.
        assert reader is not None
        assert process.object_attempts() >= {attempt, reader.attempt}
        await process.offloading.round()
        assert len(process.object_attempts()) == LEDGERS + 1
        process.clock.advance(LAG_MS)
        await process.offloading.round()
        assert process.object_attempts() == {attempt}
        assert rows_of(await read_all(log)) == before

        after = await process.restart()
        again, _ = await after.open()
        assert rows_of(await read_all(again)) == before
        assert named(again) == {attempt}

    asyncio.run(story())


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step(tmp_path: Path, step: str) -> None:
    class Killed(BaseException):
        pass

    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))

        def kill(at: str) -> None:
            if at == step:
                raise Killed

        process.offloading.merger.step = kill
        with pytest.raises(Killed):
            await merge(process, log)
        after = await process.crash()
        again, _ = await after.open()
        again.retention = KEEP
        assert rows_of(await read_all(again)) == before
        await after.settle()
        await offloaded(after, again)
        assert after.object_attempts() == named(again), "nothing is left over"
        # The ledger that was open at the crash is one more.
        assert len(named(again)) == (1 if step == "done" else LEDGERS) + 1
        await merge(after, again)
        assert len(named(again)) == 1
        assert rows_of(await read_all(again)) == before

    asyncio.run(story())


@pytest.mark.parametrize("call", ["put", "size", "get"])
def test_a_store_that_fails_changes_nothing(tmp_path: Path, call: str) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        process.objects.fault = lambda asked, name: refusal(name) if asked == call else None
        with pytest.raises(MergeError) as raised:
            await merge(process, log)
        assert raised.value.retriable
        assert log.name in str(raised.value)
        process.objects.fault = lambda asked, name: None
        await process.offloading.round()
        assert process.object_attempts() == named(log)
        assert len(named(log)) == LEDGERS
        assert rows_of(await read_all(log)) == before

    asyncio.run(story())


def test_a_damaged_upload_is_found_before_it_counts(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        objects = process.objects.store.objects
        known = set(objects)

        def damage(step: str) -> None:
            if step == "compare":
                (name,) = set(objects) - known
                objects[name] = objects[name][:-20] + b"x" + objects[name][-19:]

        process.offloading.merger.step = damage
        with pytest.raises(MergeError):
            await merge(process, log)
        await process.offloading.round()
        assert set(objects) == known
        assert rows_of(await read_all(log)) == before

    asyncio.run(story())


def test_a_missing_object_is_named_and_nothing_else_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        gone = sorted(process.objects.store.objects)[2]
        del process.objects.store.objects[gone]
        with pytest.raises(MergeError, match=gone.rpartition("/")[2]) as raised:
            await merge(process, log)
        assert not raised.value.retriable
        assert len(named(log)) == LEDGERS

    asyncio.run(story())


def test_a_stored_list_that_may_have_changed_keeps_the_object(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        put = process.store.put

        def lose_the_answer(step: str) -> None:
            async def late(*arguments: object, **options: object) -> object:
                process.store.put = put  # type: ignore[method-assign]
                await put(*arguments, **options)  # type: ignore[arg-type]
                raise MetadataError("no answer")

            if step == "name":
                process.store.put = late  # type: ignore[assignment, method-assign]

        process.offloading.merger.step = lose_the_answer
        with pytest.raises(MetadataError):
            await merge(process, log)
        await process.offloading.round()
        await process.settle()
        after = await process.crash()
        again, _ = await after.open()
        assert len(named(again)) == 1
        assert rows_of(await read_all(again)) == before

    asyncio.run(story())


def test_another_owner_ends_a_merge(tmp_path: Path) -> None:
    async def story() -> None:
        first = new_process(tmp_path)
        log = await filled(first)
        before = rows_of(await read_all(log))
        second = new_process(
            tmp_path,
            objects=first.objects,
            ids=first.tiering.new_id,
            store=first.store,
            ledgers=first.ledgers,
            clock=first.clock,
        )
        end_merge = log.offloading.end_merge

        async def late(*arguments: object) -> None:
            await second.open()
            await second.settle()
            await end_merge(*arguments)  # type: ignore[arg-type]

        log.offloading.end_merge = late  # type: ignore[assignment, method-assign]
        with pytest.raises(Exception, match="another owner"):
            await merge(first, log)
        assert log.state.value == "fenced"
        again = second.logs.opened(log.name)
        assert again is not None
        again.retention = KEEP
        assert second.object_attempts() == named(again)
        assert rows_of(await read_all(again)) == before
        assert (await merge(second, again))[1] == 1
        assert rows_of(await read_all(again)) == before

    asyncio.run(story())


def test_retention_takes_an_object_as_a_whole(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        await merge(process, log)
        process.clock.advance(LAG_MS)
        await process.offloading.round()
        first, *_ = sizes = [ledger.size_bytes for ledger in log.info().ledgers]
        # The first two ledgers could go, were it not for the others.
        log.retention = Retention(ms=-1, size_bytes=sum(sizes) - 2 * first)
        await log.trim()
        await process.settle()
        assert len(log.info().ledgers) == LEDGERS + 1
        assert len(process.object_attempts()) == 1
        log.retention = Retention(ms=-1, size_bytes=0)
        await log.trim()
        await process.settle()
        assert len(log.info().ledgers) == 1
        assert process.object_attempts() == set()

    asyncio.run(story())


def test_a_ledger_that_goes_meanwhile_ends_a_merge(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        end_merge = log.offloading.end_merge

        async def late(*arguments: object) -> None:
            sizes = [ledger.size_bytes for ledger in log.info().ledgers]
            log.retention = Retention(ms=-1, size_bytes=sum(sizes) - sizes[0])
            await log.trim()
            await end_merge(*arguments)  # type: ignore[arg-type]

        log.offloading.end_merge = late  # type: ignore[assignment, method-assign]
        with pytest.raises(Exception, match="changed meanwhile"):
            await merge(process, log)
        await process.offloading.round()
        await process.settle()
        assert len(named(log)) == LEDGERS - 1
        assert process.object_attempts() == named(log)

    asyncio.run(story())


def test_only_files_with_the_same_fields_are_merged(tmp_path: Path) -> None:
    """In one file with a newer version's fields, older values would lose theirs."""

    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        before = rows_of(await read_all(log))
        process.worker.alike_runs = (2, 1, 2)
        assert await merge(process, log, dry_run=True) == (4, 2)
        assert await merge(process, log) == (4, 2)
        assert len(named(log)) == 3
        assert rows_of(await read_all(log)) == before

    asyncio.run(story())


def test_a_topic_that_is_deleted_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        await merge(process, log)
        await process.logs.delete(log.name)
        assert process.objects.store.objects == {}

    asyncio.run(story())


# ------------------------------------------------------------ what is stored


def test_the_stored_list_names_shared_objects(tmp_path: Path) -> None:
    async def story() -> None:
        process = new_process(tmp_path)
        log = await filled(process)
        await merge(process, log)
        metadata = log.offloading._stored.metadata
        assert decode(encode(metadata), "here") == metadata
        contexts = [ledger.offload for ledger in metadata.ledgers if ledger.offload is not None]
        ids = [ledger.ledger_id for ledger in metadata.ledgers]
        assert {context.merged for context in contexts} == {LedgerRange(ids[0], ids[LEDGERS - 1])}
        assert [context.segments[0].last_entry for context in contexts] == [5] * LEDGERS
        assert len(metadata.copies) == LEDGERS + 1
        assert log.offloading.replaced == LEDGERS
        (name,) = [name for name in process.objects.store.objects if "-to-" in name]
        parsed = parse_object_name(name)
        assert parsed is not None
        assert parsed[1:] == (ids[0], contexts[0].attempt)
        # An object goes with the last of its ledgers.
        left = metadata.without(frozenset(ids[:2]))
        assert len(left.deleted_copies) == LEDGERS
        assert left.without(frozenset(ids[2:])).deleted_copies[LEDGERS:] == (
            OffloadedCopy(ids[2], contexts[2]),
        )

    asyncio.run(story())
