"""Filter expressions and format strings."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.expressions import ExpressionError
from magnetar.cli.messages import templates
from magnetar.cli.messages.expressions import compiled

MESSAGE: dict[str, Any] = {
    "value": {"amount": 7, "who": {"name": "Ada"}, "tags": ["x", "y"], "raw": b"\xff"},
    "key": "k",
    "properties": {"a b": "c"},
    "publish_time": 1_700_000_000_000,
    "index": 3,
    "event_time": None,
}


@pytest.mark.parametrize(
    "text",
    [
        "value.amount == 7",
        "5 < value.amount <= 7 and not key == 'x'",
        'value["who"].name == "Ada"',
        'properties["a b"] == "c"',
        'key in ("a", "k")',
        'matches(value.who.name, "^A.a$")',
        'contains(value.tags, "y") and contains(value.who.name, "d")',
        'lower(value.who.name) == "ada"',
        "len(value.tags) == 2",
        "value.tags[-1] == 'y'",
        "event_time is None",
        "value.absent is None and value.absent.deeper is None",
        "value.absent > 3 or index % 2 == 1",
        "not (value.absent > 3)",
        'publish_time > time("2020-01-01")',
        "-index == -3 and index + 1 == 4",
    ],
)
def test_what_holds(text: str) -> None:
    assert compiled(text)(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "value.absent > 1",
        "key > 3",
        "key == 'x'",
        "value.amount / 0 == 1",
        "'%9d' % 1 == 1",
        'matches(key, "(")',
    ],
)
def test_what_makes_no_sense_is_false(text: str) -> None:
    assert not compiled(text)(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "value.amount =",
        "nobody == 1",
        "__import__('os').system('true')",
        "value.amount ** 9 ** 9 ** 9",
        "'a' * 9999999999",
        "[x for x in value]",
        "(lambda: 1)()",
        "value.who.name.upper()",
        "len(*value)",
        'time("soon")(1)',
        "(" * 500,
    ],
)
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(ExpressionError):
        compiled(text)


@given(st.text())
def test_no_text_does_harm(text: str) -> None:
    with suppress(ExpressionError):
        compiled(text)(MESSAGE)


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{key}: {value.amount}", "k: 7"),
        (r"{key}\t{value.who:json}\n", 'k\t{"name": "Ada"}\n'),
        ("{{{index}}} {value.absent}{event_time}", "{3} "),
        ("{properties.none}|{value.raw}", "|\\xff"),
        ("{event_time:json}", "null"),
    ],
)
def test_a_line_of_a_message(template: str, line: str) -> None:
    assert templates.compiled(template)(MESSAGE) == line


def test_times_are_readable() -> None:
    assert templates.compiled("{publish_time:time}")(MESSAGE)[:5] in ("2023-",)


@pytest.mark.parametrize("template", ["{nobody}", "{key:x}", "{}"])
def test_what_is_no_format(template: str) -> None:
    with pytest.raises(templates.TemplateError):
        templates.compiled(template)
