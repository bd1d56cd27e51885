"""Entries of a log that damage took: it opens, what is whole is read, and the operator decides the rest."""

from __future__ import annotations

import asyncio

import pytest

from fakes.managed_logs import Process
from magnetar.base.errors import LostEntriesError, LostRange
from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.managedlog.holes import INDEXES_PER_ENTRY, UNCERTAIN_INDEXES, HolePolicy
from magnetar.managedlog.log import ManagedLog


async def after_a_crash(
    lost: set[int], *, loss: str = "", count: int = 10
) -> tuple[Process, ManagedLog, int]:
    """A log whose only ledger of so many messages of 5 each was left open and lost these entries."""
    process = Process()
    log, _ = await process.open()
    await log.open_cursor("s", initial="earliest")
    for number in range(count):
        log.append([b"%d" % number], [5])
    await process.settle()
    ledger_id = log.last_position.ledger_id
    process = await process.crash()
    process.ledgers.ledgers[ledger_id].lost = lost
    process.ledgers.ledgers[ledger_id].loss = loss
    log, _ = await process.open()
    return process, log, ledger_id


async def intact(log: ManagedLog) -> list[bytes]:
    entries = []
    position = EARLIEST
    while runs := await log.reading.read_intact(position, 1 << 20, 100):
        entries += [entry for run in runs for entry in run.entries]
        position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)
    return entries


@pytest.mark.parametrize("lost", [{0}, {0, 1, 2}, {9}, {7, 8, 9}, {0, 9}, {3, 4}, set(range(10))])
def test_a_log_opens_whatever_entries_of_its_last_ledger_are_lost(lost: set[int]) -> None:
    """A damaged first or last entry kept the topic from opening, and from taking new messages."""

    async def story() -> None:
        process, log, ledger_id = await after_a_crash(lost)
        assert log.entry_count == 10
        tail = len(lost - set(range(10 - len(lost)))) if 9 in lost else 0
        at_least = 50 if tail == 0 else 5 * (10 - tail)
        assert log.next_index >= max(at_least, 50)
        assert log.next_index <= 50 + 10 * INDEXES_PER_ENTRY
        position = log.append([b"new"], None)
        await process.settle()
        assert position.ledger_id > ledger_id
        whole = [b"%d" % number for number in range(10) if number not in lost]
        assert await intact(log) == [*whole, b"new"]
        if lost:
            with pytest.raises(LostEntriesError):
                await log.read(Position(ledger_id, min(lost)), 1 << 20, 100)
        log.check()

    asyncio.run(story())


def test_an_uncertain_end_leaves_out_indexes_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        _, log, ledger_id = await after_a_crash(set(), loss="more was here")
        assert log.next_index == 50 + UNCERTAIN_INDEXES
        assert f"ledger {ledger_id} may have further entries after entry 9: more was here" in caplog.text

    asyncio.run(story())


def test_dispatch_waits_at_a_hole_unless_the_operator_says_otherwise() -> None:
    async def story() -> None:
        process, log, ledger_id = await after_a_crash({3, 4})
        assert (await log.read(EARLIEST, 1 << 20, 100))[-1].last_entry == 2
        with pytest.raises(LostEntriesError) as caught:
            log.read_now(Position(ledger_id, 3), 1 << 20, 100)
        assert (caught.value.first_entry, caught.value.last_entry) == (3, 4)
        process.logs.holes.skip_all = True
        runs = await log.read(Position(ledger_id, 3), 1 << 20, 100)
        assert runs[0].first_entry == 5
        assert log.reading.skipped is not None
        assert log.reading.skipped.shown() == [f"{ledger_id}:3-4"]
        assert process.logs.holes.skipped_entries == 2

    asyncio.run(story())


@pytest.mark.leaves("the process ends in the middle, as in a crash")
def test_what_was_passed_over_counts_as_acknowledged_also_after_a_seek() -> None:
    async def story() -> None:
        process, log, ledger_id = await after_a_crash({3, 4, 9})
        process.logs.holes.skip_all = True
        cursor = log.cursors["s"]
        for start in (0, 3, 9):
            await log.read(Position(ledger_id, start), 1 << 20, 100)
        skipped = log.reading.skipped
        assert skipped is not None
        for _ in range(2):
            cursor.ack([Position(ledger_id, entry) for entry in (0, 1, 2)])
            skipped.acknowledge(cursor)
            assert cursor.mark_delete == Position(ledger_id, 4)
            cursor.ack([Position(ledger_id, entry) for entry in (5, 6, 7, 8)])
            assert cursor.backlog_entries == 0
            cursor.reset(Position(ledger_id, 0))
            assert cursor.backlog_entries == 10

    asyncio.run(story())


@pytest.mark.leaves("the process ends in the middle, as in a crash")
def test_an_entry_asked_for_again_that_is_lost_does_not_bring_those_behind_it() -> None:
    async def story() -> None:
        process, log, ledger_id = await after_a_crash({3})
        process.logs.holes.skip_all = True
        wanted = Position(ledger_id, 3)
        runs = await log.read(wanted, 1 << 20, 100)
        skipped, cursor = log.reading.skipped, log.cursors["s"]
        assert skipped is not None
        assert skipped.lead(cursor, wanted, runs, replay=True) == []
        assert skipped.lead(cursor, wanted, runs, replay=False) == runs
        assert cursor.is_acked(wanted)

    asyncio.run(story())


def test_only_what_was_given_up_is_passed_over() -> None:
    policy = HolePolicy(given_up=lambda: {LedgerId(7): [(3, 4), (8, 9)]})

    def hole(ledger_id: int, first: int, last: int | None) -> LostEntriesError:
        return LostEntriesError("f", 0, "d", LostRange(ledger_id, first, last))

    assert policy.skips_to(hole(7, 3, 4), 20) == 4
    assert policy.skips_to(hole(7, 4, 6), 20) == 4
    assert policy.skips_to(hole(7, 8, None), 20) == 9
    assert policy.skips_to(hole(7, 5, 6), 20) is None
    assert policy.skips_to(hole(6, 3, 4), 20) is None
    away = LostEntriesError("f", 0, "d", LostRange(LedgerId(6), 3, 4), certain=False)
    policy.skip_all = True
    assert policy.skips_to(away, 20) is None, "it may come back by itself"
    assert HolePolicy(given_up=lambda: {LedgerId(6): [(3, 9)]}).skips_to(away, 20) == 4
    assert policy.skips_to(hole(6, 3, None), 20) == 20


def test_searching_by_time_and_index_goes_past_lost_entries() -> None:
    async def story() -> None:
        _, log, ledger_id = await after_a_crash({4, 5, 8, 9})
        assert await log.position_of_index(0) == Position(ledger_id, 0)
        assert await log.position_of_index(36) == Position(ledger_id, 7)
        assert await log.index_of(Position(ledger_id, 4)) == 30
        await log.position_of_time(1)

    asyncio.run(story())
