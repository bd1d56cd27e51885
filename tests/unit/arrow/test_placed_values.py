"""Broken values among sound ones: which message it was, or null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from magnetar.arrow.fields import PADDING, Bools, Bytes, Ints
from magnetar.arrow.json_values import JsonValues
from magnetar.arrow.placed_values import PlacedValues, RescuedValues
from magnetar.base.names import TopicName
from magnetar.client.errors import PayloadError

KIND = pa.struct([("id", pa.int64())])
TOPIC = TopicName.parse("orders")


def placed(payloads: list[bytes | None]) -> tuple[Bytes, Ints, Ints, Bools]:
    """Where they lie, and which are there."""
    present = np.array([payload is not None for payload in payloads])
    sizes = [len(payload or b"") for payload in payloads]
    ends = np.cumsum(np.array(sizes, np.int64))
    data = np.frombuffer(b"".join([*(payload or b"" for payload in payloads), PADDING]), np.uint8)
    return data, ends - sizes, ends, present


def decoded(payloads: list[bytes | None], *, permissive: bool) -> list[object]:
    ids = pa.array([f"7:{number}:-1:-1" for number in range(len(payloads))])
    values = PlacedValues(JsonValues(KIND), TOPIC, permissive=permissive)
    assert "message_id" in values.columns
    found: list[object] = values.decode(*placed(payloads), lambda _: ids).to_pylist()
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


def test_broken_values_are_kept_beside_the_sound_ones() -> None:
    payloads: list[bytes | None] = [b"{" if number % 3 == 1 else sound(number) for number in range(8)]
    payloads[3] = None
    columns = {
        "message_id": pa.array([f"7:{number}:-1:-1" for number in range(8)]),
        "key": pa.array([None, b"a", b"b", b"c", b"\xff", b"d", b"e", None], pa.binary()),
        "key_is_string": pa.array([None, True, True, True, False, True, True, None]),
        "event_time": pa.array([None, 5, *[None] * 6], pa.timestamp("us", tz="UTC")),
        "properties": pa.array(
            [[("p", str(number))] for number in range(8)], pa.map_(pa.string(), pa.string())
        ),
    }
    values = RescuedValues(JsonValues(KIND))
    assert values.columns == columns.keys()
    rows = values.decode(*placed(payloads), columns.__getitem__)
    assert rows.type == values.type
    assert rows.field(0).to_pylist() == [
        None if number in (1, 3, 4, 7) else {"id": number} for number in range(8)
    ]
    letters = rows.field(1).to_pylist()
    assert [number for number, letter in enumerate(letters) if letter is not None] == [1, 4, 7]
    error = letters[1].pop("error")
    assert "cannot be read as JSON" in error
    assert letters[1] | {"event_time": None} == {
        "payload": b"{",
        "message_id": "7:1:-1:-1",
        "key": b"a",
        "key_is_string": True,
        "event_time": None,
        "properties": [("p", "1")],
    }
    assert letters[1]["event_time"].microsecond == 5
    # A reader that leaves rows out leaves out what is broken of them.
    assert rows.filter(pa.array([True] * 3 + [False] * 5)).field(1).null_count == 2
    rest = RescuedValues(JsonValues(KIND)).decode(*placed([sound(1)]), columns.__getitem__)
    assert rest.field(1).null_count == 1
