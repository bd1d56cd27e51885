"""House rules that no linter knows. Each table of exceptions may only shrink."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from support.sources import PACKAGE, REPOSITORY, below, import_edges, imports, modules, name_of, nodes, parsed

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
"""Names that say nothing of what is inside."""

LINES_MAX = 400
"""A module that is longer has more than one concept, as a rule."""

LONG_MODULES = {
    "bookie/segment_store.py": 494,
}
"""Exceptions to LINES_MAX and the length that they must not exceed."""

FUNCTION_LINES_MAX = 60

LONG_FUNCTIONS: dict[str, int] = {}
"""Exceptions to FUNCTION_LINES_MAX, as `module:function`."""

OUTSIDE = {
    "asyncio",
    "concurrent",
    "fcntl",
    "multiprocessing",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "uvloop",
}
"""What decisions must not touch: time, chance, tasks, and everything outside the process."""

OUTSIDE_THE_PACKAGE = {"bench", "chaos", "tools"}
"""Folders of unit tests whose subject is a folder of the repository."""

TESTS_ELSEWHERE = {
    "test_pulsar_cves": {"admin/access"},  # what a role may call; policies are only what it tries to set
    "test_wildcards": {"broker/wildcards"},  # the room; a handler of sessions has the same name
}
"""Tests that lie in another room than their name or their imports say, and that room."""

DRIVER_ROOMS = {"admin", "cli", "demo", "runtime", "server", "spark"}
"""Rooms that are drivers as a whole."""

DRIVERS = set((Path(__file__).parent / "drivers.txt").read_text(encoding="utf-8").split())
"""Modules of the other rooms that await, use `magnetar.runtime`, or own tasks, sockets, files or time. All
others are plain logic that tests run without any of these."""

TOOLBOX_ONLY = {
    "asyncio": {
        *("create_task", "ensure_future", "TaskGroup", "to_thread"),
        *("gather", "sleep", "wait", "wait_for"),
    },
    "threading": {"Thread", "Timer"},
    "concurrent.futures": {"ThreadPoolExecutor"},
}
"""What only `magnetar.runtime` may name: there a task has a parent, an error is never lost, and a wait can
be cancelled in every version of Python. `asyncio.timeout`, locks, events and futures are for all modules."""

TOOLBOX_METHODS = {"call_later", "call_at", "create_task", "run_in_executor"}
"""Methods of event loops; `magnetar.runtime` has functions in their place."""


def imported(walked: Iterable[ast.AST]) -> Iterator[str]:
    """Top-level packages that a module imports when it runs; those for type checking alone do not count."""
    skipped: set[ast.AST] = set()
    for node in walked:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(inner for statement in node.body for inner in below(statement))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def rooms() -> list[Path]:
    """Folders of the package that are a subject of their own, feature rooms of the broker among them."""
    return sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


def within(measured: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    """What is wrong with sizes: too large, or an exception that is not needed any more."""
    wrong = [
        f"{name} has {size} lines, {exceptions.get(name, limit)} are allowed: split it by concept"
        for name, size in measured.items()
        if size > exceptions.get(name, limit)
    ]
    wrong += [
        f"{name} needs no exception any more: take it out of the table"
        for name in exceptions
        if measured.get(name, 0) <= limit
    ]
    return wrong


def test_names_say_what_is_inside() -> None:
    found = [name_of(path) for path in PACKAGE.rglob("*") if path.stem in BANNED_NAMES]
    assert found == []


def test_each_room_has_a_readme() -> None:
    assert [name_of(room) for room in rooms() if not (room / "README.md").exists()] == []


def test_readmes_name_files_that_are_there() -> None:
    gone = [
        f"{name_of(room)}: {file}"
        for room in rooms()
        for file in re.findall(r"`([\w/]+\.(?:py|proto))`", (room / "README.md").read_text(encoding="utf-8"))
        if not any((place / file).exists() for place in (room, PACKAGE, REPOSITORY, *room.parents))
    ]
    assert gone == []


def _inner_rooms(test: Path, floor: str) -> set[str]:
    """Folders below a floor whose modules a test imports."""
    rooms: set[str] = set()
    for node in imports(test):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"magnetar.{floor}"):
            for alias in node.names:
                path = PACKAGE.parent.joinpath(*f"{node.module}.{alias.name}".split("."))
                while not (path / "__init__.py").exists():
                    path = path.parent
                rooms.add(path.relative_to(PACKAGE).as_posix())
    return rooms


def test_unit_tests_mirror_the_package() -> None:
    """The test of a module lies in the folder of its name, and the test of one inner room in that room."""
    here = Path(__file__).parent
    homes: dict[tuple[str, str], set[str]] = {}
    for module in modules():
        folder = module.relative_to(PACKAGE).parent
        if folder.parts:
            homes.setdefault((folder.parts[0], module.stem), set()).add(folder.as_posix())
    misplaced: list[str] = []
    for test in sorted(here.rglob("test_*.py")):
        folder = test.relative_to(here).parent
        if not folder.parts or folder.parts[0] in OUTSIDE_THE_PACKAGE:
            continue
        if not (PACKAGE / folder / "__init__.py").exists():
            misplaced.append(f"{test.relative_to(here)}: the package has no such room")
            continue
        floor = folder.parts[0]
        expected = homes.get((floor, test.stem.removeprefix("test_"))) or _inner_rooms(test, floor)
        if len(expected) == 1 and folder.as_posix() not in expected | TESTS_ELSEWHERE.get(test.stem, set()):
            misplaced.append(f"{test.relative_to(here)} belongs to {', '.join(expected)}")
    assert misplaced == [], "\n".join(misplaced)


def test_modules_have_docstrings_and_one_concept() -> None:
    filled = [path for path in modules() if parsed(path).body]
    assert [name_of(path) for path in filled if not ast.get_docstring(parsed(path))] == []
    sizes = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert within(sizes, LINES_MAX, LONG_MODULES) == []


FILES_OF_MANY_ROOMS = {"__init__.py", "__main__.py", "README.md", "errors.py"}
"""Names that mean the same everywhere: what a room refuses, and what its folder is."""


def test_a_floor_has_each_file_name_once() -> None:
    """The name `store.py` leads to one file: a file is called by its concept. Floors are the folders right
    below the package."""
    places: dict[tuple[str, str], list[str]] = {}
    for path in modules():
        name = name_of(path)
        if path.name not in FILES_OF_MANY_ROOMS:
            places.setdefault((name.split("/")[0], path.name), []).append(name)
    assert [found for found in places.values() if len(found) > 1] == []


VAGUE_FILES = {"metrics", "options", "publishing", "reading", "store", "values", "worker", "writer"}
"""Names that fit a file of almost every floor; one floor may have each."""


def test_vague_file_names_stand_for_one_concept() -> None:
    found = sorted(name_of(path) for path in modules() if path.stem in VAGUE_FILES)
    assert len({name.split("/")[-1] for name in found}) == len(found), found


BOTH_ENDS = {
    "Connection": "of the broker to a client, of a client to a broker",
    "Coordinator": "of transactions at the broker, as a client reaches it",
    "Delete": "an operation of metadata, an instruction of the ownership of bundles",
    "Message": "a command on the wire, what an application transforms",
    "Producer": "as the broker sees it, as an application has it",
    "RefusedError": "what the broker refuses, what a client was refused",
    "TooMuchUsedError": "a quota over HTTP, a quota over WebSocket",
}
"""Classes whose name two floors share, and what it is in each."""


def test_a_class_name_stands_for_one_class() -> None:
    """What is generated names things as its format does."""
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in shared.items() if name not in BOTH_ENDS} == {}
    assert sorted(BOTH_ENDS.keys() - shared.keys()) == [], "needs no exception any more"
    assert [
        found for found in shared.values() if len({name.split("/")[0] for name in found}) < len(found)
    ] == []


def test_functions_fit_the_head() -> None:
    sizes: dict[str, int] = {}
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                key = f"{name_of(path)}:{node.name}"
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                sizes[key] = max(size, sizes.get(key, 0))
    assert within(sizes, FUNCTION_LINES_MAX, LONG_FUNCTIONS) == []


PARAMETERS_MAX = 7


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many, without `self` and `cls`."""
    given = function.args
    places = [each.arg for each in (*given.posonlyargs, *given.args)]
    stars = (given.vararg is not None) + (given.kwarg is not None)
    return len(places) - (places[:1] in (["self"], ["cls"])) + len(given.kwonlyargs) + stars


