"""Entries that came one by one share a block while it waits: what joins, and what the block becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.bookie.blocks import HAS_COUNTS, HEADER_BYTES
from magnetar.bookie.commit import CommitQueue
from magnetar.bookie.entry_blocks import GATHERED_MAX, blocks_of, entry_block, gather
from support.storage import Sink, run, store_in


@pytest.mark.parametrize("counts", [None, [3, 1, 2]])
def test_a_block_of_gathered_entries_is_that_of_one_vector(counts: list[int] | None) -> None:
    entries = [b"first", b"", b"third one"]
    queue = CommitQueue()
    queue.add(block := entry_block(5, 7, entries[0], None if counts is None else counts[0], 50, 9))
    index = 50
    for row in (1, 2):
        index += 1 if counts is None else counts[row - 1]
        grown = gather(block, entries[row], None if counts is None else counts[row], index)
        assert grown == len(entries[row]) + (4 if counts is None else 8)
        queue.grew(grown)
    queue.check()
    (together,) = blocks_of(5, 7, entries, counts, 50, 9)
    assert queue.take(1 << 20, 10) == [block]
    assert block.body.pieces == together.body.pieces
    assert (block.body.crc, block.body.flags) == (together.body.crc, 0 if counts is None else HAS_COUNTS)
    assert (block.size, block.data_bytes) == (HEADER_BYTES + block.body.length, 14)
    assert block.header(1, 2, 3, 4, 5, 6, 7) == together.header(1, 2, 3, 4, 5, 6, 7)


def test_what_does_not_follow_does_not_join() -> None:
    block = entry_block(5, 7, b"first", None, 50, 9)
    assert gather(block, b"x", None, 52) == 0, "a message between the two is in another block"
    assert gather(block, b"x", 2, 51) == 0, "a batch among single messages"
    for row in range(1, GATHERED_MAX):
        assert gather(block, b"x", None, 50 + row) == 5
    assert gather(block, b"x", None, 50 + GATHERED_MAX) == 0
    assert block.entry_count == GATHERED_MAX


def test_nothing_joins_a_block_that_is_being_written() -> None:
    queue = CommitQueue()
    queue.add(block := entry_block(5, 7, b"first", None, 50, 9))
    queue.take(1 << 20, 10)
    assert gather(block, b"x", None, 51) == 0
    assert block.entry_count == 1


def test_entries_of_one_millisecond_share_a_block_and_those_of_others_do_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            appender = store.appender(1, sink := Sink())
            for entry, time_ms in enumerate([1, 1, 1, 2, 2, 3]):
                assert appender.append([b"%d" % entry], None, entry, time_ms) == entry
            appender.append([b"a", b"b"], None, 6, 3)
            appender.append([b"c"], None, 8, 3)
            await sink.reached(8)
            runs = await store.reader.read(appender.index, 0, 8, 1 << 20)
            found = [(each.first_entry, b"".join(each.entries), each.broker_time_ms) for each in runs]
            assert found == [
                (0, b"012", 1),
                (3, b"34", 2),
                (5, b"5", 3),
                (6, b"ab", 3),
                (8, b"c", 3),
            ]
            assert [each.base_index for each in runs] == [0, 3, 5, 6, 8]
            appender.check()

    run(story())
