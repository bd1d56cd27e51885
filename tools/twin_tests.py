"""Which tests can tell the two twins apart, read from the sources (docs/decisions/0029).

A test file whose imports do not lead to a compiled module runs the same code with both twins: once is enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import source_trees
import twin_build

SAMPLE = ("tests/compat/test_official_client.py",)
"""Tests against a process, whose modules their imports do not show: the official client sends and reads every
kind of command."""


def reaching(root: Path, folders: Iterable[str]) -> list[str]:
    """Test files of the folders below `root` whose imports lead to a compiled module, however far."""
    sources, compiled = _sources(root), _compiled()
    found = []
    for file in _tests(root, folders):
        seen: set[str] = set()
        ahead = set(_imports(root / file, sources))
        while ahead:
            module = ahead.pop()
            if module in compiled:
                found.append(file)
                break
            seen.add(module)
            ahead.update(each for each in _imports(sources[module], sources) if each not in seen)
    return found


def speaking(root: Path, folders: Iterable[str]) -> list[str]:
    """Test files of the folders that import a compiled module, or something of tests/support that does: they
    put commands together themselves, and send them to a process as a rule."""
    sources, compiled = _sources(root), _compiled()
    close = compiled | {
        module
        for module, path in sources.items()
        if module.startswith("support.") and compiled & _imports(path, sources)
    }
    return [file for file in _tests(root, folders) if close & _imports(root / file, sources)]


def _compiled() -> frozenset[str]:
    return frozenset(twin_build.load_twin().MODULES)


def _tests(root: Path, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for path in sorted((root / folder).rglob("test_*.py")):
            yield path.relative_to(root).as_posix()


@cache
def _sources(root: Path) -> dict[str, Path]:
    """Every module that a test may import, by name."""
    found = {}
    for place, below in (
        (root / "src", "**/*.py"),
        (root / "tools", "**/*.py"),
        (root / "tests", "support/**/*.py"),
        (root / "tests", "fakes/**/*.py"),
        (root, "bench/**/*.py"),
        (root, "sim/**/*.py"),
    ):
        for path in place.glob(below):
            parts = path.relative_to(place).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


_known: dict[Path, frozenset[str]] = {}
"""What files import, as far as they were read."""


def _imports(path: Path, sources: dict[str, Path]) -> frozenset[str]:
    """Those of `sources` that a file imports, with the packages that they are in, wherever in the file."""
    if path not in _known:
        names: set[str] = set()
        for node in source_trees.imports(path):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
        names |= {name[:at] for name in names for at, letter in enumerate(name) if letter == "."}
        _known[path] = frozenset(name for name in names if name in sources)
    return _known[path]
