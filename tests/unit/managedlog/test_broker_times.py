"""Clocks that jump: what is written, found, expired and kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fakes.managed_logs import NAME, Process, read_all
from magnetar.base.ids import Position
from magnetar.managedlog.broker_times import LAG_MS_MAX, believed_times
from magnetar.managedlog.config import UNLIMITED, Retention
from magnetar.managedlog.ledger_list import Ledger
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_metadata import ROOT, decode, encode

MINUTE = 60_000
HOUR = 60 * MINUTE
YEAR = 365 * 24 * HOUR


async def append(process: Process, log: ManagedLog) -> Position:
    position = log.append([b"x"], None)
    await process.settle()
    return position


async def rounds(process: Process, log: ManagedLog, minutes: int) -> None:
    """Maintenance, as the broker does it once a minute."""
    for _ in range(minutes):
        process.clock.advance(MINUTE)
        await log.trim()
        await process.settle()


async def times_of(log: ManagedLog) -> list[int]:
    return [run.broker_time_ms for run in await read_all(log) for _ in run.entries]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_of_a_clock_that_was_ahead_delays_time_by_ten_minutes(
    restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One message of next year; then TTL, seek by time and retention work on, also across restarts."""

    async def story() -> None:
        process = Process(retention=Retention(HOUR, UNLIMITED))
        log, _ = await process.open()
        first = await append(process, log)
        process.clock.step(YEAR)
        bad = await append(process, log)
        process.clock.step(-YEAR)
        await append(process, log)
        if restarts:
            process = await process.restart()
            log, _ = await process.open()
        await rounds(process, log, LAG_MS_MAX // MINUTE + 2)
        assert "the clock is" in caplog.text
        process.clock.advance(MINUTE)
        good_ms = process.clock.now_ms()
        good = await append(process, log)
        assert (await times_of(log))[-1] == good_ms
        # Seek by time: what came after the clock was right again has its place.
        assert await log.position_of_time(good_ms) == good
        assert await log.position_of_time(good_ms + 1) == log.next_position(good)
        # TTL: an hour later everything before it is older than that, the bad one, too.
        process.clock.advance(HOUR)
        expired = log.previous_position(await log.position_of_time(good_ms))
        assert expired > bad > first
        if restarts:
            process = await process.crash()
            log, _ = await process.open()
            assert await log.position_of_time(good_ms) == good
        # Retention: the log has no readers, so what is an hour old goes.
        process.clock.advance(MINUTE)
        await log.trim()
        await process.settle()
        assert log.first_position >= good
        log.check()
        await process.logs.close()

    asyncio.run(story())


def test_an_idle_log_is_freed_of_a_bad_time_for_good() -> None:
    """Nothing is appended any more: what was found out about the clock outlives the process."""

    async def story() -> None:
        process = Process(retention=Retention(HOUR, UNLIMITED))
        log, _ = await process.open()
        process.clock.step(YEAR)
        await append(process, log)
        process.clock.step(-YEAR)
        await rounds(process, log, LAG_MS_MAX // MINUTE + 2)
        for _ in range(3):
            process = await process.crash()
            log, _ = await process.open()
            await rounds(process, log, 5)
        assert log.entry_count == 1
        await rounds(process, log, 60)
        assert log.entry_count == 0
        await process.logs.close()

    asyncio.run(story())


def test_a_clock_that_is_wrong_for_some_minutes_expires_nothing() -> None:
    """A machine without a battery starts in 1970 and asks for the time later."""

    async def story() -> None:
        process = Process(retention=Retention(HOUR, UNLIMITED))
        log, _ = await process.open()
        first = await append(process, log)
        first_ms = process.clock.now_ms()
        await log.trim()
        process = await process.restart()
        process.clock.step(-50 * YEAR)
        log, _ = await process.open()
        early = await append(process, log)
        await rounds(process, log, LAG_MS_MAX // MINUTE - 1)
        await append(process, log)
        process.clock.step(50 * YEAR)
        await rounds(process, log, 30)
        assert await times_of(log) == [first_ms] * 3
        assert await log.position_of_time(first_ms) == first
        assert log.next_position(first) == early
        await process.logs.close()

    asyncio.run(story())


def test_a_small_lag_is_passed_over() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        await append(process, log)
        before_ms = process.clock.now_ms()
        process.clock.step(-500)
        await append(process, log)
        assert await times_of(log) == [before_ms, before_ms]
        await rounds(process, log, 20)
        assert len(log.info().ledgers) == 1
        await process.logs.close()

    asyncio.run(story())


def test_a_bad_time_does_not_begin_a_ledger_for_every_message() -> None:
    """The age of a ledger is measured by the clock, not by the log's last time."""

    async def story() -> None:
        process = Process(retention=Retention(UNLIMITED, UNLIMITED))
        log, _ = await process.open()
        process.clock.step(YEAR)
        await append(process, log)
        process.clock.step(-YEAR)
        ledgers = len(log.info().ledgers)
        for _ in range(5):
            await append(process, log)
        assert len(log.info().ledgers) <= ledgers + 1
        await process.logs.close()

    asyncio.run(story())


def ledger(number: int, time_ms: int, entries: int = 1) -> Ledger:
    return Ledger.sealed(number, 0, entries=entries, size_bytes=1, timestamp_ms=time_ms)


@pytest.mark.parametrize(
    ("times", "last_ms", "now_ms", "believed"),
    [
        ([1, 2, 3], 3, 5, [1, 2, 3]),
        ([1, 90, 3], 3, 5, [1, 3, 3]),
        ([1, 90, 95], 4, 5, [1, 4, 4]),
        ([1, 90, 95], 95, 5, [1, 90, 95]),
        # The clock has passed it after all: it was the smaller time that was wrong.
        ([1, 90, 3], 3, 100, [1, 90, 3]),
        ([], 3, 5, []),
    ],
)
def test_believed_times(times: list[int], last_ms: int, now_ms: int, believed: list[int]) -> None:
    ledgers = [ledger(number, time_ms) for number, time_ms in enumerate(times)]
    assert believed_times(ledgers, last_ms=last_ms, now_ms=now_ms) == believed
    assert believed_times([*ledgers, Ledger(99, 0)], last_ms=last_ms, now_ms=now_ms) == [*believed, 0]


def test_a_bad_time_from_before_a_restart_does_not_begin_ledgers() -> None:
    """By the log's last time, a ledger that begins when the clock is right again is a year old at once."""

    async def story() -> None:
        process = Process(retention=Retention(UNLIMITED, UNLIMITED))
        log, _ = await process.open()
        process.clock.step(YEAR)
        await append(process, log)
        process.clock.step(-YEAR)
        process = await process.restart()
        log, _ = await process.open()
        ledgers = len(log.info().ledgers)
        for _ in range(5):
            await append(process, log)
        assert len(log.info().ledgers) == ledgers
        await process.logs.close()

    asyncio.run(story())


def test_the_last_entry_says_more_than_a_value_that_could_not_be_stored() -> None:
    """The clock is believed, the log goes on, the store refuses to note it, the process dies."""

    async def story() -> None:
        process = Process(retention=Retention(UNLIMITED, UNLIMITED))
        log, _ = await process.open()
        process.clock.step(YEAR)
        await append(process, log)
        bad_ms = process.clock.now_ms()
        process.clock.step(-YEAR)
        await rounds(process, log, LAG_MS_MAX // MINUTE + 2)
        await append(process, log)
        process = await process.crash()
        path = f"{ROOT}/{NAME}"
        value = await process.store.get(path)
        assert value is not None
        said = replace(decode(value.data, NAME), last_broker_time_ms=bad_ms)
        await process.store.put(path, encode(said), expected_version=value.stat.version)
        log, _ = await process.open()
        process.clock.advance(MINUTE)
        await append(process, log)
        assert (await times_of(log))[-1] == process.clock.now_ms()
        await process.logs.close()

    asyncio.run(story())


def test_a_clock_that_is_set_ahead_deletes_nothing_for_an_hour() -> None:
    async def story() -> None:
        process = Process(retention=Retention(HOUR, UNLIMITED), entries_max_per_ledger=1)
        log, _ = await process.open()
        first = await append(process, log)
        await append(process, log)
        await append(process, log)
        process.clock.step(YEAR)
        await rounds(process, log, 30)
        assert log.first_position == first
        # The clock is right again: nothing was lost.
        process.clock.step(-YEAR)
        await rounds(process, log, 20)
        assert log.first_position == first
        # It is said for an hour that it is a year later.
        process.clock.step(YEAR)
        await rounds(process, log, 61)
        assert log.first_position > first
        log.check()

    asyncio.run(story())
