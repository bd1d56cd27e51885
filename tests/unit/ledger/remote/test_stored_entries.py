"""Entries with broker metadata in front, as Pulsar stores them."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.ledger.remote.stored_entries import is_bare, runs, stored
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry, split_broker_metadata


def values(found: list[EntryRun]) -> list[tuple[int, list[bytes], list[int] | None, int, int]]:
    return [(run.first_entry, run.entries, run.counts, run.base_index, run.broker_time_ms) for run in found]


def by_pulsar(entry: bytes, *, time_ms: int | None = None, index: int | None = None) -> bytes:
    block = pb.BrokerEntryMetadata()
    if time_ms is not None:
        block.broker_timestamp = time_ms
    if index is not None:
        block.index = index
    data = block.SerializeToString()
    return struct.pack(">HI", 0x0E02, len(data)) + data + entry


def batch(messages: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=messages
    )
    return build_entry(metadata, b"payload")


def test_pulsar_reads_time_and_index_of_the_last_message() -> None:
    first, second = stored([b"one", b"three"], [1, 3], 1_000, 1_700_000_000_000)
    for data, index, entry in ((first, 1_000, b"one"), (second, 1_003, b"three")):
        metadata, start = split_broker_metadata(data)
        assert metadata is not None
        assert (metadata.broker_timestamp, metadata.index) == (1_700_000_000_000, index)
        assert data[start:] == entry


def test_what_is_stored_comes_back_as_runs() -> None:
    data = [
        *stored([b"a", b"", b"c"], None, 7, 100),
        *stored([b"d", b"e"], [5, 1], 10, 100),
        *stored([b"f"], None, 16, 101),
        *stored([b"g"], [2], 40, 101),
    ]
    assert values(runs(3, 20, data)) == [
        (20, [b"a", b"", b"c", b"d", b"e"], [1, 1, 1, 5, 1], 7, 100),
        (25, [b"f"], None, 16, 101),
        (26, [b"g"], [2], 40, 101),
    ]
    assert values(runs(3, 23, data[3:4])) == [(23, [b"d"], [5], 10, 100)]
    assert runs(3, 0, []) == []


def test_entries_that_pulsar_wrote_are_counted_by_their_metadata() -> None:
    data = [by_pulsar(batch(3), time_ms=5, index=12), by_pulsar(batch(1), time_ms=5, index=13)]
    assert values(runs(3, 0, data)) == [(0, [batch(3), batch(1)], [3, 1], 10, 5)]


def test_entries_without_index_or_broker_metadata_have_the_index_of_their_id() -> None:
    data = [by_pulsar(b"timed", time_ms=5), b"\x0e", b"neither"]
    assert values(runs(3, 4, data)) == [(4, [b"timed"], None, 4, 5), (5, [b"\x0e", b"neither"], None, 5, 0)]


@pytest.mark.parametrize("cut", range(2, 12))
def test_broken_broker_metadata_is_damage(cut: int) -> None:
    (data,) = stored([b""], None, 1 << 40, 1 << 41)
    with pytest.raises(CorruptDataError, match="entry 9"):
        runs(3, 9, [data[:cut]])


def test_pulsar_expects_broker_metadata_before_messages_only() -> None:
    of_cursor = {"component": b"managed-ledger", "pulsar/cursor": b"s"}
    beside = {"component": b"cursor-side-ledger", "pulsar/cursor": b"__compaction"}
    assert not is_bare({"component": b"managed-ledger", "pulsar/managed-ledger": b"t"}, for_pulsar=True)
    assert is_bare(of_cursor)
    assert is_bare({"component": b"schema"})
    assert not is_bare(beside)
    assert is_bare(beside, for_pulsar=True)


def test_without_a_brokers_time_the_producers_counts() -> None:
    """With none, all messages of a topic that Pulsar wrote would be of 1970, and expire at once."""
    entry = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=77), b"x")
    found = runs(LedgerId(1), 0, [entry, by_pulsar(entry, index=1), by_pulsar(entry, time_ms=99, index=2)])
    assert [run.broker_time_ms for run in found for _ in run.entries] == [77, 77, 99]


def test_a_time_that_no_date_holds_is_the_last_one() -> None:
    claimed = (1 << 64) - 1
    entry = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=claimed), b"x")
    (run,) = runs(3, 0, [entry, by_pulsar(entry, time_ms=1 << 62)])
    assert datetime.fromtimestamp(run.broker_time_ms // 1000, UTC).year == 9999
