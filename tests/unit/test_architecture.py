"""The map of the code names what there is: every file, every function, every room."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from support.sources import parsed

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "magnetar"
TEXT = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")

FILE = re.compile(r"`((?:[\w.]+/)*[\w.]+\.(?:py|md))`")
FOLDER = re.compile(r"`((?:[\w.]+/)+)`")
PLACE = re.compile(r"`((?:[\w.]+/)+\w+\.py)` `(\w+(?:\.\w+)?)`")
"""A module and a function, class or method in it."""
METHOD = re.compile(r"`([A-Z]\w+)\.(?!md`)(\w+)`")


@cache
def definitions(path: Path) -> frozenset[str]:
    """Functions and classes of a module, methods and attributes of classes as `Class.name`."""
    found = set()
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found.update(f"{node.name}.{method.name}" for method in methods)
    return frozenset(found)


def test_every_file_is_there() -> None:
    bare = {path.name for path in PACKAGE.rglob("*")}
    missing = [
        name
        for name in FILE.findall(TEXT) + FOLDER.findall(TEXT)
        if not ((PACKAGE / name).exists() or (REPOSITORY / name).exists() or name in bare)
    ]
    assert missing == []


def test_every_function_is_where_the_map_says() -> None:
    places = PLACE.findall(TEXT)
    assert len(places) > 10
    missing = [f"{path} {name}" for path, name in places if name not in definitions(PACKAGE / path)]
    assert missing == []


def test_every_method_is_there() -> None:
    known = frozenset().union(*(definitions(path) for path in PACKAGE.rglob("*.py")))
    missing = [f"{owner}.{name}" for owner, name in METHOD.findall(TEXT) if f"{owner}.{name}" not in known]
    assert missing == []


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE}
    rows = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE))))
    assert sorted(room.name for room in rooms if room.name not in rows) == []


def test_a_room_has_the_files_at_which_to_start() -> None:
    """A bare file name is one of the room's own; `store.py` of another room does not count."""
    folders = [path for path in PACKAGE.rglob("*") if path.is_dir()]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|[^|]*\| ([^|]*) \|$", TEXT, re.MULTILINE)
    assert len(rows) > 30
    missing = []
    for names, start in rows:
        rooms = [folder for folder in folders if f"`{folder.name}`" in names]
        missing += [
            f"{names}: {file}"
            for file in re.findall(r"`([\w.]+\.(?:py|md))`", start)
            if not any((room / file).exists() for room in rooms)
        ]
    assert missing == []
