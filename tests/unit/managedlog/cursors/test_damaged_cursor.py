"""A cursor whose ledger is damaged: the log opens, nothing unacknowledged is lost, and it is said aloud."""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import FakeLedger
from fakes.managed_logs import Process
from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError, StorageFailedError
from magnetar.base.ids import Position
from magnetar.managedlog.cursors.cursor import Cursor


async def acked_one_by_one(process: Process, entries: int) -> tuple[Cursor, int]:
    """A log of so many entries, every second one acknowledged, each by a delta of its own."""
    log, listener = await process.open()
    cursor = await log.open_cursor("s", initial="earliest")
    for _ in range(entries):
        log.append([b"x"], None)
    await process.settle()
    ledger = listener.positions[0].ledger_id
    for entry in range(0, entries, 2):
        cursor.ack([Position(ledger, entry)])
        await cursor.flush()
        await process.settle()
    return cursor, ledger


def damage(process: Process, ledger_id: int, entry: int) -> None:
    """Makes an entry of a ledger into something else."""
    for run in process.ledgers.ledgers[ledger_id].runs:
        if run.first_entry <= entry <= run.last_entry:
            run.entries[entry - run.first_entry] = b"\xff\xff\xff"


@pytest.mark.parametrize("entry", range(5))
def test_a_cursor_falls_back_to_what_comes_before_the_damage(
    entry: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        process = Process()
        cursor, ledger = await acked_one_by_one(process, 10)
        before = {Position(ledger, i) for i in range(10) if cursor.is_acked(Position(ledger, i))}
        damage(process, cursor.ledger_id, entry)
        process = await process.crash()
        log, _ = await process.open()
        cursor = log.cursors["s"]
        after = {Position(ledger, i) for i in range(10) if cursor.is_acked(Position(ledger, i))}
        # Its snapshot holds the first acknowledgement, as does the metadata store; each delta one more.
        assert after == {Position(ledger, 2 * i) for i in range(max(entry, 1))}
        assert after <= before
        assert f"damaged from entry {entry} on" in log.info().cursors["s"].damage
        assert "falls back" in caplog.text
        # It is whole again with the next acknowledgement.
        cursor.ack([Position(ledger, 9)])
        await cursor.flush()
        await process.settle()
        process = await process.crash()
        log, _ = await process.open()
        assert log.info().cursors["s"].damage == ""
        assert log.cursors["s"].is_acked(Position(ledger, 9))
        await process.logs.close()

    asyncio.run(story())


def test_what_cannot_be_read_now_is_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that fails for a moment must not move a cursor."""

    async def story() -> None:
        process = Process()
        await acked_one_by_one(process, 4)
        process = await process.crash()

        def fail(*_: object) -> list[EntryRun]:
            raise StorageFailedError("injected")

        with monkeypatch.context() as patch:
            patch.setattr(FakeLedger, "entry_runs", fail)
            with pytest.raises(StorageFailedError):
                await process.open()
        log, _ = await process.open()
        assert log.info().cursors["s"].damage == ""
        assert log.cursors["s"].backlog_entries == 2
        await process.logs.close()

    asyncio.run(story())


def test_bytes_that_fail_their_checksum_are_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        process = Process()
        cursor, ledger = await acked_one_by_one(process, 4)
        damaged = cursor.ledger_id
        process = await process.crash()
        read = FakeLedger.entry_runs

        def fail(self: FakeLedger, first: int, last: int, bytes_max: int) -> list[EntryRun]:
            if self.ledger_id == damaged:
                raise CorruptDataError("segment", 1, "injected", damaged)
            return read(self, first, last, bytes_max)

        monkeypatch.setattr(FakeLedger, "entry_runs", fail)
        log, _ = await process.open()
        assert "injected" in log.info().cursors["s"].damage
        assert log.cursors["s"].next_unacked(log.cursors["s"].mark_delete) <= Position(ledger, 1)
        await log.delete_cursor("s")
        assert "s" not in log.info().cursors
        await process.logs.close()

    asyncio.run(story())


def test_a_cursor_whose_ledger_may_have_gone_on_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        process = Process()
        cursor, ledger = await acked_one_by_one(process, 4)
        process = await process.crash()
        process.ledgers.ledgers[cursor.ledger_id].loss = "damaged bytes behind it"
        log, _ = await process.open()
        assert log.cursors["s"].is_acked(Position(ledger, 0))
        assert "may be lost: damaged bytes behind it" in log.info().cursors["s"].damage
        assert "falls back" in caplog.text

    asyncio.run(story())
