"""Entries to Arrow: compressions, chunks, headers and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from magnetar.arrow.arrays import ARROW_TYPES, arrow_schema
from magnetar.arrow.columns import column_types
from magnetar.arrow.decode import Decoder
from magnetar.arrow.row_filter import RowFilter
from magnetar.arrow.values import TextValues
from magnetar.base.ids import Position
from magnetar.client.compression import compress
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from support.decoding import ALL, TOPIC, decoded, entries_of, naive


def test_a_message_that_ends_early_leaves_the_others_alone() -> None:
    """The end of one message's last field was overwritten when another message had more fields."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.properties.add(key="", value="")
    longer = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, replicated_from="west")
    longer.properties.add(key="", value="")
    columns = entries_of([build_entry(longer, b"x"), build_entry(metadata, b"y")], [1, 1])
    assert decoded(columns) == naive(columns)


@pytest.mark.parametrize("name", ALL)
def test_each_column_alone(name: str) -> None:
    single = pb.SingleMessageMetadata(partition_key="k", event_time=5, sequence_id=9)
    single.properties.add(key="a", value="b")
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=4, publish_time=8, num_messages_in_batch=2)
    columns = entries_of([build_entry(metadata, build_batch([(single, b"x"), (single, b"yy")]))], [2])
    expected = [{name: row[name]} for row in naive(columns)]
    assert decoded(columns, (name,)) == expected


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_compressions(kind: int) -> None:
    payload = build_batch([(pb.SingleMessageMetadata(), b"v%05d" % number) for number in range(200)])
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=200, compression=kind
    )
    metadata.uncompressed_size = len(payload)
    columns = entries_of([build_entry(metadata, compress(kind, payload))], [200])
    assert [row["value"] for row in decoded(columns, ("value",))] == [b"v%05d" % n for n in range(200)]


def test_text_values() -> None:
    columns = entries_of(
        [build_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), "ä".encode())], [1]
    )
    (batch,) = Decoder(TOPIC, ("value",), values=TextValues()).decode(columns)
    assert batch.schema.field("value").type == pa.string()
    assert batch.to_pylist() == [{"value": "ä"}]


def chunk(number: int, payload: bytes, *, of: int = 3, uuid: str = "u") -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=1, uuid=uuid)
    metadata.num_chunks_from_msg, metadata.chunk_id, metadata.total_chunk_msg_size = of, number, 9
    return build_entry(metadata, payload)


def plain(value: bytes) -> bytes:
    return build_entry(pb.MessageMetadata(producer_name="q", sequence_id=1, publish_time=1), value)


def test_chunks_are_put_together_across_deliveries() -> None:
    decoder = Decoder(TOPIC, ("value", "message_id"))
    first = entries_of([chunk(0, b"abc"), plain(b"x"), chunk(1, b"def")], [1, 1, 1])
    second = entries_of([chunk(2, b"ghi"), plain(b"y")], [1, 1])
    assert [row["value"] for batch in decoder.decode(first) for row in batch.to_pylist()] == [b"x"]
    rows = [row for batch in decoder.decode(second) for row in batch.to_pylist()]
    assert rows == [
        {"value": b"abcdefghi", "message_id": "7:0:3:-1"},
        {"value": b"y", "message_id": "7:1:3:-1"},
    ]


def test_a_chunk_without_its_beginning_is_refused() -> None:
    with pytest.raises(PayloadError, match="piece 1 of 3 of a large message"):
        decoded(entries_of([chunk(1, b"def")], [1]))


def test_encrypted_entries_are_refused() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    with pytest.raises(PayloadError, match="is encrypted by its producer"):
        decoded(entries_of([plain(b"x"), build_entry(metadata, b"secret")], [1, 1]))


@pytest.mark.parametrize("cut", [1, 5, 9, 30])
def test_cut_off_batches_are_refused(cut: int) -> None:
    payload = build_batch([(pb.SingleMessageMetadata(), b"value-%d" % number) for number in range(5)])
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=5)
    with pytest.raises(PayloadError):
        decoded(entries_of([build_entry(metadata, payload[:-cut])], [5]))


def test_nothing_in_nothing_out() -> None:
    assert decoded(EntryColumns()) == []
    marker = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, marker_type=20)
    assert decoded(entries_of([build_entry(marker, b"m")], [1])) == []


SPARK_TYPES: dict[str, DataType] = {"binary": BinaryType(), "string": StringType()}


