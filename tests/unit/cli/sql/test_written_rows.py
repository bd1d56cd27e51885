"""Rows of a result as messages."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from magnetar.cli.sql.written_rows import WrittenRows
from magnetar.client.client import TopicSchema
from magnetar.sql.errors import StatementError
from magnetar.wire import pulsar_pb2 as pb

MOMENT = datetime(2026, 11, 30, 12, 0, 0, 250_000, UTC)
MOMENT_US = 1_796_040_000_250_000


def columns(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


def there(kind: int, *fields: object) -> TopicSchema:
    definition = {"type": "record", "name": "R", "fields": list(fields)}
    return TopicSchema(kind, json.dumps(definition).encode(), b"\0")


def test_a_topic_without_a_schema_gets_one_of_json() -> None:
    given = columns(
        key=pa.binary(),
        event_time=pa.timestamp("us", "UTC"),
        properties=pa.map_(pa.string(), pa.string()),
        item=pa.string(),
        total=pa.decimal128(38, 0),
        price=pa.decimal128(9, 2),
        at=pa.timestamp("us", "UTC"),
        day=pa.date32(),
        hour=pa.time64("us"),
        tags=pa.list_(pa.string()),
        of=pa.struct([("raw", pa.binary())]),
    )
    rows = WrittenRows(given, None)
    assert rows.schema is not None
    assert rows.schema.type == pb.Schema.Json
    kinds = {each["name"]: each["type"][1] for each in json.loads(rows.schema.schema_data)["fields"]}
    assert kinds["total"] == "long"
    assert kinds["price"] == "string"
    assert kinds["tags"] == {"type": "array", "items": ["null", "string"]}
    assert list(kinds) == ["item", "total", "price", "at", "day", "hour", "tags", "of"]
    message = rows.message(
        {
            "key": "grün".encode(),
            "event_time": MOMENT,
            "properties": [("a", "1"), ("b", None)],
            "item": "tea",
            "total": Decimal(7),
            "price": Decimal("1.50"),
            "at": MOMENT,
            "day": date(1970, 1, 3),
            "hour": time(0, 0, 1),
            "tags": ["x", None],
            "of": {"raw": b"\xff"},
        }
    )
    assert (message.key, message.event_time_ms, dict(message.properties)) == (
        "grün",
        MOMENT_US // 1000,
        {"a": "1"},
    )
    assert json.loads(message.payload) == {
        "item": "tea",
        "total": 7,
        "price": "1.50",
        "at": MOMENT_US,
        "day": 2,
        "hour": 1_000_000,
        "tags": ["x", None],
        "of": {"raw": "/w=="},
    }


def test_values_of_a_schema_that_is_there() -> None:
    schema = there(
        pb.Schema.Avro,
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "k", "type": "string"},
        {"name": "mean", "type": "double"},
        {"name": "more", "type": ["null", "string"], "default": None},
    )
    given = columns(at=pa.timestamp("us"), k=pa.binary(), mean=pa.decimal128(9, 2))
    rows = WrittenRows(given, schema)
    assert rows.schema is None
    payload = rows.message({"at": MOMENT.replace(tzinfo=None), "k": b"x", "mean": Decimal("0.5")}).payload
    assert json.loads(payload) == {"at": MOMENT_US // 1000, "k": "x", "mean": 0.5}
    with pytest.raises(StatementError, match="no field nope: its fields are at, k"):
        WrittenRows(columns(nope=pa.string()), schema)


def test_whole_values() -> None:
    rows = WrittenRows(columns(key=pa.string(), value=pa.binary()), None)
    assert rows.schema is None
    assert not rows.has_text
    assert rows.message({"key": "a", "value": b"\xff"}).payload == b"\xff"
    deletion = rows.message({"key": "a", "value": None})
    assert deletion.is_null
    assert rows.message({"key": None, "value": b""}).key is None
    number = WrittenRows(columns(value=pa.int64()), TopicSchema(pb.Schema.Int64, b"", b"\0"))
    assert number.has_text
    assert number.message({"value": 5}).payload == b"5"


@pytest.mark.parametrize(
    ("given", "schema", "said"),
    [
        (pa.schema([("a", pa.string()), ("a", pa.string())]), None, "its own name"),
        (columns(key=pa.string()), None, "has to be the value"),
        (pa.schema([("count_star()", pa.int64())]), None, "rename it"),
        (columns(a=pa.month_day_nano_interval()), None, "cast it"),
        (columns(a=pa.string()), TopicSchema(pb.Schema.Int64, b"", b"\0"), "name one column `value`"),
    ],
)
def test_results_that_are_not_messages(given: pa.Schema, schema: TopicSchema | None, said: str) -> None:
    with pytest.raises(StatementError, match=said):
        WrittenRows(given, schema)


@pytest.mark.parametrize(
    "row",
    [
        {"key": b"\xff", "event_time": None, "n": 1},
        {"key": None, "event_time": "today", "n": 1},
        {"key": None, "event_time": None, "n": Decimal(1 << 63)},
    ],
)
def test_values_that_no_message_can_have(row: dict[str, Any]) -> None:
    rows = WrittenRows(columns(key=pa.binary(), event_time=pa.string(), n=pa.decimal128(38, 0)), None)
    with pytest.raises(StatementError):
        rows.message(row)