def test_functions_have_few_parameters() -> None:
    found = [
        f"{name_of(path)}:{node.name}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and parameters(node) > PARAMETERS_MAX
    ]
    assert found == [], "make a value of what belongs together"


ANY_MAX = 82
"""How often types of the package are `Any`, which is not checked: lower it with each one that goes."""

ANY_SLACK = 10
"""How far below the package may be before the number is lowered."""


def test_any_goes_and_does_not_come_back() -> None:
    """`object` for what is only handed on or looked at, a protocol or a dataclass for what has a shape."""
    count = sum(
        isinstance(node, ast.Name) and node.id == "Any"
        for path in modules()
        if not path.stem.endswith("_pb2")
        for node in nodes(path)
    )
    assert count <= ANY_MAX, "a new `Any`: name the type"
    assert count >= ANY_MAX - ANY_SLACK, f"lower ANY_MAX to {count}"


def drives(walked: Sequence[ast.AST]) -> bool:
    """Whether a module does more than decide."""
    waits = (ast.Await, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith)
    return any(
        isinstance(node, waits)
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("magnetar.runtime"))
        for node in walked
    ) or bool(OUTSIDE & set(imported(walked)))


def test_decisions_touch_nothing_outside() -> None:
    found = {
        name_of(path)
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] not in DRIVER_ROOMS and drives(nodes(path))
    }
    assert sorted(found - DRIVERS) == [], "plain logic awaits: split it, or name a new driver in drivers.txt"
    assert sorted(DRIVERS - found) == [], "these are plain logic now: take them out of drivers.txt"