@pytest.mark.parametrize("value", ["binary", "string"])
def test_the_schema_is_what_spark_derives(value: str) -> None:
    types = column_types()
    kinds = {name: from_arrow_type(ARROW_TYPES[kind]) for name, kind in types.items()}
    assert {name: kind.simpleString() for name, kind in kinds.items()} == types
    kinds["value"] = SPARK_TYPES[value]
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    assert arrow_schema(tuple(types), ARROW_TYPES[value]) == to_arrow_schema(schema, timezone="UTC")


def encrypted(value: bytes) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=1, num_messages_in_batch=3)
    metadata.encryption_keys.add(key="k", value=b"v")
    metadata.encryption_algo, metadata.encryption_param = "AES", b"iv"
    metadata.compression, metadata.uncompressed_size = pb.CompressionType.ZLIB, 77
    return build_entry(metadata, value)


def test_encrypted_entries_are_left_out_or_shown_as_they_are() -> None:
    entries = entries_of([plain(b"x"), encrypted(b"sealed"), plain(b"y")], [1, 3, 1])
    names = ("value", "entry_index", "encryption")

    def read(encrypted: str) -> list[dict[str, Any]]:
        decoder = Decoder(TOPIC, names, encrypted=encrypted)
        return [row for batch in decoder.decode(entries) for row in batch.to_pylist()]

    assert [row["value"] for row in read("skip")] == [b"x", b"y"]
    first, sealed, last = read("bytes")
    assert (first["encryption"], last["encryption"], last["entry_index"]) == (None, None, 4)
    assert (sealed["value"], sealed["entry_index"]) == (b"sealed", 1)
    assert sealed["encryption"] == {
        "algorithm": "AES",
        "param": b"iv",
        "keys": [{"name": "k", "value": b"v"}],
        "compression": "ZLIB",
        "plain_bytes": 77,
        "messages": 3,
    }


@pytest.mark.parametrize("batched", [False, True])
def test_headers_keep_what_is_there_twice(batched: bool) -> None:
    pairs = [("a", "1"), ("b", ""), ("a", "2")]
    if batched:
        single = pb.SingleMessageMetadata()
        for key, value in pairs:
            single.properties.add(key=key, value=value)
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        metadata.num_messages_in_batch = 1
        entry = build_entry(metadata, build_batch([(single, b"v")]))
    else:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        for key, value in pairs:
            metadata.properties.add(key=key, value=value)
        entry = build_entry(metadata, b"v")
    (row,) = decoded(entries_of([entry], [1]), ("headers",))
    assert [(pair["key"], pair["value"]) for pair in row["headers"]] == pairs


def test_rows_that_nobody_wants_are_left_out() -> None:
    def message(key: str, time_ms: int) -> bytes:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=time_ms)
        metadata.partition_key = key
        return build_entry(metadata, f"{key}{time_ms}".encode())

    entries = entries_of([message(key, time) for time in (1, 3, 2) for key in "ab"], [1] * 6)

    def read(rows: RowFilter) -> list[bytes]:
        decoder = Decoder(TOPIC, ("value",), rows=rows)
        return [row["value"] for batch in decoder.decode(entries) for row in batch.to_pylist()]

    assert read(RowFilter(published_from_ms=2)) == [b"a3", b"b3", b"a2", b"b2"]
    assert read(RowFilter(published_from_ms=2, published_until_ms=2)) == [b"a2", b"b2"]
    assert read(RowFilter(keys=frozenset((b"b", b"x")), published_until_ms=2)) == [b"b1", b"b2"]


def test_pieces_before_the_range_are_asked_for_once() -> None:
    asked = []

    def before(uuid: str, count: int, position: Position) -> list[bytes]:
        asked.append((uuid, count, str(position)))
        return [b"abc", b"def"][:count]

    decoder = Decoder(TOPIC, ("value",), pieces_before=before)
    entries = entries_of([plain(b"x"), chunk(2, b"ghi"), chunk(1, b"2", of=2, uuid="w")], [1, 1, 1])
    rows = [row["value"] for batch in decoder.decode(entries) for row in batch.to_pylist()]
    assert rows == [b"x", b"abcdefghi", b"abc2"]
    assert asked == [("u", 2, "7:1"), ("w", 1, "7:2")]


def test_large_messages_that_lost_their_beginning_may_be_left_out() -> None:
    decoder = Decoder(TOPIC, ("value",), pieces_before=lambda *_: None)
    entries = entries_of([chunk(1, b"x"), chunk(2, b"y"), plain(b"z")], [1, 1, 1])
    assert [row["value"] for batch in decoder.decode(entries) for row in batch.to_pylist()] == [b"z"]
