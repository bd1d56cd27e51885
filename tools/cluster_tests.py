"""Which tests of compat and integration run against three brokers with `./dev test --cluster`, read from
the sources.

python tools/cluster_tests.py        how many run so, and how many do not, by reason
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import source_trees

FOLDERS = ("tests/compat", "tests/integration")
MARK = "one_process"


def counted(root: Path) -> Counter[str]:
    """Number of test functions by the reason why they do not run so; under the empty name those that do."""
    found: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("test_*.py")):
            found.update(_reasons(path))
    return found


def _reasons(path: Path) -> Iterable[str]:
    """The reason of each test function of a file."""
    of_file = ""
    for node in source_trees.parsed(path).body:
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["pytestmark"]:
            of_file = next(filter(None, map(_argument, ast.walk(node.value))), "")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield next(filter(None, map(_argument, node.decorator_list)), of_file)


def _argument(node: ast.AST) -> str:
    """Argument of the mark; empty for another node. A mark on some cases of a test is not the test's."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(f".{MARK}"):
        return str(ast.literal_eval(node.args[0]))
    return ""


if __name__ == "__main__":
    for reason, number in counted(Path()).most_common():
        print(f"{number:5} {reason or 'run against three brokers'}")
