"""Each promise of docs/internals/*-promises.md names a test that is there; so do combinations of features."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
PAGES = sorted((DOCS / "internals").glob("*-promises.md"))
NAMED = re.compile(r"`((?:unit|integration|compat|property|simulation|e2e)/[\w/]+\.py)(?:::(\w+))?`")
OTHERS = ("./dev ", "python -m ", "python tools/", "`conftest.py`")
"""Commands, and what all tests go through."""
LEAST = {"cluster-promises": 50}
"""Rows, and tests that they name, of a page with more than others have."""
FEATURES = (
    *("Deduplication", "Delayed", "Key_Shared", "Compaction", "Chunk", "Encryption", "Schema", "Retention"),
    *("Backlog quota", "TTL", "Tiered storage", "Iceberg"),
)


def rows(page: str) -> list[list[str]]:
    """The cells of each row of its tables, without their heads."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [cells for cells in found if cells[0] not in ("Promise", "Feature")]


def is_there(file: str, function: str) -> bool:
    path = TESTS / file
    if not path.is_file():
        return False
    found = re.search(rf"^ *(async )?def {function}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    return not function or found is not None


def test_all_pages_are_found() -> None:
    names = ["cluster", "house", "security", "transaction"]
    assert [page.name.removesuffix("-promises.md") for page in PAGES] == names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_promise_names_something(page: Path) -> None:
    found = rows(page.read_text(encoding="utf-8"))
    assert len(found) > LEAST.get(page.stem, 30)
    for cells in found:
        shown = cells[-1]
        shows = NAMED.search(shown) or any(each in shown for each in OTHERS) or "](" in shown
        assert shows or shown == "by reading" or cells[0].startswith("Open:"), cells


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_named_is_there(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert len(named) > LEAST.get(page.stem, 40)
    assert [each for each in named if not is_there(*each)] == []


def test_each_combination_has_a_test() -> None:
    """The table of docs/transactions.md has a row of each feature, and each row names tests that exist."""
    page = (DOCS / "transactions.md").read_text(encoding="utf-8")
    table = rows(page.partition("## With other features")[2].partition("\n## ")[0])
    for cells in table:
        files = re.findall(r"`tests/([\w/.]+)`", cells[-1])
        assert files, cells
        assert all((TESTS / each).is_file() for each in files), cells
    names = " ".join(cells[0] for cells in table)
    assert [each for each in FEATURES if each not in names] == []
