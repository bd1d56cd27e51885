"""Sources as the tests of house rules read them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from source_trees import REPOSITORY, below, imports, nodes, parsed

__all__ = [
    "PACKAGE",
    "REPOSITORY",
    "below",
    "import_edges",
    "imports",
    "modules",
    "name_of",
    "nodes",
    "parsed",
]

PACKAGE = REPOSITORY / "src" / "magnetar"


@cache
def modules() -> tuple[Path, ...]:
    """The package's modules that people write."""
    return tuple(sorted(path for path in PACKAGE.rglob("*.py") if not path.stem.endswith("_pb2")))


def name_of(path: Path) -> str:
    """A path below the package, with slashes."""
    return path.relative_to(PACKAGE).as_posix()


@cache
def import_edges() -> dict[str, set[str]]:
    """Which modules each module imports, also those for type checking alone."""
    names = {f"magnetar.{name_of(path).removesuffix('.py').replace('/', '.')}": path for path in modules()}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    edges: dict[str, set[str]] = {}
    for name, path in names.items():
        found: set[str] = set()
        for node in imports(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= (inner & names.keys()) or ({node.module} & names.keys())
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} & names.keys()
        edges[name] = found - {name}
    return edges