_TOOLS = TOOLBOX_METHODS.union(*TOOLBOX_ONLY.values())


def loose_ends(walked: Iterable[ast.AST]) -> Iterator[str]:
    """Where a module makes tasks, timers or threads by itself."""
    for node in walked:
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} & TOOLBOX_ONLY.get(node.module or "", set())
            yield from (f"{node.lineno}: {name}" for name in sorted(names))
        elif isinstance(node, ast.Attribute) and node.attr in _TOOLS:
            owner = ast.unparse(node.value)
            if node.attr in TOOLBOX_ONLY.get(owner, set()) or node.attr in TOOLBOX_METHODS:
                yield f"{node.lineno}: {owner}.{node.attr}"


def test_tasks_timers_and_threads_come_from_the_toolbox() -> None:
    found = [
        f"{name_of(path)}:{place}"
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] != "runtime"
        for place in loose_ends(nodes(path))
    ]
    assert found == [], "magnetar.runtime.tasks and threads have all of these"


LOOP_ROOMS = {
    "admin",
    "bookie",
    "broker",
    "ledger",
    "managedlog",
    "metadata",
    "proxy",
    "server",
    "tiered",
    "websocket",
    "wire",
}
"""Rooms whose code runs on the event loop."""


def test_the_loop_is_stopped_by_the_toolbox_alone() -> None:
    sleeps = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules()
        if name_of(path).split("/")[0] in LOOP_ROOMS
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node) == "time.sleep"
    ]
    assert sleeps == [], "await something, or show that `runtime.tasks.stop_loop` pays"


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(work())", "await asyncio.sleep(1)", "self._loop.call_later(1, f)",
        "from concurrent.futures import ThreadPoolExecutor", "threading.Thread(target=f)",
        "asyncio.get_running_loop().run_in_executor(None, f)", "x = asyncio.wait_for",
    ],
)  # fmt: skip
def test_the_toolbox_rule_sees(line: str) -> None:
    assert list(loose_ends(ast.walk(ast.parse(line))))


LOGGING = {"critical", "debug", "error", "exception", "info", "log", "warning"}


def is_quiet(statement: ast.stmt) -> bool:
    """Whether a statement does nothing about an error but, perhaps, to log it."""
    if isinstance(statement, ast.Expr):
        called = statement.value.func if isinstance(statement.value, ast.Call) else None
        return isinstance(called, ast.Attribute) and called.attr in LOGGING
    is_bare = isinstance(statement, ast.Return) and statement.value is None
    return is_bare or isinstance(statement, ast.Pass | ast.Continue | ast.Break)


