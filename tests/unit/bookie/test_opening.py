"""Segment files that are damaged, cut, misplaced or empty: what is intact is served, the rest is said."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.base.errors import LostEntriesError
from magnetar.bookie.blocks import HEADER_BYTES
from magnetar.bookie.index import UNKNOWN_OWNER, Damage
from magnetar.bookie.segment import (
    CHECKPOINT_AT,
    CHECKPOINT_BYTES,
    DATA_OFFSET,
    decode_checkpoint,
    decode_segment_header,
    encode_checkpoint,
)
from magnetar.bookie.segment_store import SegmentStore
from support.storage import Sink, crash_copy, entries_of, flip, run, segments, store_in, until

WHOLE = {1: [b"one%d" % n for n in range(6)], 2: [b"two%d" % n for n in range(6)]}


async def written(folder: Path, **options: int) -> None:
    """A store with two ledgers whose blocks lie between each other, ended cleanly: one sealed segment."""
    async with store_in(folder, **options) as store:
        await write(store)


async def write(store: SegmentStore) -> None:
    sinks = {ledger_id: Sink() for ledger_id in WHOLE}
    appenders = {ledger_id: store.appender(ledger_id, sinks[ledger_id]) for ledger_id in WHOLE}
    for number in range(6):
        for ledger_id, values in WHOLE.items():
            appenders[ledger_id].append([values[number]], None, number, 1)
            await sinks[ledger_id].reached(number)


def wipe(path: Path, start: int, stop: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(stop - start))


async def all_of(store: SegmentStore) -> dict[int, list[bytes]]:
    return {ledger_id: await entries_of(store, ledger_id) for ledger_id in WHOLE}


def test_damaged_rows_of_a_footer_are_made_anew_from_the_blocks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        await written(tmp_path)
        (path,) = segments(tmp_path)
        async with store_in(tmp_path) as store:
            (sealed,) = [segment.sealed for segment in store.segments if segment.sealed is not None]
            offset, _ = sealed.rows_extent(sealed.position_of(2))
        whole = path.read_bytes()
        flip(path, offset + 3)
        async with store_in(tmp_path) as store:
            assert await all_of(store) == WHOLE
            assert store.reader.indexes_rebuilt == 1
            assert [segment.damages for segment in store.segments if segment.sealed] == [[]]
        assert path.read_bytes() == whole
        assert "the index was damaged and is rebuilt" in caplog.text

    run(story())


def test_one_damaged_row_and_one_damaged_block_cost_the_block(tmp_path: Path) -> None:
    async def story() -> None:
        await written(tmp_path)
        (path,) = segments(tmp_path)
        async with store_in(tmp_path) as store:
            (sealed,) = [segment.sealed for segment in store.segments if segment.sealed is not None]
            offset, _ = sealed.rows_extent(sealed.position_of(2))
            index = await store.reader.index_of(2)
            place = index.place_of(3)
            assert place is not None
        flip(path, offset + 3)
        flip(path, place.offset + place.size - 1)
        async with store_in(tmp_path) as store:
            index = await store.reader.index_of(2)
            with pytest.raises(LostEntriesError) as caught:
                await store.reader.read(index, 3, 5, 1 << 20)
            assert (caught.value.first_entry, caught.value.last_entry) == (3, 3)
            assert [r.entries for r in await store.reader.read(index, 4, 5, 1)] == [[b"two4"]]
            assert await entries_of(store, 1) == WHOLE[1]

    run(story())


@pytest.mark.parametrize("stop", [DATA_OFFSET, DATA_OFFSET + 4096])
def test_the_first_pages_may_be_lost(tmp_path: Path, stop: int) -> None:
    """The salt is that of the trailer, or of the first block that is left."""

    async def story() -> None:
        async with store_in(tmp_path) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            for number in range(20):
                appender.append([b"%d" % number * 500], None, number, 1)
                await sink.reached(number)
            await until(lambda: store.mark.is_marked)
            crashed = crash_copy(tmp_path, tmp_path / "active")
        for folder in (tmp_path, crashed):
            (path,) = segments(folder)[:1]
            wipe(path, 0, stop)
            async with store_in(folder) as store:
                index = await store.reader.index_of(1)
                assert index.last_entry == 19
                lost = []
                for number in range(20):
                    try:
                        (found,) = await store.reader.read(index, number, number, 1)
                    except LostEntriesError:
                        lost.append(number)
                    else:
                        assert found.entries == [b"%d" % number * 500]
                assert lost == list(range(0 if stop == DATA_OFFSET else len(lost)))
                assert len(lost) < 12

    run(story())


def test_blocks_of_a_former_life_are_not_taken_for_this_one_without_a_header(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=32 << 10, spare_segments=1) as store:
            sink = Sink()
            old = store.appender(7, sink)
            for number in range(40):
                old.append([bytes(1000)], None, number, 1)
                await sink.reached(number)
            # A segment under way would take the file at once, and no spare would be left to wait for.
            await until(lambda: not store.supply.is_preparing)
            await store.delete(7)
            await until(lambda: len(store.supply.spares) > 0 or store.supply.recycled > 0)
        async with store_in(tmp_path, segment_bytes=32 << 10) as store:
            await write(store)
            await until(lambda: store.mark.is_marked)
            crashed = crash_copy(tmp_path, tmp_path / "crashed")
        path = segments(crashed)[-1]
        wipe(path, 0, DATA_OFFSET)
        async with store_in(crashed) as store:
            assert await all_of(store) == WHOLE
            assert 7 not in store.ledger_ids()

    run(story())


def cut_in_a_block(path: Path) -> None:
    os.truncate(path, DATA_OFFSET + 300)


def cut_behind_a_block(path: Path) -> None:
    os.truncate(path, DATA_OFFSET)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def zeroed(path: Path) -> None:
    wipe(path, 0, path.stat().st_size)


def end_zeroed(path: Path) -> None:
    wipe(path, DATA_OFFSET + 350, path.stat().st_size)


@pytest.mark.parametrize("hurt", [cut_in_a_block, cut_behind_a_block, emptied, zeroed, end_zeroed])
@pytest.mark.parametrize("active", [True, False])
def test_what_is_gone_from_the_end_is_never_silent(
    tmp_path: Path, hurt: Callable[[Path], None], active: bool
) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            await write(store)
            await until(lambda: store.mark.is_marked)
            folder = crash_copy(tmp_path, tmp_path / "crashed") if active else tmp_path
        (path,) = segments(folder)[:1]
        hurt(path)
        # The second start builds on what the first one wrote.
        for _ in range(2):
            async with store_in(folder) as store:
                for ledger_id, values in WHOLE.items():
                    index = await store.reader.index_of(ledger_id)
                    assert index.last_entry < len(values) - 1
                    assert store.segments.uncertain_end(index) is not None
                    for entry in range(index.last_entry + 1):
                        (found,) = await store.reader.read(index, entry, entry, 1)
                        assert found.entries == [values[entry]]

    run(story())


def test_a_clean_end_and_an_unfinished_group_are_no_damage(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            await write(store)
            crashed = crash_copy(tmp_path, tmp_path / "crashed")
        for folder in (tmp_path, crashed):
            async with store_in(folder) as store:
                assert await all_of(store) == WHOLE
                assert [segment.damages for segment in store.segments] == [[], []]

    run(story())


def test_damage_of_unknown_ledgers_outlives_the_living_of_its_segment(tmp_path: Path) -> None:
    """A segment without a living ledger was given back, and with it all knowledge of what was lost."""

    async def story() -> None:
        await written(tmp_path)
        (path,) = segments(tmp_path)
        data = path.read_bytes()
        path.write_bytes(data[:DATA_OFFSET] + bytes(len(data) - DATA_OFFSET))
        for _ in range(2):
            async with store_in(tmp_path) as store:
                assert [(d.ledger_id, d.offset) for s in store.segments for d in s.damages] == [
                    (UNKNOWN_OWNER, DATA_OFFSET)
                ]

    run(story())


def test_known_damage_outlives_the_living_of_its_segment_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            sink = Sink()
            store.appender(1, sink).append([b"only"], None, 0, 1)
            await sink.reached(0)
            await until(lambda: store.mark.is_marked)
            crashed = crash_copy(tmp_path, tmp_path / "crashed")
        flip(segments(crashed)[0], DATA_OFFSET + HEADER_BYTES + 5)
        for _ in range(2):
            async with store_in(crashed) as store:
                await store.delete(99)
                assert store.segments.last_lost(1) == 0

    run(story())


def test_segments_that_were_swapped_renamed_or_doubled_are_told_by_their_headers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        await written(tmp_path)
        async with store_in(tmp_path) as store:
            store.appender(3, Sink()).append([b"three"], None, 0, 1)
        first, second = segments(tmp_path)
        kept = {path: path.read_bytes() for path in (first, second)}
        first.rename(tmp_path / "other")
        second.rename(first)
        (tmp_path / "other").rename(second)
        double = first.with_name(f"{77:016x}.seg")
        double.write_bytes(kept[first])
        async with store_in(tmp_path) as store:
            assert await all_of(store) == WHOLE
            assert await entries_of(store, 3) == [b"three"]
        assert {path: path.read_bytes() for path in (first, second)} == kept
        assert (tmp_path / "quarantine" / f"{77:016x}.stray").read_bytes() == kept[first]
        second.rename(second.with_name(f"{5:016x}.seg"))
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 3) == [b"three"]
        assert "its header says that it is" in caplog.text
        assert "it was set aside as" in caplog.text

    run(story())


def test_an_idle_segment_says_far_from_its_end_how_far_it_is_synced(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            await write(store)
            await until(lambda: store.mark.is_marked)
            (path,) = segments(tmp_path)[:1]
            header = decode_segment_header(path.read_bytes()[:64])
            assert header is not None
            there = path.read_bytes()[CHECKPOINT_AT : CHECKPOINT_AT + CHECKPOINT_BYTES]
            index = await store.reader.index_of(2)
            place = index.place_of(5)
            assert place is not None
            assert decode_checkpoint(there, header.salt) == place.offset + place.size

    run(story())


def test_a_checkpoint_of_another_life_or_with_a_flipped_bit_says_nothing() -> None:
    there = encode_checkpoint(5, 7000)
    assert decode_checkpoint(there, 5) == 7000
    assert decode_checkpoint(there, 6) == 0
    assert decode_checkpoint(bytes(CHECKPOINT_BYTES), 5) == 0
    for bit in range(8 * CHECKPOINT_BYTES):
        wrong = bytearray(there)
        wrong[bit // 8] ^= 1 << bit % 8
        assert decode_checkpoint(bytes(wrong), 5) == 0


def test_damages_say_whose_entries_were_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            await write(store)
            await until(lambda: store.mark.is_marked)
            index = await store.reader.index_of(2)
            place = index.place_of(2)
            assert place is not None
            crashed = crash_copy(tmp_path, tmp_path / "crashed")
        (path,) = segments(crashed)[:1]
        flip(path, place.offset + place.size - 1)
        async with store_in(crashed) as store:
            assert [d for s in store.segments for d in s.damages] == [
                Damage(place.offset, place.size, 2, 2, 2)
            ]
        assert f"at byte {place.offset}, ledger 2" in caplog.text
        assert "entries 2 to 2 were there" in caplog.text

    run(story())


@pytest.mark.parametrize("segment_bytes", [(256 << 10) // 3, (64 << 10) + 1])
def test_a_killed_store_lost_nothing_whatever_size_its_segments_have(
    tmp_path: Path, segment_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What is set aside behind the blocks of a segment never held blocks."""

    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=segment_bytes) as store:
            await write(store)
            crashed = crash_copy(tmp_path, tmp_path / "killed")
        async with store_in(crashed, segment_bytes=segment_bytes) as store:
            assert await all_of(store) == WHOLE
            assert [damage for segment in store.segments for damage in segment.damages] == []
        assert "corrupt" not in caplog.text

    run(story())
