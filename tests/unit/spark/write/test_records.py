"""Rows as Avro and JSON, read back by a reader that is not ours."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from magnetar.spark.errors import OptionError
from magnetar.spark.write.records import encode_values, topic_schema
from magnetar.spark.write.sink_options import WriteOptions
from magnetar.spark.write.written_columns import WrittenColumns
from magnetar.wire import pulsar_pb2 as pb

KIND = t.StructType(
    [
        t.StructField("id", t.LongType(), nullable=False),
        t.StructField("name", t.StringType()),
        t.StructField("raw", t.BinaryType()),
        t.StructField("flag", t.BooleanType()),
        t.StructField("small", t.ShortType()),
        t.StructField("ratio", t.DoubleType()),
        t.StructField("price", t.DecimalType(10, 2)),
        t.StructField("day", t.DateType()),
        t.StructField("at", t.TimestampType()),
        t.StructField("tags", t.ArrayType(t.StringType(), containsNull=True)),
        t.StructField("counts", t.MapType(t.StringType(), t.IntegerType(), valueContainsNull=False)),
        t.StructField("inner", t.StructType([t.StructField("x", t.IntegerType())])),
    ]
)
FULL: dict[str, Any] = {
    "id": -(1 << 63),
    "name": "é" * 100,
    "raw": b"\x00\xff",
    "flag": True,
    "small": -5,
    "ratio": 2.5,
    "price": Decimal("-12.34"),
    "day": date(1969, 12, 31),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    "tags": ["a", None, ""],
    "counts": {"a": 1, "b": 300},
    "inner": {"x": 7},
}
EMPTY = dict.fromkeys(FULL) | {"id": 0, "tags": [], "counts": {}, "inner": {"x": None}}
ARROW = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("small", pa.int16()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("inner", pa.struct([("x", pa.int32())])),
    ]
)


def test_avro_is_read_by_another_reader() -> None:
    schema = topic_schema("avro", KIND)
    assert schema.type == pb.Schema.Avro
    parsed = fastavro.parse_schema(json.loads(schema.schema_data))
    values = encode_values("avro", KIND, pa.array([FULL, None, EMPTY], ARROW))
    found = [
        None if value is None else fastavro.schemaless_reader(io.BytesIO(value), parsed, parsed)
        for value in values
    ]
    assert found == [FULL, None, EMPTY]


def test_json_follows_its_schema() -> None:
    schema = topic_schema("json", KIND)
    assert schema.type == pb.Schema.Json
    fields = {field["name"]: field["type"] for field in json.loads(schema.schema_data)["fields"]}
    assert fields["id"] == "long"
    assert fields["price"] == ["null", "string"]
    assert fields["at"] == ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    full, nothing, empty = encode_values("json", KIND, pa.array([FULL, None, EMPTY], ARROW))
    assert nothing is None
    assert full is not None
    assert empty is not None
    assert json.loads(full) == FULL | {
        "raw": "AP8=",
        "price": "-12.34",
        "day": -1,
        "at": 1767323045678901,
    }
    assert json.loads(empty) == EMPTY


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (t.StructType([t.StructField("a b", t.StringType())]), "column `a b` cannot be a field"),
        (t.StructType([t.StructField("a", t.MapType(t.LongType(), t.LongType()))]), "map<bigint,bigint>"),
        (t.StructType([t.StructField("a", t.CalendarIntervalType())]), "has no schema"),
    ],
)
def test_what_avro_has_no_place_for(kind: t.StructType, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        topic_schema("avro", kind)


def columns_of(ddl: str, **options: str) -> WrittenColumns:
    given = {"service.url": "pulsar://localhost:6650", "topic": "t", **options}
    schema = t.StructType(
        [
            t.StructField(name, t._parse_datatype_json_string(json.dumps(kind)))
            for name, kind in (part.split(" ") for part in ddl.split(", "))
        ]
    )
    return WrittenColumns(WriteOptions.parse(given), schema)


def test_a_record_is_made_of_the_columns_without_a_meaning() -> None:
    columns = columns_of("key string, id long, name string", valueFormat="json")
    assert columns.schema is not None
    rows = pa.record_batch({"key": ["k"], "id": [1], "name": ["n"]})
    made = columns.with_bytes(rows)
    assert made.to_pylist() == [{"key": "k", "value": b'{"id":1,"name":"n"}'}]


@pytest.mark.parametrize(
    ("ddl", "options", "reason"),
    [
        ("id long", {}, "column `id bigint` cannot be written"),
        ("key string", {}, "a column `value` is needed"),
        ("value string", {"topic": ""}, "option 'topic' is missing"),
        ("value string", {"valueFormat": "avro"}, "needs a struct as `value`, not string"),
        ("key string", {"valueFormat": "json"}, "no column to make a record of"),
        ("key long, id long", {"valueFormat": "json"}, "column `key bigint` cannot be written"),
    ],
)
def test_columns_that_are_refused(ddl: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        columns_of(ddl, **options)
