"""Numbers and sized bytes are what the library writes."""

from __future__ import annotations

import io
from typing import Any

import fastavro
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.schemas.avro_bytes import long_bytes, sized


def written(kind: str, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(kind), value)
    return out.getvalue()


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(-(1 << 63))
@example((1 << 63) - 1)
def test_numbers(value: int) -> None:
    assert long_bytes(value) == written("long", value)


@given(st.binary(max_size=300))
def test_sized_bytes(raw: bytes) -> None:
    assert sized(raw) == written("bytes", raw)
