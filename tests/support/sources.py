"""Sources as the tests of house rules read them: each file is parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file. All callers share it: change nothing in it."""
    return ast.parse(path.read_text(encoding="utf-8"))
