"""Lines of a recording to messages."""

from __future__ import annotations

import pytest

from magnetar.functions.errors import RecordingError
from magnetar.functions.trial.recorded import BEGIN_MS, payload_of, recorded


def test_a_line_as_consume_prints_it() -> None:
    line = (
        '{"topic": "persistent://public/default/orders-partition-1", "id": "3:7:1", "index": 12,'
        ' "publish_time": 1700000000001, "broker_time": 1700000000005, "event_time": 5, "key": "k",'
        ' "properties": {"a": "b"}, "value": {"amount": 1}, "producer": "p", "size": 12}'
    )
    (found,) = recorded([line])
    assert (str(found.topic.base), found.topic.partition) == ("persistent://public/default/orders", 1)
    assert (found.ledger_id, found.entry_id, found.index) == (3, 7, 12)
    assert (found.time_ms, found.event_time_ms) == (1_700_000_000_005, 5)
    assert (found.key, found.properties, found.payload) == ("k", {"a": "b"}, b'{"amount":1}')


def test_a_line_may_say_little() -> None:
    found = recorded(['{"value": "a"}', "", '{"value": "b", "publish_time": 1800000000000}'], "orders")
    assert [each.payload for each in found] == [b"a", b"b"]
    assert [each.time_ms for each in found] == [BEGIN_MS, 1_800_000_000_000]
    assert [each.entry_id for each in found] == [0, 2]


def test_time_does_not_go_back() -> None:
    lines = ['{"value": "a", "publish_time": 1800000000000}', '{"value": "b", "publish_time": 1}']
    assert {each.time_ms for each in recorded(lines, "t")} == {1_800_000_000_000}


@pytest.mark.parametrize(
    ("line", "payload"),
    [
        ({"value": None}, b""),
        ({"value": "12"}, b"12"),
        ({"value": 12}, b"12"),
        ({"value": [1, "ü"]}, '[1,"ü"]'.encode()),
        ({"value": "looks", "base64": "/w=="}, b"\xff"),
    ],
)
def test_payloads(line: dict[str, object], payload: bytes) -> None:
    assert payload_of(line) == payload


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no messages: record some"),
        (["x"], "line 1 is not a recorded message"),
        (['{"value": "a"}'], "names no topic"),
        (['{"topic": "t"}'], "it has no value"),
        (['{"topic": "t", "value": "a", "index": "b"}'], "index must be a whole number"),
        (['{"topic": "a/b", "value": "a"}'], "line 1"),
        (['{"topic": "t", "base64": "?"}'], "line 1"),
        (["[1]"], "not a JSON object"),
    ],
)
def test_what_is_not_understood_is_named(lines: list[str], said: str) -> None:
    with pytest.raises(RecordingError, match=said):
        recorded(lines)
