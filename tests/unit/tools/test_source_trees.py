"""What rules read of files that they do not parse."""

from __future__ import annotations

import ast
from pathlib import Path

from source_trees import REPOSITORY, imports, imports_in, nodes

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
