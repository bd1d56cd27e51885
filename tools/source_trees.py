"""Syntax trees of this repository's files: each file is parsed once in a process, however many rules read it.

A tree is a hundred thousand objects that all live as long as the process. The garbage collector would walk
them again and again: while files are parsed it is off, and what was parsed is frozen.
"""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]

_REST: Final = ("tests", "bench", "sim", "tools")
"""Folders that few rules read beside `src`; they are parsed together, as it is."""


def parsed(path: Path) -> ast.Module:
    """The tree of a file. All callers share it: change nothing in it."""
    path = path.absolute()
    parts = path.relative_to(REPOSITORY).parts if path.is_relative_to(REPOSITORY) else ("",)
    known = _trees(("src",)) if parts[0] == "src" else _trees(_REST) if parts[0] in _REST else {}
    return known[path] if path in known else ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree, in the order of `ast.walk`, which takes more than twice as long."""
    found: list[ast.AST] = [parsed(path)]
    # The list grows behind the node that the loop has reached.
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return tuple(found)


@cache
def _trees(folders: tuple[str, ...]) -> dict[Path, ast.Module]:
    """Trees of all Python files of some folders."""
    # What is frozen is never collected: here goes what should be.
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return {
            path: ast.parse(path.read_text(encoding="utf-8"))
            for folder in folders
            for path in sorted((REPOSITORY / folder).rglob("*.py"))
        }
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
