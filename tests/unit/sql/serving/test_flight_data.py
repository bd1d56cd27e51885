"""Results as messages of Flight: Arrow's own reader gets the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from magnetar.flightsql import flight_pb2 as pb
from magnetar.flightsql.grpc_messages import PREFIX
from magnetar.sql.serving.flight_data import flight_data, schema_message


def read(messages: list[bytes]) -> pa.Table:
    """As a client does: each message without its prefix is a FlightData, whose parts are a message of IPC."""
    stream = bytearray()
    for message in messages:
        compressed, size = PREFIX.unpack_from(message)
        assert (compressed, size) == (0, len(message) - PREFIX.size)
        fields = dict(_fields(message[PREFIX.size :]))
        assert fields.keys() <= {2, 1000}
        header = fields[2]
        stream += b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + fields.get(1000, b"")
    return pa.ipc.open_stream(bytes(stream)).read_all()


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        tag, at = _number(data, at)
        assert tag & 7 == 2
        size, at = _number(data, at)
        found.append((tag >> 3, data[at : at + size]))
        at += size
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


SHAPES = (
    pa.table({"n": [1, 2, None]}),
    pa.table({"t": ["a" * 200, None], "b": [b"\0", b""], "l": [[1], []], "s": [{"x": 1}, None]}),
    pa.table({"e": pa.array(["a", "b", "a"]).dictionary_encode()}),
    pa.table({"n": pa.array([], pa.int64())}),
    pa.table({"big": ["x" * 300_000]}),
)


@pytest.mark.parametrize("table", SHAPES)
def test_rows_are_the_same(table: pa.Table) -> None:
    messages = list(flight_data(table.schema, table.to_batches()))
    assert read(messages).to_pylist() == table.to_pylist()


def test_each_batch_is_sent_as_it_is_made() -> None:
    batch = pa.record_batch({"n": [1]})
    made = flight_data(batch.schema, iter([batch, batch]))
    sent = [next(made) for _ in range(3)]
    assert read(sent).num_rows == 2


def test_no_rows_have_columns_all_the_same() -> None:
    schema = pa.schema([("n", pa.int64())])
    (message,) = flight_data(schema, [])
    assert read([message]).schema == schema
    assert pa.ipc.read_schema(pa.BufferReader(schema_message(schema))) == schema


def test_the_schema_is_as_flight_info_has_it() -> None:
    info = pb.FlightInfo(schema=schema_message(pa.schema([("a", pa.string())])))
    found = pb.FlightInfo.FromString(info.SerializeToString()).schema
    assert pa.ipc.read_schema(pa.BufferReader(found)).names == ["a"]
