"""A cursor's own ledger: snapshot, deltas, compaction, folding, receipts, failures."""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import FakeLedgers, write_error
from fakes.managed_logs import NAME, Process, until
from magnetar.base.errors import DiskFullError, LedgerError, MetadataError
from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, decode_entry, decode_info
from magnetar.managedlog.log import ManagedLog

PATH = f"/managed-ledgers/{NAME}/s"


async def begin(process: Process, entries: int = 100) -> tuple[ManagedLog, Cursor, int]:
    log, _ = await process.open()
    cursor = await log.open_cursor("s", initial="earliest")
    ledger_id = log.append([b"x"] * entries, None).ledger_id
    process.ledgers.sync()
    await process.settle()
    return log, cursor, ledger_id


def entries_of(process: Process, ledger_id: int) -> list[bytes]:
    return [entry for run in process.ledgers.ledgers[ledger_id].runs for entry in run.entries]


def test_an_idle_cursor_owns_no_ledger() -> None:
    async def story() -> None:
        process = Process()
        _, cursor, _ = await begin(process)
        assert cursor.ledger_id == IN_STORE
        assert process.ledgers.tagged("s") == []
        puts = len(process.store.puts)
        process = await process.restart()
        assert process.store.puts[puts:].count(PATH) == 0
        await process.logs.close()

    asyncio.run(story())


def test_receipts_come_when_durable_and_one_delta_holds_all_changes_of_a_commit() -> None:
    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        cursor.ack([Position(ledger, 5)])
        await cursor.flush()
        own = cursor.ledger_id
        assert process.ledgers.tagged("s") == [own]
        process.ledgers.auto_sync = False
        receipts: list[str] = []
        cursor.ack([Position(ledger, 7)])
        cursor.when_durable(lambda error: receipts.append(f"first {error}"))
        await process.settle()
        for entry in (9, 11, 13):
            cursor.ack([Position(ledger, entry)])
            cursor.when_durable(lambda error: receipts.append(f"later {error}"))
            await process.settle()
        assert receipts == []
        assert len(entries_of(process, own)) == 2, "the snapshot and one delta in flight"
        process.ledgers.sync()
        assert receipts == ["first None"]
        await process.settle()
        assert len(entries_of(process, own)) == 3
        process.ledgers.sync()
        assert receipts == ["first None"] + ["later None"] * 3
        last = decode_entry(entries_of(process, own)[-1], "test")
        assert list(last.acked[LedgerId(ledger)].ranges()) == [(9, 9), (11, 11), (13, 13)]
        cursor.when_durable(lambda error: receipts.append("at once"))
        assert receipts[-1] == "at once"
        process.ledgers.auto_sync = True
        await process.logs.close()

    asyncio.run(story())


def test_deltas_are_replaced_by_a_snapshot_when_they_outweigh_it() -> None:
    async def story() -> None:
        process = Process(cursor_compact_bytes_min=60)
        _, cursor, ledger = await begin(process)
        seen = set()
        for entry in range(1, 60, 2):
            cursor.ack([Position(ledger, entry)])
            await cursor.flush()
            seen.add(cursor.ledger_id)
        await process.settle()
        assert len(seen) > 1
        assert process.ledgers.tagged("s") == [cursor.ledger_id], "replaced ledgers are deleted"
        process = await process.crash()
        log, _ = await process.open()
        assert len(log.cursors["s"].acked_ranges()) == 30
        await process.logs.close()

    asyncio.run(story())


def test_a_large_state_stays_in_its_ledger_when_closed() -> None:
    async def story() -> None:
        process = Process(cursor_fold_ranges_max=3)
        _, cursor, ledger = await begin(process)
        cursor.ack([Position(ledger, entry) for entry in (2, 4, 6)])
        process = await process.restart()
        assert decode_info(process.store.values[PATH].data, "test").ledger_id == IN_STORE
        assert process.ledgers.tagged("s") == []
        log, _ = await process.open()
        log.cursors["s"].ack([Position(ledger, 8)])
        process = await process.restart()
        assert len(process.ledgers.tagged("s")) == 1
        log, _ = await process.open()
        assert len(log.cursors["s"].acked_ranges()) == 4
        await process.logs.close()

    asyncio.run(story())


def test_tens_of_thousands_of_holes_are_all_kept() -> None:
    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process, entries=60_000)
        cursor.ack([Position(ledger, entry) for entry in range(1, 60_000, 2)])
        await cursor.flush()
        process = await process.crash()
        log, _ = await process.open()
        cursor = log.cursors["s"]
        assert cursor.backlog_entries == 30_000
        assert len(cursor.acked_ranges()) == 30_000
        info = log.info().cursors["s"]
        assert info.acked_range_count == 30_000
        assert info.acked_ranges.endswith(",... 29000 more]")
        process = await process.restart()
        log, _ = await process.open()
        assert log.cursors["s"].backlog_entries == 30_000
        await process.logs.close()

    asyncio.run(story())


