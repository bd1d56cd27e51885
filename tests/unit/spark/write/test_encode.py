"""Rows to entries: what is written is what is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from magnetar.arrow.decode import Decoder
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.spark.write.encode import RowEncoder, java_string_hash
from magnetar.spark.write.staged import StagedEntry, decode_block
from magnetar.wire.payload import entry_layout, parse_metadata

NAMES = ("value", "key", "key_is_string", "event_time", "properties", "ordering_key", "is_null_value")
TOPIC = TopicName.parse("t")
TEXT = pa.string()


def rows_of(count: int, key_kind: Any = TEXT) -> pa.RecordBatch:
    keys = [None if n % 5 == 0 else f"key-{n % 3}" for n in range(count)]
    if key_kind == pa.binary():
        keys = [None if key is None else key.encode() for key in keys]
    return pa.record_batch(
        {
            "value": pa.array([None if n % 7 == 6 else b"v%d" % n for n in range(count)], pa.binary()),
            "key": pa.array(keys, key_kind),
            "event_time": pa.array(
                [None if n % 4 == 0 else n * 1_000_000 for n in range(count)], pa.timestamp("us", "UTC")
            ),
            "properties": pa.array(
                [[("n", str(n))] if n % 2 else [] for n in range(count)], pa.map_(pa.string(), pa.string())
            ),
            "ordering_key": pa.array([b"o%d" % n if n % 3 == 0 else None for n in range(count)], pa.binary()),
        }
    )


def encoded(rows: pa.RecordBatch, **options: Any) -> list[StagedEntry]:
    settings: dict[str, Any] = {"batching": "partition", "rows_max": 4, "bytes_max": 10_000, "compression": 0}
    encoder = RowEncoder(options.pop("partitions", 0), **{**settings, **options})
    return [*encoder.encode(rows), *encoder.finish()]


def read_back(staged: list[StagedEntry]) -> list[dict[str, Any]]:
    columns = EntryColumns()
    for number, each in enumerate(staged):
        columns.add(1, number, each.entry(b"p", number * 100, 1000), -1, -1)
    return [row for batch in Decoder(TOPIC, NAMES).decode(columns) for row in batch.to_pylist()]


@pytest.mark.parametrize("batching", ["partition", "key", "none"])
@pytest.mark.parametrize("compression", [0, 2, 3])
@pytest.mark.parametrize("key_kind", [pa.string(), pa.binary()])
def test_reading_gives_what_was_written(batching: str, compression: int, key_kind: Any) -> None:
    rows = rows_of(50, key_kind)
    found = read_back(encoded(rows, batching=batching, compression=compression))
    expected = []
    for row in rows.to_pylist():
        key = row["key"]
        is_text = None if key is None else isinstance(key, str)
        row["key"] = key.encode() if isinstance(key, str) else key
        expected.append({**row, "key_is_string": is_text, "is_null_value": row["value"] is None})
    order = [{name: row[name] for name in NAMES} for row in expected]
    if batching != "key":
        assert found == order
    else:
        by_value = sorted(map(repr, found))
        assert by_value == sorted(map(repr, order))


def test_keys_have_one_home_and_keep_their_order() -> None:
    staged = encoded(rows_of(60), partitions=4)
    homes: dict[bytes, set[int]] = {}
    values: dict[bytes, list[int]] = {}
    for each in staged:
        for row in read_back([each]):
            if row["key"] is not None:
                homes.setdefault(row["key"], set()).add(each.partition)
                if row["value"] is not None:
                    values.setdefault(row["key"], []).append(int(row["value"][1:]))
    assert all(len(places) == 1 for places in homes.values())
    assert homes[b"key-1"] == {java_string_hash("key-1") % 4}
    assert all(numbers == sorted(numbers) for numbers in values.values())


def test_rows_without_a_key_go_round() -> None:
    rows = pa.record_batch({"value": pa.array([b"x"] * 24, pa.binary())})
    assert [each.partition for each in encoded(rows, partitions=3)] == [0, 1, 2, 0, 1, 2]
    assert [each.partition for each in encoded(rows, partitions=3, first_partition=2, rows_max=8)] == [
        2,
        0,
        1,
    ]


def test_entries_of_one_key_name_it_for_key_shared() -> None:
    for each in encoded(rows_of(40), batching="key"):
        entry = each.entry(b"p", 0, 1)
        _, metadata_at, payload_at = entry_layout(entry)
        keys = {row["key"] for row in read_back([each])}
        assert len(keys) == 1
        assert (parse_metadata(entry[metadata_at:payload_at]).partition_key.encode() or None) in keys


def test_numbers_of_a_batch() -> None:
    (each,) = encoded(rows_of(4))
    _, metadata_at, payload_at = entry_layout(each.entry(b"p", 500, 7))
    metadata = parse_metadata(each.entry(b"p", 500, 7)[metadata_at:payload_at])
    assert (metadata.sequence_id, metadata.highest_sequence_id, metadata.publish_time) == (500, 503, 7)


def test_javas_hash() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("hello") == 99162322
    # In Java -2147483648, whose sign bit is all there is.
    assert java_string_hash("polygenelubricants") == 0


def test_blocks_and_back() -> None:
    staged = encoded(rows_of(30), partitions=3)
    block = b"".join(each.encode() for each in staged)
    assert list(decode_block(block)) == staged
    with pytest.raises(ValueError, match="cut off"):
        list(decode_block(block[:-1]))


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_values_alone_make_the_same_entries(partitions: int, kind: Any) -> None:
    values = pa.array([None if n % 7 == 6 else f"v{n}" for n in range(50)], pa.string()).cast(kind)
    alone = pa.record_batch({"value": values})
    with_keys = pa.record_batch({"value": values, "key": pa.nulls(50, TEXT)})
    for limits in ({"rows_max": 4}, {"rows_max": 100, "bytes_max": 60}):
        made = encoded(alone, partitions=partitions, **limits)
        assert made == encoded(with_keys, partitions=partitions, **limits)


@pytest.mark.parametrize("column", ["value", "key", "event_time", "properties", "ordering_key"])
def test_the_digest_covers_all_that_a_row_says(column: str) -> None:
    rows = rows_of(6)
    at = rows.schema.names.index(column)
    # The same values, each in another row.
    turned = pa.concat_arrays([rows.column(at).slice(1), rows.column(at).slice(0, 1)])
    other = rows.set_column(at, column, turned)
    encoders = [
        RowEncoder(0, batching="partition", rows_max=4, bytes_max=10_000, compression=0) for _ in range(3)
    ]
    for encoder, batch in zip(encoders, (rows, other, rows.take(list(range(5, -1, -1)))), strict=True):
        list(encoder.encode(batch))
    assert encoders[0].digest != encoders[1].digest
    assert encoders[0].digest == encoders[2].digest


def test_the_digest_of_values_alone() -> None:
    def digest(*values: bytes | None) -> int:
        encoder = RowEncoder(0, batching="partition", rows_max=4, bytes_max=10_000, compression=0)
        list(encoder.encode(pa.record_batch({"value": pa.array(values, pa.binary())})))
        return encoder.digest

    assert digest(b"a", b"b", None) == digest(None, b"b", b"a")
    assert len({digest(b"a", b"b"), digest(b"a", b"c"), digest(b"a", b""), digest(b"a", None)}) == 4
