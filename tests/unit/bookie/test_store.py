"""The segment store's life: appending, reading, rolling, deleting, coming back."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from magnetar.base.errors import CorruptDataError, StartupError
from magnetar.bookie.blocks import HEADER_BYTES
from magnetar.bookie.segment import DATA_OFFSET
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability
from magnetar.runtime.syncer import InlineSyncer
from support.storage import (
    Sink,
    crash_copy,
    entries_of,
    flip,
    run,
    segments,
    store_in,
    until,
)

SMALL = 1 << 16


def test_appended_entries_become_durable_and_readable(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=InlineSyncer()) as store:
            assert store.durability is Durability.FSYNC
            sink = Sink()
            appender = store.appender(3, sink)
            assert appender.append([b"a" * 10] * 5, None, 0, 1) == 0
            assert appender.append([b"b" * 20_000] * 5, [2] * 5, 5, 2) == 5
            assert sink.last == -1
            await sink.reached(9)
            assert (appender.durable_bytes, appender.pending_bytes, store.pending_bytes) == (100_050, 0, 0)
            runs = store.reader.read_now(appender.index, 3, 6, 1 << 20)
            assert runs is not None
            assert [(r.first_entry, r.entries, r.counts, r.base_index, r.broker_time_ms) for r in runs] == [
                (3, [b"a" * 10] * 2, None, 3, 1),
                (5, [b"b" * 20_000] * 2, [2, 2], 5, 2),
            ]

    run(story())


def test_ledgers_of_one_tick_share_a_sync(tmp_path: Path) -> None:
    class Counting(InlineSyncer):
        count = 0

        def _sync_file(self, fd: int) -> None:
            self.count += 1

    async def story() -> None:
        syncer = Counting()
        # An idle store marks its end, with a sync of its own, which the loop may find due before this story
        # goes on.
        never = {"idle_mark_ms": 3_600_000}
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=syncer, **never) as store:
            sinks = [Sink() for _ in range(20)]
            for ledger_id, sink in enumerate(sinks):
                store.appender(ledger_id, sink).append([b"x"], None, 0, 1)
            await asyncio.gather(*(sink.reached(0) for sink in sinks))
            assert syncer.count == 1

    run(story())


def test_a_closed_store_comes_back_from_its_footers(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            for ledger_id in range(10):
                store.appender(ledger_id, Sink()).append([b"%d" % ledger_id] * ledger_id or [b""], None, 0, 1)
        async with store_in(tmp_path) as store:
            assert all(segment.sealed for segment in store.segments if segment.segment_id == 1)
            assert store.ledger_ids() == set(range(10))
            assert await entries_of(store, 7) == [b"7"] * 7
            assert (await store.reader.index_of(99)).last_entry == -1

    run(story())


def test_a_killed_store_comes_back_from_its_blocks(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path / "live") as store:
            sink = Sink()
            appender = store.appender(1, sink)
            for i in range(100):
                appender.append([b"%d" % i] * 3, None, 3 * i, i)
            await sink.reached(299)
            copy = crash_copy(tmp_path / "live", tmp_path / "copy")
        for _ in range(2):
            async with store_in(copy) as store:
                assert await entries_of(store, 1) == [b"%d" % (i // 3) for i in range(300)]

    run(story())


def test_segments_roll_and_readers_do_not_notice(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SMALL) as store:
            sinks = [Sink() for _ in range(3)]
            appenders = [store.appender(ledger_id, sink) for ledger_id, sink in enumerate(sinks)]
            for i in range(60):
                for appender in appenders:
                    appender.append([b"%d" % i * 500], None, i, i)
                await sinks[2].reached(i)
            await until(lambda: all(s.sealed for s in list(store.segments)[:-1]))
            assert len(list(store.segments)) > 2
            expected = [b"%d" % i * 500 for i in range(60)]
            assert await entries_of(store, 1) == expected
            live = crash_copy(tmp_path, tmp_path / "copy")
        async with store_in(live) as store:
            assert await entries_of(store, 1) == expected
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 2) == expected

    run(story())


def test_a_crash_before_the_old_segment_is_sealed_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path / "live", segment_bytes=SMALL) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            appender.append([b"x" * 1000] * 40, None, 0, 1)
            appender.append([b"y" * 1000] * 40, None, 40, 1)
            await sink.reached(79)
            # Sealing goes on in a thread: the copy is taken before it is done.
            copy = crash_copy(tmp_path / "live", tmp_path / "copy")
        async with store_in(copy) as store:
            assert await entries_of(store, 1) == [b"x" * 1000] * 40 + [b"y" * 1000] * 40

    run(story())


def test_a_block_larger_than_a_segment_gets_a_segment_of_its_size(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SMALL) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            appender.append([b"small"], None, 0, 1)
            appender.append([bytes(3 << 20)], None, 1, 1)
            appender.append([b"small"], None, 2, 1)
            await sink.reached(2)
            assert [len(entry) for entry in await entries_of(store, 1)] == [5, 3 << 20, 5]

    run(story())


def test_segments_roll_by_blocks_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_blocks_max=10) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            for i in range(35):
                appender.append([b"x"], None, i, i)
            await sink.reached(34)
            assert len(list(store.segments)) == 4
            assert len(await entries_of(store, 1)) == 35

    run(story())


def test_deleting_reclaims_segments_without_living_ledgers(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SMALL) as store:
            sinks = {ledger_id: Sink() for ledger_id in range(8)}
            for ledger_id, sink in sinks.items():
                appender = store.appender(ledger_id, sink)
                appender.append([bytes(1000)] * 50, None, 0, 1)
                await sink.reached(49)
                store.release(appender)
            await until(lambda: all(s.sealed for s in list(store.segments)[:-1]))
            before = len(segments(tmp_path))
            for ledger_id in range(7):
                await store.delete(ledger_id)
            await store.delete(3)
            await until(lambda: len(segments(tmp_path)) <= before - 6)
            assert store.ledger_ids() == {7}
            assert (await store.reader.index_of(3)).last_entry == -1
        async with store_in(tmp_path) as store:
            assert store.ledger_ids() == {7}
            assert len(await entries_of(store, 7)) == 50

    run(story())


def test_deleted_ledgers_do_not_come_back_when_their_tombstones_segment_goes(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            for ledger_id in (1, 2):
                store.appender(ledger_id, Sink()).append([b"kept alive by 1"], None, 0, 1)
        async with store_in(tmp_path) as store:  # segment 2 gets only the tombstone
            await store.delete(2)
        for _ in range(3):
            # Each time the tombstone moves on, because ledger 2 still lies beside ledger 1.
            async with store_in(tmp_path) as store:
                assert store.ledger_ids() == {1}
                await until(lambda: len(segments(tmp_path)) == 2)
        async with store_in(tmp_path) as store:
            await store.delete(1)
            await until(lambda: store.segments.deleted == set())
        async with store_in(tmp_path) as store:
            await until(lambda: len(segments(tmp_path)) == 1)
            assert store.ledger_ids() == set()

    run(story())


def test_a_store_that_took_nothing_leaves_no_segments(tmp_path: Path) -> None:
    async def story() -> None:
        for _ in range(2):
            async with store_in(tmp_path):
                assert len(segments(tmp_path)) == 1
            assert segments(tmp_path) == []

    run(story())


def test_an_idle_log_is_marked_so_that_damage_at_its_end_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with store_in(tmp_path / "live", idle_mark_ms=1) as store:
            sink = Sink()
            store.appender(5, sink).append([b"precious"], None, 0, 1)
            await sink.reached(0)
            await until(lambda: list(store.segments)[-1].index.block_count == 2)
            copy = crash_copy(tmp_path / "live", tmp_path / "copy")
        (path,) = segments(copy)
        flip(path, DATA_OFFSET + HEADER_BYTES + 6)
        caplog.set_level(logging.ERROR, "magnetar.bookie")
        async with store_in(copy) as store:
            assert f"corrupt data in {path} at byte {DATA_OFFSET}, ledger 5" in caplog.text
            assert store.segments.last_lost(5) == 0
            index = await store.reader.index_of(5)
            with pytest.raises(CorruptDataError) as caught:
                await store.reader.read(index, 0, 0, 100)
            assert (caught.value.path, caught.value.offset, caught.value.ledger_id) == (
                str(path),
                DATA_OFFSET,
                5,
            )

    run(story())


def test_damage_is_noticed_on_reading_and_costs_only_its_block(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            sink = Sink()
            one, two = store.appender(1, sink), store.appender(2, Sink())
            for i in range(3):
                one.append([b"one%d" % i], None, i, i)
                two.append([b"two%d" % i], None, i, i)
            await sink.reached(2)
            places = one.index.select(0, 2, 100)
            (path,) = segments(tmp_path)
            flip(path, places[1].offset + places[1].size - 1)
            runs = await store.reader.read(one.index, 0, 2, 100)
            assert [r.entries for r in runs] == [[b"one0"]]
            with pytest.raises(CorruptDataError) as caught:
                await store.reader.read(one.index, 1, 2, 100)
            assert (caught.value.path, caught.value.offset, caught.value.ledger_id) == (
                str(path),
                places[1].offset,
                1,
            )
            assert str(caught.value) in caplog.text
            assert [r.entries for r in await store.reader.read(one.index, 2, 2, 100)] == [[b"one2"]]
            assert len(await entries_of(store, 2)) == 3

    run(story())


def test_damage_in_a_footer_means_scanning(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            store.appender(1, Sink()).append([b"x"] * 5, None, 0, 1)
        (path,) = segments(tmp_path)
        for offset in (-3, -70):
            flip(path, path.stat().st_size + offset)
            async with store_in(tmp_path) as store:
                assert await entries_of(store, 1) == [b"x"] * 5

    run(story())


def test_damage_in_a_segment_header_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            store.appender(1, Sink()).append([b"x"] * 5, None, 0, 1)
        (path,) = segments(tmp_path)
        flip(path, 38)
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 1) == [b"x"] * 5
        assert f"corrupt data in {path} at byte 0" in caplog.text

    run(story())


def test_the_rest_of_a_block_is_not_read_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            appender.append([b"%d" % i for i in range(1000)], None, 0, 1)
            await sink.reached(999)
            (path,) = segments(tmp_path)
            got: list[bytes] = []
            while len(got) < 1000:
                for found in await store.reader.read(appender.index, len(got), 999, 100):
                    got += found.entries
                if len(got) < 100:
                    flip(path, DATA_OFFSET + HEADER_BYTES)  # a second read of the block would fail
                    flip(path, DATA_OFFSET + HEADER_BYTES + 8)
            assert got == [b"%d" % i for i in range(1000)]

    run(story())


def test_a_temporary_store_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(None) as store:
            folder = store.directory
            sink = Sink()
            store.appender(1, sink).append([b"x"], None, 0, 1)
            await sink.reached(0)
            assert folder.exists()
        assert not folder.exists()

    run(story())


def test_a_second_store_in_the_folder_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path):
            with pytest.raises(
                StartupError, match=r"in use by process \d+: stop it, or choose another folder"
            ):
                await SegmentStore.open(tmp_path, durability=Durability.VOLATILE)

    run(story())


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("FORMAT", "2\n", "has format 2, this version knows up to 1: use a newer version"),
        ("FORMAT", "x\n", "damaged FORMAT file"),
        ("INSTANCEID", "", "no valid INSTANCEID file"),
        ("INSTANCEID", "00000000-0000-0000-0000-000000000000", "belongs to another store"),
    ],
)
def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path, file: str, text: str, message: str) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            store.appender(1, Sink()).append([b"x"], None, 0, 1)
        (tmp_path / file).write_text(text)
        with pytest.raises(StartupError, match=message):
            await SegmentStore.open(tmp_path, durability=Durability.VOLATILE)

    run(story())


def test_a_missing_format_file_beside_segments_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            store.appender(1, Sink()).append([b"x"], None, 0, 1)
        (tmp_path / "FORMAT").unlink()
        with pytest.raises(StartupError, match="segments but no FORMAT file"):
            await SegmentStore.open(tmp_path, durability=Durability.VOLATILE)

    run(story())


def test_a_listener_that_fails_does_not_cost_the_others_their_mark(tmp_path: Path) -> None:
    async def story() -> None:
        class Broken(Sink):
            def durable(self, last_entry: int) -> None:
                raise RuntimeError("a bug")

        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with store_in(tmp_path) as store:
            sink = Sink()
            store.appender(1, Broken()).append([b"x"], None, 0, 1)
            store.appender(2, sink).append([b"x"], None, 0, 1)
            await sink.reached(0)
        assert len(reported) == 1

    run(story())


def test_only_some_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.bookie.segment_set.OPEN_FILES_MAX", 2)

    async def story() -> None:
        async with store_in(tmp_path, segment_blocks_max=3) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            for i in range(20):
                appender.append([b"%d" % i], None, i, i)
                await sink.reached(i)
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 1) == [b"%d" % i for i in range(20)]
            opened = [segment for segment in store.segments if segment.fd >= 0]
            assert len(list(store.segments)) > 6
            assert len(opened) <= 4  # two read lately, the one in use, the active one

    run(story())