def swallowing(walked: Iterable[ast.AST]) -> Iterator[tuple[int, int]]:
    """First and last lines of the handlers, and of the heads of `with suppress(...)`, that end an error."""
    for node in walked:
        if isinstance(node, ast.ExceptHandler) and all(map(is_quiet, node.body)):
            yield node.lineno, node.end_lineno or node.lineno
        elif isinstance(node, ast.With | ast.AsyncWith):
            heads = [ast.unparse(item.context_expr) for item in node.items]
            if any(re.match(r"(contextlib\.)?suppress\(", head) for head in heads):
                yield node.lineno, node.body[0].lineno


def unexplained(text: str, walked: Iterable[ast.AST]) -> Iterator[int]:
    """Lines of swallowing handlers without a comment in them or on the line above."""
    lines = text.splitlines()
    for first, last in swallowing(walked):
        if not any("#" in line for line in lines[max(0, first - 2) : last]):
            yield first


def unexplained_in(text: str) -> list[int]:
    return list(unexplained(text, ast.walk(ast.parse(text))))


def test_who_swallows_an_error_says_why() -> None:
    found = [
        f"{name_of(path)}:{line}"
        for path in modules()
        for line in unexplained(path.read_text(encoding="utf-8"), nodes(path))
    ]
    assert found == [], "a comment in the handler says why nothing has to be done, and what happens next"


@pytest.mark.parametrize(
    ("body", "is_seen"),
    [
        ("pass", True), ("return", True), ("_log.warning('no')", True), ("f.log()\n    pass", True),
        ("pass  # it is gone", False), ("raise", False), ("return None  # none", False), ("x = 1", False),
    ],
)  # fmt: skip
def test_the_rule_about_swallowing_sees(body: str, is_seen: bool) -> None:
    assert bool(unexplained_in(f"try:\n    f()\nexcept E:\n    {body}\n")) is is_seen


def test_the_rule_about_suppressing_sees() -> None:
    assert unexplained_in("with suppress(E):\n    f()\n") == [1]
    assert unexplained_in("# Gone is what was asked for.\nwith contextlib.suppress(E):\n    f()\n") == []


def test_nothing_is_left_for_later() -> None:
    mark = re.compile(r"\b(TODO|FIXME)\b")
    folders = [REPOSITORY / name for name in ("src", "bench", "chaos", "tools", "tests", "docs")]
    found = [
        str(path.relative_to(REPOSITORY))
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in {".py", ".md", ".proto", ".sh", ".toml"} and path != Path(__file__)
        if mark.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_ignored_type_error_says_why() -> None:
    bare = re.compile(r"#\s*type:\s*ignore(?!\[[\w, -]+\]\s+#)")
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for folder in ("src", "bench", "chaos", "tools")
        for path in (REPOSITORY / folder).rglob("*.py")
        if not path.stem.endswith("_pb2")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []


def locked(file: str) -> set[str]:
    text = (REPOSITORY / "requirements" / file).read_text()
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", text, re.MULTILINE)
    return {name.lower().replace("_", "-") for name in names}


def test_the_lock_covers_what_is_declared() -> None:
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    project = document["project"]
    declared = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
        *document["dependency-groups"]["dev"],
    ]
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower().replace("_", "-") for line in declared}
    assert sorted(names - locked("lock.txt") - {"magnetar"}) == []
    assert locked("uv.txt") == {"uv"}


@pytest.mark.parametrize("file", ["lock.txt", "uv.txt"])
def test_locks_hold_versions_and_hashes_only(file: str) -> None:
    text = (REPOSITORY / "requirements" / file).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(i|f|-index-url|-extra-index-url|-find-links)\b", text, re.MULTILINE)
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_no_modules_import_each_other() -> None:
    """A circle of imports, also one of types alone, is two concepts that cannot be read apart."""
    edges = dict(import_edges())
    while leaves := [name for name, wanted in edges.items() if not wanted & edges.keys()]:
        for name in leaves:
            del edges[name]
    assert sorted(edges) == [], "in or above a circle: cut it with a protocol, see broker/ports.py"
