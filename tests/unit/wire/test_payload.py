"""Entries and batches, cut and built."""

from __future__ import annotations

import struct

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c, crc32c_extend
from magnetar.wire.payload import (
    EntryError,
    build_batch,
    build_entry,
    checksum_matches,
    entry_layout,
    is_batch,
    parse_metadata,
    split_batch,
    split_broker_metadata,
    split_entry,
)

METADATA = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, partition_key="k")


def test_crc32c_test_vectors() -> None:
    # RFC 3720, B.4.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c_extend(crc32c(b"1234"), b"56789") == crc32c(b"123456789") == 0xE3069283


def test_entry_with_and_without_checksum() -> None:
    entry = build_entry(METADATA, b"payload")
    checksum, metadata, payload = split_entry(entry)
    assert checksum == crc32c(entry[6:])
    assert parse_metadata(metadata) == METADATA
    assert bytes(payload) == b"payload"
    assert checksum_matches(entry)
    bare = entry[6:]
    assert split_entry(bare)[:2] == (None, metadata)
    assert bytes(split_entry(bare).payload) == b"payload"
    assert checksum_matches(bare)
    assert entry_layout(entry) == (checksum, 10, len(entry) - 7)
    damaged = entry[:-1] + b"x"
    assert not checksum_matches(damaged)


def test_every_truncation_is_refused_or_shortens_the_payload() -> None:
    entry = build_entry(METADATA, b"payload")
    for size in range(len(entry)):
        if size >= len(entry) - 7:
            assert len(split_entry(entry[:size]).payload) == size - (len(entry) - 7)
        elif 4 <= size < 10:
            # Too short for a checksum, so the magic is read as a size, which does not fit.
            with pytest.raises(EntryError):
                split_entry(entry[:size])
        else:
            with pytest.raises(EntryError):
                split_entry(entry[:size])


def test_broker_metadata() -> None:
    entry = build_entry(METADATA, b"payload")
    block = pb.BrokerEntryMetadata(broker_timestamp=5, index=6).SerializeToString()
    data = struct.pack(">HI", 0x0E02, len(block)) + block + entry
    broker, at = split_broker_metadata(data)
    assert broker == pb.BrokerEntryMetadata(broker_timestamp=5, index=6)
    assert data[at:] == entry
    assert split_broker_metadata(entry) == (None, 0)
    assert split_broker_metadata(b"") == (None, 0)
    for size in range(2, 6 + len(block)):
        with pytest.raises(EntryError):
            split_broker_metadata(data[:size])
    with pytest.raises(EntryError):
        split_broker_metadata(struct.pack(">HI", 0x0E02, 1) + b"\x08")


def test_metadata_errors() -> None:
    with pytest.raises(EntryError):
        parse_metadata(b"\xff")
    with pytest.raises(EntryError):
        parse_metadata(b"\x0a\x01p")


def test_a_batch_is_told_by_the_field_alone() -> None:
    one = pb.MessageMetadata()
    one.CopyFrom(METADATA)
    assert not is_batch(one)
    one.num_messages_in_batch = 1
    assert is_batch(one)


def test_batches() -> None:
    messages = [(pb.SingleMessageMetadata(partition_key=f"k{i}", sequence_id=i), b"x" * i) for i in range(5)]
    payload = build_batch(messages)
    found = list(split_batch(payload, 5))
    assert [(single.partition_key, bytes(view)) for single, view in found] == [
        (f"k{i}", b"x" * i) for i in range(5)
    ]
    assert [single.payload_size for single, _ in found] == list(range(5))
    assert len(list(split_batch(memoryview(payload), 3))) == 3
    with pytest.raises(EntryError):
        list(split_batch(payload, 6))
    for size in range(len(payload)):
        with pytest.raises(EntryError):
            list(split_batch(payload[:size], 5))


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 0),  # no payload_size
        struct.pack(">I", 11) + b"\x18" + b"\xff" * 9 + b"\x01",  # payload_size -1
        struct.pack(">I", 1) + b"\x18",
        struct.pack(">I", 2) + b"\x18\x05" + b"1234",
    ],
)
def test_hostile_batches(payload: bytes) -> None:
    with pytest.raises(EntryError):
        list(split_batch(payload, 1))
