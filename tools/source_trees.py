"""Syntax trees of this repository's files. Those below `src` are parsed once in a process, however many rules
read them; others each time.

A tree is a hundred thousand objects, about 400 bytes each: those of `src` are 300 MB, and as much again would
be those of tests and tools, which few rules read. Trees that are kept live as long as the process. The
garbage collector would walk them again and again: while files are parsed it is off, and what was parsed is
frozen.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]
KEPT: Final = REPOSITORY / "src"

STRING_OR_COMMENT: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""|'
    r"'''(?:\\.|[^\\])*?'''|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])*'|(#[^\n]*)",
    re.DOTALL,
)
"""A string, or a comment as the first group. `tokenize` says the same and takes twenty times as long."""

_IMPORT: Final = re.compile(
    r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+import\b|import\b)(?:[^\n(]*\([^)]*\)|(?:[^\n\\]|\\\n)*))",
    re.MULTILINE,
)


def parsed(path: Path) -> ast.Module:
    """The tree of a file. All callers share that of a file below `src`: change nothing in it."""
    path = path.absolute()
    known = _trees() if path.is_relative_to(KEPT) else {}
    return known[path] if path in known else ast.parse(path.read_text(encoding="utf-8"))


def nodes(path: Path) -> Sequence[ast.AST]:
    """All nodes of a file's tree, each before those below it."""
    return _kept_nodes(path) if path.absolute().is_relative_to(KEPT) else tuple(ast.walk(parsed(path)))


@cache
def _kept_nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(below(parsed(path)))


@cache
def imports(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The imports of a file, wherever they are in it, in its order. They are found in its text, which takes a
    fiftieth of the time that it takes to parse it; their lines are not those of the file."""
    return tuple(imports_in(path.read_text(encoding="utf-8")))


def imports_in(source: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """The same of a text."""
    code = STRING_OR_COMMENT.sub(lambda found: '""' if found[1] is None else "", source)
    for found in _IMPORT.finditer(code):
        for statement in ast.parse(found[1]).body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                yield statement


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
def _trees() -> dict[Path, ast.Module]:
    """Trees of all Python files below `src`."""
    # What is frozen is never collected: here goes what should be.
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(KEPT.rglob("*.py"))}
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
