"""What a scan makes of segments that were cut short or damaged."""

from __future__ import annotations

import pytest

from magnetar.bookie.blocks import HEADER_BYTES, mark_block, start_block, tombstone_block
from magnetar.bookie.index import UNKNOWN_OWNER, Damage
from magnetar.bookie.recovery import WINDOW_BYTES
from magnetar.bookie.segment import DATA_OFFSET
from support.segment_images import SALT, Image, entries, found


def two_groups() -> Image:
    """Ledgers 1 and 2 in a synced group, ledger 1 once more in the last one."""
    image = Image()
    image.write(entries(1, 0, b"a" * 40, b"b" * 30), entries(2, 0, b"c" * 50))
    image.write(entries(1, 2, b"d" * 60))
    return image


def test_an_empty_segment_has_nothing() -> None:
    scan = Image().scan()
    assert (found(scan), scan.end, scan.torn_bytes, scan.previous) == ({}, DATA_OFFSET, 0, None)


def test_whole_blocks_are_found() -> None:
    image = two_groups()
    scan = image.scan()
    scan.found.check()
    assert found(scan) == {1: [(0, 1), (2, 2)], 2: [(0, 0)]}
    assert (scan.end, scan.torn_bytes, scan.found.damages) == (image.end, 0, [])


def test_a_tail_that_is_torn_anywhere_is_cut_off() -> None:
    image = two_groups()
    whole = bytes(image.bytes)
    _, last = image.places[-1]
    for kept in range(last, image.end):
        scan = image.scan(whole[:kept] + bytes(len(whole) - kept))
        assert found(scan) == {1: [(0, 1)], 2: [(0, 0)]}, kept
        assert (scan.end, scan.found.damages) == (last, []), kept
        # The same with the file ending there.
        assert found(image.scan(whole[:kept])) == {1: [(0, 1)], 2: [(0, 0)]}, kept


def test_a_torn_group_ends_at_its_first_bad_block_though_later_ones_reached_the_disk() -> None:
    image = Image()
    image.write(entries(1, 0, b"synced"))
    image.write(entries(1, 1, b"lost" * 10), entries(2, 0, b"there"), entries(1, 2, b"there too"))
    lost, offset = image.places[1]
    data = bytearray(image.bytes)
    data[offset : offset + lost.size] = bytes(lost.size)
    scan = image.scan(bytes(data))
    assert found(scan) == {1: [(0, 0)]}
    assert (scan.end, scan.found.damages) == (offset, [])
    assert scan.torn_bytes == image.end - offset


def test_damage_before_the_synced_mark_costs_only_its_own_block() -> None:
    image = two_groups()
    block, offset = image.places[0]
    data = bytearray(image.bytes)
    data[offset + HEADER_BYTES + 20] ^= 1
    scan = image.scan(bytes(data))
    assert found(scan) == {1: [(2, 2)], 2: [(0, 0)]}
    assert scan.found.damages == [Damage(offset, block.size, 1, 0, 1)]
    assert scan.end == image.end


def test_a_lost_header_is_attributed_by_the_block_behind_it() -> None:
    image = two_groups()
    block, offset = image.places[1]
    data = bytearray(image.bytes)
    data[offset : offset + HEADER_BYTES] = bytes(HEADER_BYTES)
    scan = image.scan(bytes(data))
    assert found(scan) == {1: [(0, 1), (2, 2)]}
    assert scan.found.damages == [Damage(offset, block.size, 2, -1, 0)]


def test_a_wiped_region_is_attributed_as_far_as_it_can_be() -> None:
    image = two_groups()
    (first, start), (second, second_start), _ = image.places
    data = bytearray(image.bytes)
    data[start : second_start + second.size] = bytes(first.size + second.size)
    scan = image.scan(bytes(data))
    assert found(scan) == {1: [(2, 2)]}
    assert scan.found.damages == [
        Damage(start, first.size, UNKNOWN_OWNER, -1, -1),
        Damage(second_start, second.size, 2, -1, 0),
    ]


def test_a_mark_makes_the_last_group_known_as_synced() -> None:
    image = two_groups()
    block, offset = image.places[-1]
    data = bytearray(image.bytes)
    data[offset + HEADER_BYTES + 10] ^= 0x80
    assert image.scan(bytes(data)).found.damages == []
    image.write(mark_block())
    data = bytearray(image.bytes)
    data[offset + HEADER_BYTES + 10] ^= 0x80
    assert image.scan(bytes(data)).found.damages == [Damage(offset, block.size, 1, 2, 2)]


