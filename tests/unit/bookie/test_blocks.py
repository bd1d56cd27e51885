"""The block codec: bytes, limits, and what it refuses."""

from __future__ import annotations

import pytest

from magnetar.bookie.blocks import (
    HEADER_BYTES,
    BlockHeader,
    BlockKind,
    body_is_good,
    decode_entries,
    decode_header,
    decode_start,
    first_salt,
    start_block,
)
from magnetar.bookie.entry_blocks import BLOCK_BYTES_MAX, blocks_of
from support.segment_images import SALT, Image, entries


def only_block(image: Image) -> tuple[BlockHeader, bytes]:
    ((_, offset),) = image.places
    data = bytes(image.bytes)
    header = decode_header(data, offset, image.salt, offset)
    assert header is not None
    return header, data[offset + HEADER_BYTES : offset + header.size]


def test_a_block_has_the_documented_bytes() -> None:
    block = entries(5, 7, b"ab", b"c", counts=[3, 1])
    head = block.header(SALT, 4096, 4096, 0, 0, -1, -1)
    assert len(head) == HEADER_BYTES
    assert head[:4] == b"MGB1"
    assert head[8:16] == SALT.to_bytes(8, "little")
    assert head[20:96].hex() == (
        "13000000"  # body_length: two tables of two numbers, three bytes
        "0500000000000000"  # ledger_id
        "0700000000000000"  # first_entry
        "ef03000000000000"  # base_index 1007
        "8f13000000000000"  # broker_time_ms 5007
        "02000000"  # entry_count
        "0000"  # kind
        "0100"  # flags: counts
        "00100000"  # offset
        "00100000"  # synced_to
        "00000000"  # previous_offset
        "00000000"  # previous_size
        "ffffffffffffffff"  # previous_ledger
        "ffffffffffffffff"  # previous_last
    )
    assert b"".join(block.body.pieces).hex() == "0200000001000000" + "0300000001000000" + "616263"


def test_entries_come_back() -> None:
    image = Image()
    image.write(entries(5, 7, b"ab", b"", b"c"))
    header, body = only_block(image)
    assert body_is_good(header, body)
    run = decode_entries(header, body)
    assert (run.ledger_id, run.first_entry, run.entries) == (5, 7, [b"ab", b"", b"c"])
    assert (run.counts, run.base_index, run.broker_time_ms) == (None, 1007, 5007)


def test_a_block_names_the_one_before_it() -> None:
    image = Image()
    image.write(entries(5, 0, b"x" * 10), entries(6, 3, b"y", b"z"))
    image.write(entries(5, 1, b"q"))
    (_, first), (second_block, second), (_, third) = image.places
    data = bytes(image.bytes)
    header = decode_header(data, third, SALT, third)
    assert header is not None
    assert (header.previous_offset, header.previous_size) == (second, second_block.size)
    assert (header.previous_ledger, header.previous_last) == (6, 4)
    assert header.synced_to == third
    assert first + HEADER_BYTES + 14 == second


@pytest.mark.parametrize(
    "sizes", [[BLOCK_BYTES_MAX], [400_000] * 7, [5 << 20], [10, 5 << 20, 10, 10], [1] * 3]
)
def test_long_vectors_are_split(sizes: list[int]) -> None:
    values = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    counts = [i + 1 for i in range(len(values))]
    blocks = blocks_of(1, 100, values, counts, 50, 9)
    assert sum(block.entry_count for block in blocks) == len(values)
    entry, index = 100, 50
    for block in blocks:
        assert (block.first_entry, block.base_index) == (entry, index)
        assert block.data_bytes <= BLOCK_BYTES_MAX or block.entry_count == 1
        entry += block.entry_count
        index += sum(counts[block.first_entry - 100 : entry - 100])
    data = b"".join(b"".join(block.body.pieces)[8 * block.entry_count :] for block in blocks)
    assert data == b"".join(values)


def test_a_header_is_refused_at_any_other_place_or_in_another_life_of_the_file() -> None:
    image = Image()
    offset = image.write(entries(1, 0, b"x"))
    data = bytes(image.bytes)
    assert decode_header(data, offset, SALT, offset) is not None
    assert decode_header(data, offset, SALT + 1, offset) is None
    assert decode_header(data, offset, SALT, offset + 4096) is None
    assert decode_header(data[: offset + HEADER_BYTES - 1], offset, SALT, offset) is None
    assert first_salt(data[offset:], offset) == SALT
    assert first_salt(bytes(HEADER_BYTES), offset) is None


def test_a_table_that_does_not_describe_the_body_is_refused() -> None:
    image = Image()
    image.write(entries(1, 0, b"x", b"yy"))
    header, body = only_block(image)
    # A sum that is right over a table that is not: what our own bug would look like.
    assert not body_is_good(header._replace(entry_count=1), body)
    assert not body_is_good(header._replace(entry_count=0), body)
    assert not body_is_good(header._replace(entry_count=1 << 20), body)
    assert not body_is_good(header, body[:-1])
    assert not body_is_good(header, body + b"!")


def test_the_first_block_of_a_segment_names_the_end_of_the_one_before() -> None:
    block = start_block(41, 99_000)
    assert block.kind == BlockKind.START
    assert decode_start(b"".join(block.body.pieces)) == (41, 99_000)
