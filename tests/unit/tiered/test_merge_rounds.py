"""Small objects become larger ones by themselves: how many are left, how much a round does, what fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fakes.managed_logs import read_all, until
from fakes.tiered import TieredProcess, refusal, rows_of
from magnetar.base.clock import ManualClock
from magnetar.lake.daily import EACH_MS, TABLES_MAX, DailyUpkeep
from magnetar.lake.lake_values import LakeError
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.tiered.merge_rounds import MEMBERS_MIN, MergeRounds
from magnetar.tiered.policy import OffloadPolicy

KEEP = Retention(ms=-1, size_bytes=-1)
MINUTE_MS = 60_000
LAG_MINUTES = 5
POLICY = OffloadPolicy(deletion_lag_ms=LAG_MINUTES * MINUTE_MS, max_age_s=60)


async def opened(process: TieredProcess, name: str) -> ManagedLog:
    log = await process.logs.open(f"public/default/persistent/{name}")
    log.retention = KEEP
    process.offloading.apply(log.offloading, {}, {})
    return log


async def minute(process: TieredProcess, *logs: ManagedLog) -> None:
    """An entry for each, which is in history at the end of the minute."""
    for log in logs:
        before = log.entry_count
        log.append([b"x"], None)
        await until(process, lambda log=log, before=before: log.entry_count > before)  # type: ignore[misc]
    process.clock.advance(MINUTE_MS)
    for _ in range(2):
        await process.offloading.fresh_round()
        await process.settle()
    await process.offloading.round()


def objects_of(log: ManagedLog) -> int:
    return len({ledger.offload.attempt for ledger in log.info().ledgers if ledger.offload is not None})


async def minutes(process: TieredProcess, count: int, *logs: ManagedLog) -> None:
    for _ in range(count):
        await minute(process, *logs)
    # The copies of the last ones are the only ones after the lag.
    process.clock.advance(LAG_MINUTES * MINUTE_MS)
    await process.offloading.round()


def test_a_topic_of_a_file_a_minute_does_not_keep_a_file_a_minute(tmp_path: Path) -> None:
    async def story() -> None:
        process = TieredProcess(tmp_path, policy=POLICY, cache_bytes=0)
        log = await opened(process, "t")
        most = kept = 0
        for _ in range(60):
            await minute(process, log)
            await process.offloading.merge_round()
            most = max(most, objects_of(log))
            kept = max(kept, len(process.object_attempts()) - objects_of(log))
        # Those that the bookies have too, those that are not enough yet, and the large one.
        assert most <= LAG_MINUTES + MEMBERS_MIN + 1
        assert process.storage.figures.merged >= 40
        rows = rows_of(await read_all(log))
        assert len(rows) == 60
        assert kept >= MEMBERS_MIN, "old objects stay for readers until the lag is over"
        process.clock.advance(LAG_MINUTES * MINUTE_MS)
        await process.offloading.round()
        assert len(process.object_attempts()) == objects_of(log)
        assert rows_of(await read_all(log)) == rows

    asyncio.run(story())


def test_a_few_objects_stay_as_they_are(tmp_path: Path) -> None:
    async def story() -> None:
        process = TieredProcess(tmp_path, policy=POLICY, cache_bytes=0)
        log = await opened(process, "t")
        await minutes(process, MEMBERS_MIN - 1, log)
        assert await process.offloading.merge_round() == []
        await minutes(process, 1, log)
        assert await process.offloading.merge_round() == [log.name]
        assert await process.offloading.merge_round() == []
        assert objects_of(log) == 1

    asyncio.run(story())


def test_a_round_does_a_bounded_part_and_the_next_begins_with_others(tmp_path: Path) -> None:
    async def story() -> None:
        process = TieredProcess(tmp_path, policy=POLICY, cache_bytes=0)
        logs = [await opened(process, name) for name in ("a", "b", "c")]
        rounds = MergeRounds(process.offloading.merger, members_min=2, round_bytes=1)
        for expected in ("a", "b", "c", "a"):
            await minutes(process, 2, *logs)
            pairs = [(log.offloading, POLICY) for log in logs]
            merged = await rounds.round(pairs, process.clock.now_ms())
            assert merged == [f"public/default/persistent/{expected}"]

    asyncio.run(story())


def test_what_fails_waits_and_keeps_nobody_from_it(tmp_path: Path) -> None:
    async def story() -> None:
        process = TieredProcess(tmp_path, policy=POLICY, cache_bytes=0)
        logs = [await opened(process, name) for name in ("a", "b")]
        await minutes(process, MEMBERS_MIN, *logs)
        puts: list[str] = []

        def fault(call: str, name: str) -> Exception | None:
            if call != "put":
                return None
            puts.append(name)
            return refusal() if "/a/" in name or len(puts) == 1 else None

        process.objects.fault = fault
        assert await process.offloading.merge_round() == [logs[1].name]
        assert objects_of(logs[0]) == MEMBERS_MIN
        tried = len(puts)
        assert await process.offloading.merge_round() == []
        assert len(puts) == tried, "not before the pause is over"
        process.objects.fault = lambda call, name: None
        process.clock.advance(60 * MINUTE_MS)
        assert await process.offloading.merge_round() == [logs[0].name]

    asyncio.run(story())


class Tables:
    """Remembers which tables were looked after."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def maintain(self, topic: object, *, keep_ms: int, keep_min: int, dry_run: bool) -> None:
        assert (keep_ms, keep_min, dry_run) == (5 * EACH_MS, 10, False)
        self.calls.append(str(topic))
        raise LakeError("the catalog does not answer")


def test_tables_are_looked_after_once_a_day() -> None:
    async def story() -> None:
        clock, tables = ManualClock(), Tables()
        upkeep = DailyUpkeep(clock)
        partitions = [f"public/default/persistent/t-partition-{number}" for number in range(3)]
        await upkeep.round(tables, partitions)  # type: ignore[arg-type]  # what it calls
        await upkeep.round(tables, partitions)  # type: ignore[arg-type]
        assert tables.calls == ["persistent://public/default/t"]
        clock.advance(EACH_MS)
        await upkeep.round(tables, partitions)  # type: ignore[arg-type]
        assert len(tables.calls) == 2
        many = [f"public/default/persistent/u{number}" for number in range(TABLES_MAX + 1)]
        await upkeep.round(tables, many)  # type: ignore[arg-type]
        assert len(tables.calls) == 2 + TABLES_MAX
        await upkeep.round(tables, ())  # type: ignore[arg-type]
        assert len(tables.calls) == 3 + TABLES_MAX

    asyncio.run(story())
