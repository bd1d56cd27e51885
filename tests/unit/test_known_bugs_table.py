"""docs/known-bugs.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TABLE = REPOSITORY / "docs" / "known-bugs.md"


def test_every_row_has_a_test_that_exists() -> None:
    rows = [
        line
        for line in TABLE.read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| Bug |")
    ]
    assert len(rows) > 20
    for row in rows:
        *_, kept_by, tests, _ = row.split("|")
        found = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert found or "yet" in kept_by, row
        for path, name in found:
            text = (REPOSITORY / path).read_text()
            assert re.search(rf"^(async )?(def|class) {name}\b|^{name} =", text, re.MULTILINE), (
                f"{path}::{name}"
            )
