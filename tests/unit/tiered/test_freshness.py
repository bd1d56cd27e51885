"""History that is never older than its topic wants it, also when nothing more is published."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fakes.managed_logs import read_all, until
from fakes.tiered import TieredProcess, refusal, rows_of
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.tiered.policy import MAX_AGE, NO_POLICY, OffloadPolicy

KEEP = Retention(ms=-1, size_bytes=-1)
MINUTE_MS = 60_000
YEAR_MS = 365 * 24 * 60 * MINUTE_MS
POLICY = OffloadPolicy(deletion_lag_ms=-1, max_age_s=60)


async def opened(
    folder: Path, policy: OffloadPolicy = POLICY, *, ahead_ms: int = 0
) -> tuple[TieredProcess, ManagedLog]:
    process = TieredProcess(folder, policy=policy, cache_bytes=0)
    process.clock.step(ahead_ms)
    log, _ = await process.open()
    log.retention = KEEP
    process.offloading.apply(log.offloading, {}, {})
    return process, log


async def look(process: TieredProcess) -> None:
    await process.offloading.fresh_round()
    await process.settle()


async def publish(process: TieredProcess, log: ManagedLog, entry: bytes) -> None:
    before = log.entry_count
    log.append([entry], None)
    await until(process, lambda: log.entry_count > before)


def copied(log: ManagedLog) -> list[bool]:
    return [ledger.offloaded for ledger in log.info().ledgers]


def test_an_idle_log_is_in_history_when_its_first_entry_has_the_age(tmp_path: Path) -> None:
    async def story() -> None:
        process, log = await opened(tmp_path)
        await look(process)
        process.clock.advance(10 * MINUTE_MS)
        await look(process)
        assert copied(log) == [False], "a ledger without an entry stays, however old it is"
        await publish(process, log, b"first")
        process.clock.advance(MINUTE_MS - 1)
        await publish(process, log, b"second, which is new")
        await look(process)
        assert process.offloading.lag_ms(log.offloading) == MINUTE_MS - 1
        assert copied(log) == [False]
        process.clock.advance(1)
        rows = rows_of(await read_all(log))
        await look(process)
        assert copied(log) == [False, False], "nobody publishes, and yet it is sealed"
        await look(process)
        assert copied(log) == [True, False]
        assert rows_of(await read_all(log)) == rows
        await look(process)
        assert process.offloading.lag_ms(log.offloading) == 0
        process.clock.advance(10 * MINUTE_MS)
        await look(process)
        assert copied(log) == [True, False], "nothing new, no new ledger"

    asyncio.run(story())


def test_what_came_while_a_ledger_was_sealed_has_its_own_age(tmp_path: Path) -> None:
    async def story() -> None:
        process, log = await opened(tmp_path)
        await publish(process, log, b"old")
        process.clock.advance(MINUTE_MS)
        await look(process)
        await publish(process, log, b"new")
        await look(process)
        assert copied(log) == [True, False]
        await look(process)
        assert process.offloading.lag_ms(log.offloading) == 0
        process.clock.advance(MINUTE_MS)
        for _ in range(2):
            await look(process)
        assert copied(log) == [True, True, False]

    asyncio.run(story())


def test_while_the_store_is_away_ledgers_do_not_pile_up(tmp_path: Path) -> None:
    async def story() -> None:
        process, log = await opened(tmp_path)
        process.objects.fault = lambda call, name: refusal() if call == "put" else None
        for number in range(20):
            await publish(process, log, b"%d" % number)
            process.clock.advance(MINUTE_MS)
            await look(process)
        assert copied(log) == [False, False]
        assert process.offloading.lag_ms(log.offloading) == 20 * MINUTE_MS
        process.objects.fault = lambda call, name: None
        process.clock.advance(60 * MINUTE_MS)
        for _ in range(4):
            await look(process)
        assert copied(log) == [True, True, False]
        assert log.info().ledgers[1].entries == 19

    asyncio.run(story())


def test_an_entry_from_the_future_does_not_hold_history_back(tmp_path: Path) -> None:
    async def story() -> None:
        process, log = await opened(tmp_path, ahead_ms=YEAR_MS)
        await publish(process, log, b"while the clock was ahead")
        process.clock.step(-YEAR_MS)
        await look(process)
        process.clock.advance(MINUTE_MS)
        for _ in range(2):
            await look(process)
        assert copied(log) == [True, False]

    asyncio.run(story())


def test_a_clock_that_is_set_ahead_makes_nothing_late(tmp_path: Path) -> None:
    """Seen from an hour later on, what came after the step was as old as the step was long."""

    async def story() -> None:
        process, log = await opened(tmp_path, OffloadPolicy(threshold_bytes=0))
        process.clock.step(YEAR_MS)
        await publish(process, log, b"x")
        for minutes in range(90):
            await look(process)
            assert process.offloading.lag_ms(log.offloading) == minutes * MINUTE_MS
            process.clock.advance(MINUTE_MS)

    asyncio.run(story())


def test_a_log_without_an_age_keeps_its_ledger_and_tells_its_lag(tmp_path: Path) -> None:
    async def story() -> None:
        process, log = await opened(tmp_path, OffloadPolicy(threshold_bytes=0))
        await publish(process, log, b"x")
        process.clock.advance(30 * MINUTE_MS)
        await look(process)
        assert copied(log) == [False]
        assert process.offloading.lag_ms(log.offloading) == 30 * MINUTE_MS
        process.offloading.apply(log.offloading, {"offload_policies": {}}, {"offload_threshold": -1})
        assert process.offloading.lag_ms(log.offloading) is None, "nothing of it is offloaded by itself"

    asyncio.run(story())


def test_the_age_of_a_topic_comes_before_its_namespaces_and_the_brokers() -> None:
    def age(own: dict[str, object], namespace: dict[str, object]) -> int:
        return POLICY.under(own, namespace, "file:///x").max_age_s

    assert age({}, {}) == 60
    assert age({}, {MAX_AGE: 300}) == 300
    assert age({MAX_AGE: 0}, {MAX_AGE: 300}) == 0
    other = {"offload_policies": {"managedLedgerOffloadDriver": "aws-s3"}, MAX_AGE: 60}
    assert POLICY.under(other, {}, "file:///x") == NO_POLICY, "a policy for another store copies nothing"
