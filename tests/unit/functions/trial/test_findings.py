"""Results as lines, and what differs."""

from __future__ import annotations

import pytest

from magnetar.functions.errors import RecordingError
from magnetar.functions.instance.batches_out import OutputMessage
from magnetar.functions.ports import StateValue
from magnetar.functions.trial.findings import (
    difference,
    expected_lines,
    line_of_failure,
    line_of_message,
    line_of_state,
)

MESSAGE = line_of_message("out", OutputMessage(b'{"a":1}', "k", {"p": "q"}, 7))


def test_lines_say_what_is_there() -> None:
    assert MESSAGE == {
        "topic": "out",
        "key": "k",
        "properties": {"p": "q"},
        "event_time": 7,
        "value": {"a": 1},
    }
    assert line_of_message("out", OutputMessage(b"\xff")) == {"topic": "out", "base64": "/w=="}
    assert line_of_failure("1:2", "E: x", b"{no") == {"failed": "1:2", "exception": "E: x", "value": "{no"}
    assert line_of_state("k", StateValue(b"\x00" * 8, 0, 0)) == {"state": "k", "number": 0}
    assert line_of_state("k", StateValue(b"text", None, 0)) == {"state": "k", "value": "text"}


@pytest.mark.parametrize(
    "expected",
    [
        '{"value": {"a": 1}}',
        '{"value": "{\\"a\\": 1}"}',
        '{"topic": "persistent://public/default/out", "value": {"a": 1}}',
        '{"topic": "out", "key": "k", "value": {"a": 1}}',
    ],
)
def test_only_fields_that_are_named_are_compared(expected: str) -> None:
    assert difference(expected_lines([expected]), [MESSAGE, {"state": "n", "number": 1}]) == []


def test_a_number_is_a_text_on_the_wire() -> None:
    assert difference(expected_lines(['{"value": 12}']), [line_of_message("out", OutputMessage(b"12"))]) == []


def test_what_differs_is_shown() -> None:
    found = [line_of_message("out", OutputMessage(value)) for value in (b"a", b"b", b"c")]
    shown = difference(expected_lines(['{"value": "a"}', '{"value": "c"}']), found)
    assert [line for line in shown if line[0] in "+-"][2:] == ['+{"value": "b"}']


def test_the_state_counts_when_it_is_named() -> None:
    found = [MESSAGE, {"state": "n", "number": 1}]
    lines = ['{"topic": "out", "value": {"a": 1}}', '{"state": "n", "number": 2}']
    assert difference(expected_lines(lines), found)


def test_a_failure_that_was_not_expected_differs() -> None:
    assert difference(expected_lines(['{"value": {"a": 1}}']), [MESSAGE, line_of_failure("1:2", "E", b"")])


@pytest.mark.parametrize("line", ["x", "[]", '{"key": "k"}'])
def test_a_line_that_says_nothing_is_refused(line: str) -> None:
    with pytest.raises(RecordingError, match="line 1 of what is expected"):
        expected_lines([line])
