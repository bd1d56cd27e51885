"""Blocks of any shape come back, and any change to them is noticed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.entries import EntryRun
from magnetar.bookie.blocks import HEADER_BYTES, body_is_good, decode_entries, decode_header
from magnetar.bookie.entry_blocks import blocks_of
from support.segment_images import Image


@st.composite
def runs(draw: st.DrawFn) -> EntryRun:
    entries = draw(st.lists(st.binary(max_size=200) | st.just(bytes(9000)), min_size=1, max_size=30))
    counts = draw(st.none() | st.lists(st.integers(0, 1 << 20), min_size=len(entries), max_size=len(entries)))
    number = st.integers(0, (1 << 62))
    return EntryRun(draw(number), draw(number), entries, counts, draw(number), draw(number))


def written(run: EntryRun) -> Image:
    image = Image(size=1 << 20)
    image.write(
        *blocks_of(
            run.ledger_id, run.first_entry, run.entries, run.counts, run.base_index, run.broker_time_ms
        )
    )
    return image


def read(image: Image, data: bytes) -> EntryRun | None:
    ((_, offset),) = image.places
    header = decode_header(data, offset, image.salt, offset)
    if header is None:
        return None
    body = data[offset + HEADER_BYTES : offset + header.size]
    return decode_entries(header, body) if body_is_good(header, body) else None


@given(runs())
def test_a_run_comes_back(run: EntryRun) -> None:
    image = written(run)
    got = read(image, bytes(image.bytes))
    assert got is not None
    assert got.entries == run.entries
    assert got.counts == run.counts
    assert (got.ledger_id, got.first_entry, got.base_index, got.broker_time_ms) == (
        run.ledger_id,
        run.first_entry,
        run.base_index,
        run.broker_time_ms,
    )


@given(runs(), st.data())
def test_a_change_of_up_to_four_bytes_is_noticed(run: EntryRun, data: st.DataObject) -> None:
    image = written(run)
    ((block, offset),) = image.places
    changed = bytearray(image.bytes)
    at = data.draw(st.integers(offset, offset + block.size - 1))
    for i in range(at, min(at + data.draw(st.integers(1, 4)), offset + block.size)):
        changed[i] = data.draw(st.integers(0, 255))
    if changed != image.bytes:
        assert read(image, bytes(changed)) is None
