"""Tables, JSON, YAML."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli.output import show, table_lines, yaml_lines


def test_a_list_of_objects_is_a_table() -> None:
    rows = [{"name": "a", "size": 1, "more": [1, 2]}, {"name": "long name", "size": None, "more": "x" * 80}]
    assert list(table_lines(rows, ("name", "size", "more"))) == [
        "NAME       SIZE  MORE",
        "a          1     1,2",
        "long name  -     " + "x" * 57 + "...",
    ]


def test_other_documents() -> None:
    assert list(table_lines({"a": {"b": True, "c": []}, "d": {}})) == ["a.b  true", "a.c  -", "d    {}"]
    assert list(table_lines(["x", "y"])) == ["x", "y"]
    assert list(table_lines([])) == list(table_lines(None)) == []
    assert list(table_lines(4)) == ["4"]


def test_yaml_quotes_what_would_be_something_else() -> None:
    document = {"a": "no", "b": ["1", 1, None], "c": [{"d": "x: y", "e": []}], "f": {}, "url": "http://h/p"}
    assert "\n".join(yaml_lines(document)) == (
        'a: "no"\nb:\n  - "1"\n  - 1\n  - null\nc:\n  - d: "x: y"\n    e: []\nf: {}\nurl: http://h/p'
    )


def test_colours_only_where_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    from magnetar.cli.output import colors_wanted

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colors_wanted(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colors_wanted(Terminal())
    show([{"a": 1}], "table")
    assert "\x1b" not in capsys.readouterr().out


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
    )
)
def test_any_document_has_lines(document: object) -> None:
    assert list(yaml_lines(document))
    list(table_lines(document))
    json.dumps(document)
