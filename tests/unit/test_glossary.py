"""The glossary names what there is, and what it rules out is written nowhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.sources import nodes

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "magnetar"
GLOSSARY = REPOSITORY / "docs" / "glossary.md"

PLACE = re.compile(r"`([\w/]+(?:\.py|/))`(?: `(\w+)`)?")
GENERATED = REPOSITORY / "docs" / "monitoring.md"
"""Lists the lines of the log, whose words name events: they change with a release only."""


def rows(heading: str) -> list[list[str]]:
    """Cells of the table under a heading, without its head."""
    section = GLOSSARY.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def flowing(text: str) -> str:
    """A text in lower case on one line: a phrase may be broken anywhere."""
    return " ".join(text.lower().split())


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of the module, its classes and functions, and those below attributes."""
    for node in nodes(path):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value


def texts() -> Iterator[tuple[str, str]]:
    """Every document and every docstring, by file."""
    for path in [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "src").rglob("*.md"),
    ]:
        if path not in (GLOSSARY, GENERATED):
            yield path.relative_to(REPOSITORY).as_posix(), path.read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*.py"):
        for text in docstrings(path):
            yield path.relative_to(REPOSITORY).as_posix(), text


def test_words_stand_once_and_in_order() -> None:
    words = [row[0] for row in rows("Words")]
    assert len(words) > 30
    assert words == sorted(set(words))


def test_places_that_the_glossary_names_are_there() -> None:
    missing = []
    for word, _, places, *_ in rows("Words"):
        found = PLACE.findall(places)
        for file, name in found:
            path = PACKAGE / file
            if not path.exists() or (
                name
                and not re.search(rf"^(?:class|def) {name}\b", path.read_text(encoding="utf-8"), re.MULTILINE)
            ):
                missing.append(f"{word}: {file} {name}")
        if not found:
            missing.append(f"{word}: no place")
    assert missing == []


def test_what_is_ruled_out_is_written_nowhere() -> None:
    ruled_out = [row[0] for row in rows("Not these words")]
    assert len(ruled_out) > 10
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, ruled_out))})\b")
    flat = ((place, flowing(text)) for place, text in texts())
    # The pattern tries every place of a text, which takes much longer than to look for each phrase.
    near = [(place, text) for place, text in flat if any(phrase in text for phrase in ruled_out)]
    assert [f"{place}: {match}" for place, text in near for match in pattern.findall(text)] == []
