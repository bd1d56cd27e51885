"""Syntax trees of this repository's files: each file is parsed once in a process, however many rules read it.

A tree is a hundred thousand objects that all live as long as the process. The garbage collector would walk
them again and again: while files are parsed it is off, and what was parsed is frozen.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]

_REST: Final = ("tests", "bench", "sim", "chaos", "tools")
"""Folders that few rules read beside `src`; they are parsed together, as it is."""


def parsed(path: Path) -> ast.Module:
    """The tree of a file. All callers share it: change nothing in it."""
    path = path.absolute()
    parts = path.relative_to(REPOSITORY).parts if path.is_relative_to(REPOSITORY) else ("",)
    known = _trees(("src",)) if parts[0] == "src" else _trees(_REST) if parts[0] in _REST else {}
    return known[path] if path in known else ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree, each before those below it."""
    return tuple(below(parsed(path)))


def below(node: ast.AST) -> Sequence[ast.AST]:
    """A node and all nodes below it, each before those below it, as `ast.walk` finds them in another order.

    A tree is walked once: its nodes are in one list, and those below one of them are neighbours there. A rule
    that looks at each function of the package takes a slice for each: a walk costs a hundred times as much.
    """
    span = getattr(node, _SPAN, None)
    if span is None:
        every: list[ast.AST] = []
        _number(node, every)
        return every
    every, start, stop = span
    return every[start:stop]


_SPAN: Final = "_span"
"""Attribute of a node: the list of its tree's nodes, and where those below it begin and end there."""


def _number(node: ast.AST, every: list[ast.AST]) -> None:
    start = len(every)
    every.append(node)
    for name in node._fields:
        value = getattr(node, name, None)
        if type(value) is list:
            for each in value:
                if isinstance(each, ast.AST):
                    _number(each, every)
        elif isinstance(value, ast.AST):
            _number(value, every)
    # What has no place in the text, as `ast.Load`, is one object for all places.
    if node._attributes or start == 0:
        setattr(node, _SPAN, (every, start, len(every)))


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
