"""The figures of the comparison with model codebases count what they say."""

from __future__ import annotations

import ast
from pathlib import Path

import house_figures


def function(text: str) -> house_figures.Function:
    (node,) = ast.parse(text).body
    assert isinstance(node, house_figures.FUNCTION)
    return node


def test_a_docstring_is_not_a_line_of_the_body() -> None:
    assert house_figures.body_lines(function('def f():\n    """Says\n    so."""\n    a()\n    b()\n')) == 2
    assert house_figures.body_lines(function('def f():\n    """Says so."""\n')) == 0
    assert house_figures.body_lines(function("async def f(): ...\n")) == 1


def test_the_spread_of_sizes() -> None:
    assert house_figures.spread(list(range(1, 101))) == "median 50, p90 91, p99 100, max 100"
    assert house_figures.spread([7]) == "median 7, p90 7, p99 7, max 7"


def test_rows_of_a_list() -> None:
    assert house_figures.rows("# a\n\nb c\n  d\n") == 2


def test_a_private_module_has_no_public_functions() -> None:
    of = function("def f(): ...\n")
    assert house_figures.is_public(of, house_figures.PACKAGE / "a.py")
    assert not house_figures.is_public(of, house_figures.PACKAGE / "_a.py")
    assert not house_figures.is_public(function("def _f(): ...\n"), house_figures.PACKAGE / "a.py")


def test_what_a_compiler_wrote_does_not_count() -> None:
    assert all(isinstance(path, Path) and "_pb2" not in path.stem for path in house_figures.modules())
