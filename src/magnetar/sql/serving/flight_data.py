"""Results as messages of Arrow Flight, made in the process of the query: the broker passes the bytes on.

A message of gRPC with a `FlightData`, written by hand as it has two fields:

    0 u8 | size u32, big-endian | 0x12 | varint | header | 0xC2 0x3E | varint | body

The header is a message of Arrow's IPC format without its prefix, the body its buffers.

Source: Arrow's Flight.proto, `FlightData`: data_header = 2, data_body = 1000.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

_HEADER: Final = b"\x12"
_BODY: Final = b"\xc2\x3e"


def flight_data(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The messages of a result, its schema first."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as writer:
        # The writer writes it with the first rows, and there may be none.
        yield _framed(pa.ipc.read_message(schema.serialize()))
        for batch in batches:
            writer.write_batch(batch)
            yield from _messages(sink.getvalue())
            sink.seek(0)
            sink.truncate()


def schema_message(schema: pa.Schema) -> bytes:
    """A schema as FlightInfo and prepared statements have it: a message of IPC with its prefix."""
    return bytes(schema.serialize().to_pybytes())


def _messages(data: bytes) -> Iterator[bytes]:
    """The messages of a piece of a stream."""
    rest = pa.BufferReader(data)
    while rest.tell() < len(data):
        message = pa.ipc.read_message(rest)
        if message.type != "schema":
            yield _framed(message)


def _framed(message: pa.Message) -> bytes:
    header, body = message.metadata, message.body
    parts: list[bytes | memoryview] = [_HEADER, _varint(header.size), memoryview(header)]
    if body is not None and body.size:
        parts += [_BODY, _varint(body.size), memoryview(body)]
    size = sum(map(len, parts))
    return b"".join((b"\0", size.to_bytes(4, "big"), *parts))


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