def test_a_seek_back_survives_and_lowers_the_bound_in_the_store() -> None:
    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        cursor.ack_cumulative(Position(ledger, 50))
        await cursor.flush()
        cursor.reset(Position(ledger, 10))
        cursor.ack([Position(ledger, 12)])
        await cursor.flush()
        bound = decode_info(process.store.values[PATH].data, "test").state.mark_delete
        assert bound == Position(ledger, 9)
        own = cursor.ledger_id
        process = await process.crash()
        del process.ledgers.ledgers[own]
        log, _ = await process.open()
        assert log.cursors["s"].mark_delete == Position(ledger, 9), "never further than it was"
        await process.logs.close()

    asyncio.run(story())


def test_a_cursor_that_falls_back_behind_trimmed_ledgers_stands_at_the_first_that_is_left() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=1, cursor_flush_ms=60_000)
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        first = log.append([b"a"], None)
        await process.settle()
        cursor.ack([first])
        await process.settle()
        assert first.ledger_id not in process.ledgers.ledgers
        process = await process.crash()
        log, _ = await process.open()
        cursor = log.cursors["s"]
        assert cursor.is_acked(first)
        assert cursor.mark_delete == Position(log.first_position.ledger_id, -1)
        assert cursor.backlog_entries == 0
        await process.logs.close()

    asyncio.run(story())


def test_a_lost_ledger_fails_receipts_and_the_next_change_begins_a_new_one() -> None:
    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        cursor.ack([Position(ledger, 3)])
        await cursor.flush()
        process.ledgers.auto_sync = False
        errors: list[BaseException | None] = []
        cursor.ack([Position(ledger, 5)])
        cursor.when_durable(errors.append)
        await process.settle()
        process.ledgers.writer(cursor.ledger_id).fail(write_error())
        assert len(errors) == 1
        assert errors[0] is not None
        process.ledgers.auto_sync = True
        cursor.ack([Position(ledger, 7)])
        await cursor.flush()
        process = await process.crash()
        log, _ = await process.open()
        assert [first.entry_id for first, _ in log.cursors["s"].acked_ranges()] == [3, 5, 7]
        await process.logs.close()

    asyncio.run(story())


def test_on_a_full_disk_acknowledgements_go_into_the_metadata_store() -> None:
    """Consuming is what makes room, so it must not need any where messages go; it used to be refused."""

    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        cursor.ack([Position(ledger, 5)])
        await cursor.flush()
        process.ledgers.auto_sync = process.ledgers.room = False
        cursor.ack([Position(ledger, 7)])
        flushed = asyncio.ensure_future(cursor.flush())
        await process.settle()
        full = write_error()
        full.__cause__ = DiskFullError("no room")
        process.ledgers.writer(cursor.ledger_id).fail(full)
        await flushed
        assert cursor.ledger_id == IN_STORE
        ledgers = len(process.ledgers.tagged("s"))
        cursor.ack([Position(ledger, 9)])
        await cursor.flush()
        assert len(process.ledgers.tagged("s")) == ledgers, "none is made in vain"
        stored = await process.store.get(PATH)
        assert stored is not None
        acked = decode_info(stored.data, PATH).state.acked[LedgerId(ledger)]
        assert list(acked.ranges()) == [(5, 5), (7, 7), (9, 9)]
        process.ledgers.auto_sync = process.ledgers.room = True
        cursor.ack([Position(ledger, 11)])
        await cursor.flush()
        assert cursor.ledger_id != IN_STORE
        await process.logs.close()

    asyncio.run(story())


def test_a_full_disk_costs_no_ledgers_and_what_was_acknowledged_is_written_once_there_is_room() -> None:
    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        cursor.ack([Position(ledger, 3)])
        await cursor.flush()
        process.ledgers.auto_sync = process.ledgers.room = False
        cursor.ack([Position(ledger, 5)])
        await process.settle()
        process.ledgers.writer(cursor.ledger_id).fail(write_error())
        process.ledgers.auto_sync = True
        known = len(process.ledgers.ledgers)
        for entry_id in (7, 9):
            cursor.ack([Position(ledger, entry_id)])
            with pytest.raises(LedgerError):
                await cursor.flush()
        assert len(process.ledgers.ledgers) == known
        process.ledgers.room = True
        await until(process, lambda: len(process.ledgers.ledgers) > known)
        await process.settle()
        process = await process.crash()
        log, _ = await process.open()
        assert [first.entry_id for first, _ in log.cursors["s"].acked_ranges()] == [3, 5, 7, 9]
        await process.logs.close()

    asyncio.run(story())


