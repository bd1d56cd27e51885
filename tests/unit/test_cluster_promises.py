"""Each promise of docs/internals/cluster-promises.md names a test or a command, or says that it is open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "internals" / "cluster-promises.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:unit|integration|simulation|compat)/[\w/]+\.py)(?:::(\w+))?`")
COMMANDS: Final = ("./dev ", "python -m bench.")


def test_each_promise_names_something_or_is_open() -> None:
    rows = [
        row for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith(("| Promise", "|---"))
    ]
    assert len(rows) > 50
    for row in rows:
        shown = row.rsplit("|", 2)[1]
        assert NAMED.search(shown) or any(each in shown for each in COMMANDS) or row.startswith("| Open:"), (
            row
        )


def test_what_is_named_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 50
    for file, function in named:
        text = (TESTS / file).read_text(encoding="utf-8")
        assert not function or re.search(rf"^ *(async )?def {function}\(", text, re.MULTILINE), (
            file,
            function,
        )
