"""Group commit as values: which writes share a group, where blocks lie."""

from __future__ import annotations

from magnetar.bookie.blocks import Block, decode_header, mark_block, start_block
from magnetar.bookie.commit import GROUP_BLOCKS_MAX, GROUP_BYTES_MAX, CommitQueue, Tail
from support.segment_images import SALT, entries


def fill(queue: CommitQueue, *blocks: Block) -> None:
    for block in blocks:
        queue.add(block)
    queue.check()


def test_what_arrives_while_a_group_is_in_flight_forms_the_next() -> None:
    queue = CommitQueue()
    a, b, c = entries(1, 0, b"a"), entries(2, 0, b"b"), entries(1, 1, b"c")
    fill(queue, a, b)
    assert queue.take(1 << 20, 100) == [a, b]
    fill(queue, c)
    assert (queue.in_flight_bytes, queue.waiting_bytes) == (a.size + b.size, c.size)
    queue.done()
    queue.check()
    assert queue.take(1 << 20, 100) == [c]


def test_a_group_is_bounded_by_room_bytes_and_count() -> None:
    queue = CommitQueue()
    blocks = [entries(1, i, b"x" * 100) for i in range(10)]
    fill(queue, *blocks)
    size = blocks[0].size
    assert len(queue.take(3 * size + size - 1, 100)) == 3
    queue.done()
    assert len(queue.take(1 << 20, 2)) == 2
    queue.done()
    assert queue.take(size - 1, 100) == []
    assert queue.first_bytes == size
    assert len(queue) == 5
    queue.check()


def test_a_backlog_of_many_small_blocks_is_cut_into_groups() -> None:
    queue = CommitQueue()
    fill(queue, *(entries(ledger_id, 0, b"a") for ledger_id in range(GROUP_BLOCKS_MAX + 5)))
    sizes = []
    while len(queue):
        sizes.append(len(queue.take(1 << 30, 1 << 30)))
        queue.done()
    assert sizes == [GROUP_BLOCKS_MAX, 5]


def test_a_block_above_the_bound_goes_alone() -> None:
    queue = CommitQueue()
    huge = entries(1, 0, bytes(GROUP_BYTES_MAX + 1))
    fill(queue, huge, entries(1, 1, b"x"))
    assert queue.take(1 << 30, 100) == [huge]


def test_giving_up_hands_back_everything_in_order() -> None:
    queue = CommitQueue()
    a, b = entries(1, 0, b"a"), entries(1, 1, b"b")
    fill(queue, a)
    queue.take(1 << 20, 10)
    fill(queue, b)
    assert queue.fail() == [a, b]
    assert (len(queue), queue.waiting_bytes, queue.in_flight_bytes) == (0, 0, 0)
    queue.check()


def test_the_start_of_a_segment_goes_first() -> None:
    queue = CommitQueue()
    a, start = entries(1, 0, b"a"), start_block(1, 5000)
    fill(queue, a)
    queue.add_first(start)
    assert queue.take(1 << 20, 10) == [start, a]


def test_places_follow_each_other_and_say_what_is_synced() -> None:
    tail = Tail(1, SALT, 4096, 1 << 20)
    group = [entries(1, 0, b"abc"), mark_block()]
    offsets, pieces = tail.place(group)
    data = bytes(4096) + b"".join(pieces)
    assert offsets == [4096, 4096 + group[0].size]
    headers = [decode_header(data, offset, SALT, offset) for offset in offsets]
    assert [header.synced_to for header in headers if header] == [4096, 4096]
    tail.advance(group[0].size + group[1].size, 2)
    (third,), _ = tail.place([entries(1, 1, b"d")])
    assert third == tail.offset == offsets[1] + group[1].size
    assert tail.room_bytes == (1 << 20) - third
