"""What rules read of files that they do not parse."""

from __future__ import annotations

import ast
from pathlib import Path

from source_trees import REPOSITORY, imports, imports_in, nodes

from support.order import is_about_sources

TEXT = '''
"""
import nothing
"""
import a.b as c, d  # import nothing
from e import (
    f,  # (g)
    h as i,
)

def one():
    from .j import k, \\
        l
    text = "import nothing"
    important = fromage = 1
'''


def dumped(found: object) -> list[str]:
    assert isinstance(found, tuple | list)
    return [ast.dump(each) for each in found]


def test_imports_are_found_in_the_text() -> None:
    said = [ast.unparse(each) for each in imports_in(TEXT)]
    assert said == ["import a.b as c, d", "from e import f, h as i", "from .j import k, l"]


def test_they_are_those_of_the_tree() -> None:
    files = [*Path(__file__).parent.glob("*.py"), *(REPOSITORY / "tests" / "support").glob("s*.py")]
    assert len(files) > 30
    for path in files:
        parsed = [each for each in nodes(path) if isinstance(each, ast.Import | ast.ImportFrom)]
        assert sorted(dumped(imports(path))) == sorted(dumped(parsed)), path


def test_what_reads_trees_runs_in_one_worker() -> None:
    """They come first, together: another worker would parse all of src too, and keep 300 MB of trees."""
    unit = REPOSITORY / "tests" / "unit"
    readers = {
        path.relative_to(unit)
        for path in unit.rglob("*.py")
        for each in imports(path)
        if isinstance(each, ast.ImportFrom) and each.module in ("support.sources", "source_trees")
        if {alias.name for alias in each.names} & {"nodes", "parsed", "below"}
    }
    assert len(readers) > 8
    assert [path for path in readers if not is_about_sources(path)] == []
