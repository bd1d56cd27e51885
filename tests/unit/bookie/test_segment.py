"""Segment headers and footers: bytes that come back, and damage that is noticed."""

from __future__ import annotations

from magnetar.base.ids import LedgerId
from magnetar.bookie.index import Damage, SegmentIndex
from magnetar.bookie.segment import (
    DATA_OFFSET,
    TRAILER_BYTES,
    SealedIndex,
    decode_segment_header,
    decode_trailer,
    encode_footer,
    encode_segment_header,
)
from support.segment_images import INSTANCE, SALT

END = 50_000


def full_index() -> SegmentIndex:
    index = SegmentIndex(9)
    offset = DATA_OFFSET
    for ledger_id in (30, 10, 20):
        for block in range(ledger_id // 10):
            index.rows(ledger_id).append(block * 5, offset, 200, 5, 84)
            offset += 200
    index.tombstones += [LedgerId(5), LedgerId(3)]
    index.damages.append(Damage(7000, 100, 10, 5, 9))
    index.block_count = 8
    return index


def parse(file: bytes, end: int = END) -> SealedIndex | None:
    """Reads the footer as the store does; `file` is what lies from `end` on."""
    trailer = decode_trailer(file[-TRAILER_BYTES:], SALT, end + len(file))
    if trailer is None:
        return None
    at = trailer.directory_offset - end
    return SealedIndex.decode(9, trailer, file[at : at + trailer.directory_bytes])


def test_a_footer_comes_back() -> None:
    index = full_index()
    footer = encode_footer(index, SALT, END)
    sealed = parse(footer)
    assert sealed is not None
    assert list(sealed.ledger_ids) == [10, 20, 30]
    assert (sealed.tombstones, sealed.damages) == ([5, 3], [Damage(7000, 100, 10, 5, 9)])
    assert sealed.position_of(15) == -1
    for ledger_id in (10, 20, 30):
        position = sealed.position_of(ledger_id)
        offset, length = sealed.rows_extent(position)
        rows = sealed.decode_rows(position, footer[offset - END : offset - END + length])
        assert rows is not None
        assert rows.rows == index.ledgers[LedgerId(ledger_id)].rows


def test_an_empty_footer_comes_back() -> None:
    sealed = parse(encode_footer(SegmentIndex(9), SALT, END))
    assert sealed is not None
    assert list(sealed.ledger_ids) == []


def test_a_flipped_bit_anywhere_in_a_footer_is_noticed() -> None:
    footer = encode_footer(full_index(), SALT, END)
    for at in range(len(footer)):
        data = bytearray(footer)
        data[at] ^= 0x10
        sealed = parse(bytes(data))
        if sealed is None:
            continue
        # Then the rows are hit, and those of one ledger are refused when they are read.
        bad = 0
        for position in range(3):
            offset, length = sealed.rows_extent(position)
            rows = sealed.decode_rows(position, bytes(data[offset - END : offset - END + length]))
            bad += rows is None
        assert bad == 1, at


def test_a_footer_of_another_file_is_none() -> None:
    footer = encode_footer(full_index(), SALT, END)
    assert decode_trailer(footer[-TRAILER_BYTES:], SALT + 1, END + len(footer)) is None
    assert decode_trailer(footer[-TRAILER_BYTES:], SALT, END + len(footer) + 1) is None
    assert decode_trailer(footer[-TRAILER_BYTES + 1 :], SALT, END + len(footer)) is None


def test_a_header_comes_back_and_damage_is_noticed() -> None:
    header = encode_segment_header(9, INSTANCE, SALT)
    assert len(header) == DATA_OFFSET
    decoded = decode_segment_header(header)
    assert decoded is not None
    assert decoded[1:] == (9, INSTANCE, SALT)
    for at in range(48):
        data = bytearray(header)
        data[at] ^= 2
        assert decode_segment_header(bytes(data)) is None, at
    assert decode_segment_header(header[:47]) is None
