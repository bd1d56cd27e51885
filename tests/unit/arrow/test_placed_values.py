"""Broken values among sound ones: which message it was, or null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from magnetar.arrow.fields import PADDING
from magnetar.arrow.json_values import JsonValues
from magnetar.arrow.placed_values import PlacedValues
from magnetar.base.names import TopicName
from magnetar.client.errors import PayloadError

KIND = pa.struct([("id", pa.int64())])
TOPIC = TopicName.parse("orders")


def decoded(payloads: list[bytes | None], *, permissive: bool) -> list[object]:
    present = np.array([payload is not None for payload in payloads])
    sizes = [len(payload or b"") for payload in payloads]
    ends = np.cumsum(np.array(sizes, np.int64))
    data = np.frombuffer(b"".join([*(payload or b"" for payload in payloads), PADDING]), np.uint8)
    ids = pa.array([f"7:{number}:-1:-1" for number in range(len(payloads))])
    values = PlacedValues(JsonValues(KIND), TOPIC, permissive=permissive)
    assert "message_id" in values.columns
    found: list[object] = values.decode(data, ends - sizes, ends, present, lambda _: ids).to_pylist()
    return found


def sound(number: int) -> bytes:
    return b'{"id":%d}' % number


@pytest.mark.parametrize("broken", [b"{", b'{"id":"text"}', b"\xff\xfe"])
@pytest.mark.parametrize("at", [0, 5, 9])
def test_a_broken_value_is_named_or_null(broken: bytes, at: int) -> None:
    payloads: list[bytes | None] = [sound(number) for number in range(10)]
    payloads[3] = None
    payloads[at] = broken
    with pytest.raises(PayloadError, match=rf"message 7:{at}:-1:-1 of .*/orders .*mode=permissive"):
        decoded(payloads, permissive=False)
    expected = [None if number in (3, at) else {"id": number} for number in range(10)]
    assert decoded(payloads, permissive=True) == expected


def test_sound_values_and_many_broken_ones() -> None:
    assert decoded([sound(1), None], permissive=False) == [{"id": 1}, None]
    assert decoded([b"{"] * 20, permissive=True) == [None] * 20
    mixed = [b"{" if number % 3 else sound(number) for number in range(30)]
    with pytest.raises(PayloadError, match="message 7:1:"):
        decoded([*mixed], permissive=False)
    assert decoded([*mixed], permissive=True) == [None if n % 3 else {"id": n} for n in range(30)]
