"""Results become entries that any client reads."""

from __future__ import annotations

from magnetar.functions.instance.batches_out import BATCH_MESSAGES_MAX, OutputMessage, entry_of, packed
from magnetar.wire.payload import checksum_matches, parse_metadata, split_batch, split_entry


def test_plain_results_are_one_batch() -> None:
    (piece,) = packed([b"a", b"", b"c" * 300], 1 << 20)
    entry = entry_of(piece, b"producer", 70_000, 5)
    assert checksum_matches(entry)
    parts = split_entry(entry)
    metadata = parse_metadata(parts.metadata)
    assert (metadata.producer_name, metadata.sequence_id, metadata.publish_time) == ("producer", 70_000, 5)
    assert [bytes(view) for _, view in split_batch(parts.payload, metadata.num_messages_in_batch)] == [
        b"a",
        b"",
        b"c" * 300,
    ]


def test_a_key_has_an_entry_of_its_own_and_the_order_stays() -> None:
    pieces = packed([b"a", OutputMessage(b"k", "key"), b"b"], 1 << 20)
    assert [(piece.messages, piece.alone is not None) for piece in pieces] == [
        (1, False),
        (1, True),
        (1, False),
    ]
    parts = split_entry(entry_of(pieces[1], b"p", 0, 1))
    assert parse_metadata(parts.metadata).partition_key == "key"
    assert bytes(parts.payload) == b"k"


def test_properties_stay_in_the_batch() -> None:
    (piece,) = packed([b"a", OutputMessage(b"b", None, {"x": "y"}, 7)], 1 << 20)
    parts = split_entry(entry_of(piece, b"p", 0, 1))
    said = [single for single, _ in split_batch(parts.payload, 2)]
    assert (said[1].properties[0].key, said[1].event_time) == ("x", 7)


def test_entries_are_bounded_in_bytes_and_messages() -> None:
    assert [piece.messages for piece in packed([b"x" * 400] * 5, 1000)] == [2, 2, 1]
    assert [piece.messages for piece in packed([b"x" * 5000], 1000)] == [1]
    assert [piece.messages for piece in packed([b""] * (BATCH_MESSAGES_MAX + 1), 1 << 20)] == [
        BATCH_MESSAGES_MAX,
        1,
    ]
