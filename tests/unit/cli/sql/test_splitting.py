"""Where statements end."""

from __future__ import annotations

import pytest

from magnetar.cli.sql.splitting import split


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT 2 ;\nSEL", ["SELECT 1", "SELECT 2"], "\nSEL"),
        ("SELECT ';' , \";\" ;", ["SELECT ';' , \";\""], ""),
        ("SELECT 'it''s;' ;", ["SELECT 'it''s;'"], ""),
        ("SELECT 1 -- no; end\n;", ["SELECT 1 -- no; end"], ""),
        ("SELECT /* ; */ 1;", ["SELECT /* ; */ 1"], ""),
        ("SELECT 'open; \n", [], "SELECT 'open; \n"),
        ("SELECT /* open; \n", [], "SELECT /* open; \n"),
        ("SELECT $$a;b$$;", ["SELECT $$a;b$$"], ""),
        ("SELECT 4 / 2 - 1;", ["SELECT 4 / 2 - 1"], ""),
        (";;", [], ""),
        ("", [], ""),
    ],
)
def test_ends(text: str, statements: list[str], rest: str) -> None:
    assert split(text) == (statements, rest)