def test_a_damaged_mark_costs_nothing() -> None:
    image = two_groups()
    offset = image.write(mark_block())
    image.write(entries(3, 0, b"x"))
    data = bytearray(image.bytes)
    data[offset + 30] ^= 1
    scan = image.scan(bytes(data))
    assert found(scan) == {1: [(0, 1), (2, 2)], 2: [(0, 0)], 3: [(0, 0)]}
    assert [damage.ledger_id for damage in scan.found.damages] == [-1]


def test_the_next_segment_says_where_this_one_ended() -> None:
    image = two_groups()
    block, offset = image.places[-1]
    data = bytearray(image.bytes)
    data[offset + 3] ^= 4
    scan = image.scan(bytes(data), synced_end=image.end)
    assert scan.found.damages == [Damage(offset, block.size, UNKNOWN_OWNER, -1, -1)]
    assert scan.end == image.end
    wiped = bytes(image.bytes[:offset]) + bytes(len(image.bytes) - offset)
    scan = image.scan(wiped, synced_end=image.end)
    assert scan.found.damages == [Damage(offset, block.size, UNKNOWN_OWNER, -1, -1)]


def test_blocks_behind_the_end_that_the_next_segment_names_do_not_count() -> None:
    """A group that hit a full disk may lie there whole, though its writers were told that it failed."""
    image = two_groups()
    end = image.end
    image.write(entries(1, 3, b"refused"))
    scan = image.scan(synced_end=end)
    assert found(scan) == {1: [(0, 1), (2, 2)], 2: [(0, 0)]}
    assert scan.end == end


def test_bytes_of_a_former_life_of_the_file_are_no_blocks() -> None:
    old = Image(salt=SALT + 1)
    for i in range(100):
        old.write(entries(9, i, b"old" * 20))
    image = two_groups()
    data = bytes(image.bytes[: image.end]) + bytes(old.bytes[image.end :])
    scan = image.scan(data)
    assert found(scan) == {1: [(0, 1), (2, 2)], 2: [(0, 0)]}
    assert (scan.end, scan.found.damages) == (image.end, [])


def test_tombstones_and_the_start_are_found() -> None:
    image = Image()
    image.write(start_block(7, 12345), entries(1, 0, b"x"), tombstone_block(4))
    scan = image.scan()
    assert (scan.previous, scan.found.tombstones, scan.found.block_count) == ((7, 12345), [4], 3)


@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_is_either_found_or_outside_the_log(bit: int) -> None:
    """Every byte of a small segment whose last group is marked: detected, with place and owner."""
    image = two_groups()
    image.write(mark_block())
    end = image.end
    whole = bytes(image.bytes)
    mark_offset = image.places[-1][1]
    for at in range(DATA_OFFSET, end + 64):
        data = bytearray(whole)
        data[at] ^= 1 << bit
        scan = image.scan(bytes(data))
        if at >= mark_offset:
            assert found(scan) == {1: [(0, 1), (2, 2)], 2: [(0, 0)]}, at
            continue
        ((block, offset),) = [(b, o) for b, o in image.places if o <= at < o + b.size]
        (damage,) = scan.found.damages
        assert (damage.offset, damage.ledger_id) == (offset, block.ledger_id), at
        assert damage.last_entry == block.last_entry, at
        assert scan.end == end, at
        assert sum(map(len, found(scan).values())) == 2, at


def test_a_block_larger_than_what_is_read_at_once_is_found() -> None:
    large = b"x" * (WINDOW_BYTES + 1)
    image = Image(4 * WINDOW_BYTES)
    image.write(entries(1, 0, b"before"), entries(1, 1, large), entries(1, 2, b"behind"))
    scan = image.scan()
    assert found(scan) == {1: [(0, 0), (1, 1), (2, 2)]}
    assert (scan.end, scan.found.block_count, scan.found.damages) == (image.end, 3, [])


def test_blocks_across_the_borders_of_what_is_read_at_once_are_found() -> None:
    image = Image(4 * WINDOW_BYTES)
    body = b"y" * (WINDOW_BYTES // 7)
    for first in range(20):
        image.write(entries(1, first, body))
    scan = image.scan()
    assert found(scan) == {1: [(first, first) for first in range(20)]}
    assert scan.end == image.end
