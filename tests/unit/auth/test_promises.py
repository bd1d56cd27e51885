"""Each promise of docs/internals/security-promises.md names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "internals" / "security-promises.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:unit|integration|compat|property)/[\w/]+\.py)(?:::(\w+))?`")


def test_each_promise_names_something() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| Promise")]
    assert len(rows) > 40
    for row in rows:
        assert "`" in row.rsplit("|", 2)[1] or "SECURITY.md" in row or row.startswith("| Open:"), row


def test_what_is_named_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 60
    for file, function in named:
        text = (TESTS / file).read_text(encoding="utf-8")
        assert not function or re.search(rf"^ *(async )?def {function}\(", text, re.MULTILINE), (
            file,
            function,
        )
