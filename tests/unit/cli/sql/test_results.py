"""Results as text and as files."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.cli.sql.results import write_result
from magnetar.sql.errors import StatementError

TABLE = pa.table(
    {
        "name": pa.array(["tea", None, "größer"]),
        "n": pa.array([1, 22, None], pa.int64()),
        "bytes": pa.array([b"k", b"\xff", None], pa.binary()),
        "at": pa.array([datetime(2026, 1, 31, 12, tzinfo=UTC), None, None], pa.timestamp("us", tz="UTC")),
        "day": pa.array([date(2026, 1, 31), None, None]),
        "price": pa.array([Decimal("1.50"), None, None]),
        "more": pa.array([{"a": [1.5, float("nan")]}, None, None]),
        "pairs": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
    }
)


class Stream(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def written(self) -> bytes:
        self.flush()
        found = self.buffer.getvalue()  # type: ignore[attr-defined]  # it is a BytesIO
        assert isinstance(found, bytes)
        return found


def written(output: str, table: pa.Table = TABLE) -> bytes:
    stream = Stream()
    write_result(table.schema, iter(table.to_batches()), output, stream)
    return stream.written()


def test_json_lines() -> None:
    rows = [json.loads(line) for line in written("json").splitlines()]
    assert rows[0] == {
        "name": "tea",
        "n": 1,
        "bytes": "k",
        "at": "2026-01-31T12:00:00Z",
        "day": "2026-01-31",
        "price": "1.50",
        "more": {"a": [1.5, None]},
        "pairs": {"k": "v"},
    }
    assert rows[1]["bytes"] == "/w=="
    assert rows[2]["name"] == "größer"


def test_csv() -> None:
    lines = written("csv").decode().split("\r\n")
    assert lines[0] == "name,n,bytes,at,day,price,more,pairs"
    assert lines[1] == 'tea,1,k,2026-01-31T12:00:00Z,2026-01-31,1.50,"{""a"": [1.5, null]}","{""k"": ""v""}"'
    assert lines[2].startswith(",22,/w==,,,")


def test_tables_align_numbers_to_the_right() -> None:
    lines = written("table").decode().splitlines()
    assert lines[0].startswith("name     n  bytes")
    assert lines[1].startswith("tea      1  k")
    assert lines[2].startswith("-       22  /w==")


def test_files() -> None:
    # A number that is none is not equal to itself, but has one text.
    expected = str(TABLE.to_pylist())
    assert str(pa.ipc.open_stream(written("arrow")).read_all().to_pylist()) == expected
    assert str(pq.read_table(io.BytesIO(written("parquet"))).to_pylist()) == expected


def test_a_result_without_rows() -> None:
    stream = Stream()
    write_result(TABLE.schema.remove(7), iter(()), "table", stream)
    assert stream.written().decode().split() == TABLE.schema.names[:7]


def test_times_that_python_cannot_hold() -> None:
    days = pa.array([2932897, -1_000_000, None], pa.int32()).cast(pa.date32())
    rows = written("csv", pa.table({"day": days})).decode().splitlines()
    assert rows[1] == "10000-01-01"
    assert rows[3] == '""'
    with pytest.raises(StatementError, match="use `-o parquet`"):
        written("json", pa.table({"more": pa.StructArray.from_arrays([days], ["day"])}))


def test_a_table_moves_no_cursor() -> None:
    table = pa.table({"text": ["a\x1b]0;title\x07\x9b31mb\r\tc"]})
    assert written("table", table).decode().splitlines()[1] == r"a\x1b]0;title\x07\x9b31mb\x0d\x09c"
