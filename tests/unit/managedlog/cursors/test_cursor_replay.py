"""Cursors are read back after a crash from their last whole state, and others have the loop meanwhile."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from fakes.ledgers import FakeLedgers
from fakes.managed_logs import Process
from magnetar.base.ids import Position
from magnetar.managedlog.cursors.cursor_codec import decode_entry
from magnetar.managedlog.cursors.cursor_replay import ENTRIES_PER_TURN


async def busy(process: Process, acks: int) -> list[Position]:
    """A cursor with one delta for each acknowledgement; every second entry is acknowledged."""
    log, listener = await process.open()
    cursor = await log.open_cursor("c", initial="earliest")
    for _ in range(2 * acks):
        log.append([b"x"])
    await process.settle()
    acked = listener.positions[1::2]
    for position in acked:
        cursor.ack([position])
        await cursor.flush()
    return acked


def cursor_entries(ledgers: FakeLedgers) -> list[bytes]:
    (ledger_id,) = ledgers.tagged("c")
    return [entry for run in ledgers.ledgers[ledger_id].runs for entry in run.entries]


def test_a_start_reads_as_many_deltas_as_are_configured_however_many_there_were() -> None:
    async def story() -> None:
        process = Process(cursor_deltas_max=8)
        acked = await busy(process, 300)
        entries = cursor_entries(process.ledgers)
        wholes = [at for at, entry in enumerate(entries) if decode_entry(entry, "").replaces]
        assert len(entries) == 300
        assert max(later - earlier for earlier, later in itertools.pairwise(wholes)) < 60
        after = await process.crash()
        log, _ = await after.open()
        assert after.logs.replays.entries <= 60, "300 were written"
        assert after.logs.replays.cursors == 1
        assert all(log.cursors["c"].is_acked(position) for position in acked)
        assert log.cursors["c"].backlog_entries == 300

    asyncio.run(story())


def test_others_have_the_loop_while_a_long_ledger_is_read_back() -> None:
    """One whole state at the beginning, as earlier versions wrote it."""

    async def story() -> None:
        process = Process(cursor_deltas_max=1_000_000)
        acked = await busy(process, 10 * ENTRIES_PER_TURN)
        after = await process.crash()
        after.config = process.config
        turns = 0
        seen: set[int] = set()

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                seen.add(after.logs.replays.entries)
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        log, _ = await after.open()
        beside.cancel()
        assert len(seen) > 8, "it was applied in one go"
        assert all(log.cursors["c"].is_acked(position) for position in acked)
        assert after.logs.replays.running == 0

    asyncio.run(story())


def test_damage_near_the_end_gives_the_state_before_it() -> None:
    async def story() -> None:
        process = Process(cursor_deltas_max=8)
        acked = await busy(process, 100)
        after = await process.crash()
        (ledger_id,) = after.ledgers.tagged("c")
        runs = after.ledgers.ledgers[ledger_id].runs
        damaged = next(run for run in runs if run.first_entry <= 95 <= run.last_entry)
        damaged.entries[95 - damaged.first_entry] = b"\xff"
        log, _ = await after.open()
        known = [log.cursors["c"].is_acked(position) for position in acked]
        assert all(known[:94])
        assert not any(known[96:])

    asyncio.run(story())


def test_a_cursor_that_cannot_be_written_does_not_keep_others_from_being(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        cursors = [await log.open_cursor(name, initial="earliest") for name in ("bad", "good")]
        log.append([b"x"])
        await process.settle()
        for cursor in cursors:
            cursor.ack(listener.positions)
        monkeypatch.setattr(
            process.ledgers, "has_room", lambda: (_ for _ in ()).throw(RuntimeError("a bug")), raising=True
        )
        cursors[0]._store._writes._failure = RuntimeError("before")  # type: ignore[union-attr]  # leads it to the bug
        errors: list[BaseException | None] = []
        cursors[0].when_durable(errors.append)
        cursors[1].when_durable(errors.append)
        await process.settle()
        assert [type(error) for error in errors] == [RuntimeError, type(None)]

    asyncio.run(story())
