"""Acknowledged entries survive their bytes, and no bytes crash the decoder."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.ids import Position
from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.cursors import entry_set_codec
from magnetar.managedlog.cursors.cursor_codec import (
    IN_STORE,
    CursorValue,
    decode_entry,
    decode_info,
    encode_entry,
    encode_info,
)
from magnetar.managedlog.cursors.cursor_delta import CursorDelta
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.cursors.entry_set_codec import MalformedAckedError
from magnetar.managedlog.errors import InvalidLogDataError

ranges = st.lists(st.tuples(st.integers(0, 8000), st.integers(0, 3000)), max_size=8)


def build(pairs: list[tuple[int, int]]) -> tuple[EntrySet, set[int]]:
    entries = EntrySet()
    model: set[int] = set()
    for first, length in pairs:
        entries.add_range(first, first + length)
        model.update(range(first, first + length + 1))
    return entries, model


def content(entries: EntrySet) -> set[int]:
    return {entry for first, last in entries.ranges() for entry in range(first, last + 1)}


@given(ranges, st.lists(st.integers(0, 12_000), max_size=30), st.integers(0, 12_000))
def test_an_entry_set_is_a_set(pairs: list[tuple[int, int]], singles: list[int], bound: int) -> None:
    entries, model = build(pairs)
    for single in singles:
        assert entries.add(single) == (single not in model)
        model.add(single)
    entries.check()
    assert len(entries) == len(model)
    assert content(entries) == model
    found = list(entries.ranges())
    assert all(a[1] + 1 < b[0] for a, b in pairwise(found)), "runs are maximal"
    missing = next(entry for entry in range(bound, 20_000) if entry not in model)
    assert entries.next_missing(bound) == missing
    assert (bound in entries) == (bound in model)
    entries.remove_upto(bound)
    entries.check()
    assert content(entries) == {entry for entry in model if entry > bound}
    entries.add_range(0, 10)
    entries.remove_upto(5)
    entries.check()
    assert 6 in entries
    assert 5 not in entries


@given(st.dictionaries(st.integers(0, 1 << 62), ranges.filter(bool), max_size=4))
def test_acked_entries_round_trip(by_ledger: dict[int, list[tuple[int, int]]]) -> None:
    acked = {ledger_id: build(pairs)[0] for ledger_id, pairs in by_ledger.items()}
    decoded = entry_set_codec.decode(entry_set_codec.encode(acked))
    assert {key: content(value) for key, value in decoded.items()} == {
        key: content(value) for key, value in acked.items()
    }
    for entries in decoded.values():
        entries.check()


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        decoded = entry_set_codec.decode(data[:4] and bytes(byte & 0x3F for byte in data))
    except MalformedAckedError:
        return
    for entries in decoded.values():
        entries.check()


deltas = st.builds(
    CursorDelta,
    st.builds(Position, st.integers(-1, 1 << 40), st.integers(-1, 1 << 30)),
    st.booleans(),
    st.dictionaries(
        st.integers(0, 1 << 40), ranges.filter(bool).map(lambda pairs: build(pairs)[0]), max_size=3
    ),
    st.dictionaries(
        st.builds(Position, st.integers(0, 1 << 40), st.integers(0, 1 << 30)),
        st.integers(1, 1 << 200),
        max_size=3,
    ),
    st.none() | st.dictionaries(st.text(max_size=5), st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
)


def plain(delta: CursorDelta) -> tuple[object, ...]:
    return (
        delta.mark_delete,
        {key: content(value) for key, value in delta.acked.items()},
        delta.partial,
    )


@given(deltas)
def test_entries_of_cursor_ledgers_round_trip(delta: CursorDelta) -> None:
    decoded = decode_entry(encode_entry(delta), "test")
    assert plain(decoded) == plain(delta)
    assert decoded.replaces == delta.replaces
    assert decoded.properties == (delta.properties or {} if delta.replaces else delta.properties)


@given(deltas, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_values_of_cursors_round_trip(delta: CursorDelta, properties: dict[str, str]) -> None:
    info = CursorValue(IN_STORE, delta, properties, 17, (3, 4))
    decoded = decode_info(encode_info(info), "test")
    assert plain(decoded.state) == plain(delta)
    assert decoded.state.properties == (delta.properties or {})
    assert decoded.cursor_properties == properties
    assert (decoded.last_active_ms, decoded.deleted_ledgers) == (17, (3, 4))


@given(
    st.dictionaries(
        st.builds(Position, st.integers(0, 1 << 62), st.integers(0, 1 << 62)),
        st.integers(1, (1 << 32) - 1),
        max_size=10,
    )
)
def test_redelivery_counts_round_trip(counts: dict[Position, int]) -> None:
    delta = CursorDelta(Position(1, 2), True, redeliveries=counts)
    assert decode_entry(encode_entry(delta), "test").redeliveries == counts
    assert decode_info(encode_info(CursorValue(IN_STORE, delta)), "test").state.redeliveries == counts


@given(st.binary(max_size=70))
def test_no_redelivery_counts_crash_the_decoder(data: bytes) -> None:
    info = pb.PositionInfo(ledgerId=1, entryId=2, redeliveries=data)
    if len(data) % 20:
        with pytest.raises(InvalidLogDataError):
            decode_entry(info.SerializeToString(), "test")
    else:
        decode_entry(info.SerializeToString(), "test")
