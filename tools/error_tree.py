"""Draws the tree of errors into docs/internals/errors.md: run it when a test says that the drawing is old."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from source_trees import nodes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "magnetar"
DOCUMENT = ROOT / "docs" / "internals" / "errors.md"
BEGIN, END = "<!-- tree: begin -->\n```text\n", "```\n<!-- tree: end -->"
TOP = "MagnetarError"


class Drawn(NamedTuple):
    """One class of the package: the room that it is in, and below what."""

    room: str
    bases: list[str]


@cache
def errors() -> dict[str, list[Drawn]]:
    """Classes that can be raised, by name; a name may stand for several, in different rooms."""
    known: dict[str, list[Drawn]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                known.setdefault(node.name, []).append(Drawn(path.relative_to(PACKAGE).parts[0], bases))

    def is_raised(name: str) -> bool:
        if name not in known:
            return name in ("Exception", "BaseException") or name.endswith("Error")
        return any(is_raised(base) for each in known[name] for base in each.bases if base != name)

    return {
        name: drawn
        for name, drawn in known.items()
        # A class that is not an error may share its name with one that is, in another room.
        if is_raised(name) and (name.endswith("Error") or any("Exception" in each.bases for each in drawn))
    }


def lines() -> Iterator[str]:
    """The tree, one class a line with its room."""
    yield f"{TOP} (base)"
    yield from _below(TOP, "base", "")


def _below(base: str, room: str, lead: str) -> Iterator[str]:
    # Where two rooms use a name, each is drawn with what its own room derives from it.
    is_shared = len(errors()[base]) > 1
    children = sorted(
        (name, drawn.room)
        for name, found in errors().items()
        for drawn in found
        if drawn.bases[:1] == [base] and (drawn.room == room or not is_shared)
    )
    for at, (child, where) in enumerate(children):
        last = at == len(children) - 1
        yield f"{lead}{'└── ' if last else '├── '}{child} ({where})"
        yield from _below(child, where, lead + ("    " if last else "│   "))


def drawn(text: str) -> str:
    """The document with the tree of today in its place."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n".join(lines()) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    DOCUMENT.write_text(drawn(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
