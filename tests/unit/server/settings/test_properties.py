"""Java's property files. The cases are those of java.util.Properties' description."""

from __future__ import annotations

import pytest

from magnetar.server.settings.properties import parse


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b  ", {"a": "b  "}),
        ("a: b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("a=\nb =", {"a": "", "b": ""}),
        ("a==b\nc=:d", {"a": "=b", "c": ":d"}),
        ("url=pulsar://h:1", {"url": "pulsar://h:1"}),
        ("# x=1\n  ! y=2\n\n \t\na=1#2", {"a": "1#2"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n    two\\\r\n  three", {"a": "one,twothree"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=c\\:d = e", {"a b=c:d": "e"}),
        ("a=\\t\\u00e9\\q\\\\", {"a": "\té" + "q\\"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("", {}),
    ],
)
def test_forms(text: str, found: dict[str, str]) -> None:
    assert parse(text) == found


def test_an_escape_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse("a=\\u12")