def test_a_store_that_is_away_fails_receipts_and_loses_nothing() -> None:
    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        process.store.put_errors.append(MetadataError("away"))
        errors: list[BaseException | None] = []
        cursor.ack([Position(ledger, 3)])
        cursor.when_durable(errors.append)
        await until(process, lambda: bool(errors))
        assert isinstance(errors[0], MetadataError)
        await process.settle()
        await cursor.flush()
        await process.settle()
        assert process.ledgers.tagged("s") == [cursor.ledger_id]
        process = await process.crash()
        log, _ = await process.open()
        assert len(log.cursors["s"].acked_ranges()) == 1
        await process.logs.close()

    asyncio.run(story())


def test_the_subscriptions_properties_are_kept_with_and_without_a_ledger() -> None:
    async def story() -> None:
        process = Process()
        log, cursor, ledger = await begin(process)
        await cursor.set_cursor_properties({"a": "1"})
        cursor.ack([Position(ledger, 3)])
        await cursor.set_cursor_properties({"a": "2"})
        process = await process.crash()
        log, _ = await process.open()
        cursor = log.cursors["s"]
        assert cursor.cursor_properties == {"a": "2"}
        assert cursor.acked_ranges() == [(Position(ledger, 3), Position(ledger, 3))]
        info = log.info().cursors["s"]
        assert info.acked_ranges == f"[({ledger}:2..{ledger}:3]]"
        await process.logs.close()

    asyncio.run(story())


def test_reader_cursors_are_in_memory_only() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers())
        log, _, ledger = await begin(process)
        reader = log.new_reader_cursor(EARLIEST)
        reader.ack([Position(ledger, 0), Position(ledger, 2)])
        await reader.flush()
        assert not reader.durable
        assert reader.mark_delete == Position(ledger, 0)
        assert reader.has_holes
        assert "s" in log.cursors
        assert len(log.cursors) == 1
        await process.logs.close()

    asyncio.run(story())


def test_what_cannot_be_written_down_keeps_no_other_cursor_from_its_turn() -> None:
    async def story() -> None:
        process = Process()
        log, odd, ledger = await begin(process)
        other = await log.open_cursor("other", initial="earliest")
        for cursor in (odd, other):
            cursor.ack([Position(ledger, 1)])
            await cursor.flush()
        odd.set_properties({"number": 1 << 63})
        other.ack([Position(ledger, 3)])
        outcomes: list[BaseException | None] = []
        odd.when_durable(outcomes.append)
        other.when_durable(outcomes.append)
        await process.settle()
        assert sorted(map(repr, outcomes))[0] == "None"
        assert isinstance(next(filter(None, outcomes)), ValueError)
        odd.set_properties({"number": 7})
        odd.ack([Position(ledger, 5)])
        await odd.flush()
        process = await process.crash()
        log, _ = await process.open()
        assert log.cursors["s"].properties == {"number": 7}
        assert log.cursors["s"].is_acked(Position(ledger, 5))
        await process.logs.close()

    asyncio.run(story())


def test_a_new_ledger_is_named_when_its_snapshot_is_durable_and_then_the_old_one_goes() -> None:
    async def story() -> None:
        process = Process(cursor_compact_bytes_min=1, cursor_compact_factor=0)
        _, cursor, ledger = await begin(process)
        process.ledgers.auto_sync = False
        cursor.ack([Position(ledger, 5)])
        await process.settle()
        (own,) = process.ledgers.tagged("s")
        stored = await process.store.get(PATH)
        assert stored is not None
        assert decode_info(stored.data, PATH).ledger_id == IN_STORE
        process.ledgers.auto_sync = True
        process.ledgers.sync()
        await cursor.flush()
        assert cursor.ledger_id == own
        delete, gone = process.ledgers.delete, []

        async def deleting(ledger_id: int) -> None:
            now = await process.store.get(PATH)
            assert now is not None
            gone.append((ledger_id, decode_info(now.data, PATH).ledger_id))
            await delete(ledger_id)

        process.ledgers.delete = deleting  # type: ignore[method-assign]  # sees the order
        for entry_id in (7, 9, 11):
            cursor.ack([Position(ledger, entry_id)])
            await cursor.flush()
            await process.settle()
        assert own in [ledger_id for ledger_id, _ in gone]
        assert all(ledger_id != named for ledger_id, named in gone)
        await process.logs.close()

    asyncio.run(story())
