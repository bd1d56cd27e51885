"""House rules that no linter knows. Each table of exceptions may only shrink."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "magnetar"

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
"""Names that say nothing of what is inside."""

LINES_MAX = 400
"""A module that is longer has more than one concept, as a rule."""

LONG_MODULES = {"bookie/store.py": 515, "broker/subscription.py": 450, "managedlog/log.py": 480}
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

DRIVER_ROOMS = {"admin", "cli", "demo", "runtime", "server", "spark"}
"""Rooms that are drivers as a whole."""

DRIVERS = {
    "adminclient/http.py",
    "auth/https_fetch.py",
    "bookie/appender.py",
    "bookie/network/connection.py",
    "bookie/network/entries.py",
    "bookie/network/keeping.py",
    "bookie/network/node.py",
    "bookie/network/scattered.py",
    "bookie/network/server.py",
    "bookie/pacing.py",
    "bookie/prewriter.py",
    "bookie/reader.py",
    "bookie/rewriter.py",
    "bookie/roster.py",
    "bookie/segment_copy.py",
    "bookie/store.py",
    "bookie/supply.py",
    "broker/canary/lane.py",
    "broker/canary/room.py",
    "broker/compaction/room.py",
    "broker/connection.py",
    "broker/delayed/room.py",
    "broker/seek_fence.py",
    "broker/watchers/selection.py",
    "client/connection.py",
    "client/reader.py",
    "client/retry.py",
    "client/tls.py",
    "history/serving.py",
    "history/worker.py",
    "history/yielding.py",
    "ledger/client/cluster.py",
    "ledger/client/connection.py",
    "ledger/client/driving.py",
    "ledger/client/explicit_lac.py",
    "ledger/client/following.py",
    "ledger/client/fresh_ids.py",
    "ledger/client/pool.py",
    "ledger/client/reading.py",
    "ledger/client/tail_reads.py",
    "ledger/client/writing.py",
    "lake/process.py",
    "lake/worker.py",
    "ledger/autorecovery/auditor.py",
    "ledger/autorecovery/checker.py",
    "ledger/autorecovery/checks.py",
    "ledger/autorecovery/decommission.py",
    "ledger/autorecovery/entry_lists.py",
    "ledger/autorecovery/replicating.py",
    "ledger/autorecovery/worker.py",
    "ledger/embedded.py",
    "ledger/beside.py",
    "ledger/guard.py",
    "ledger/tree_registry.py",
    "managedlog/cursor_flusher.py",
    "managedlog/cursor_ledgers.py",
    "managedlog/log_cursors.py",
    "managedlog/cursor_replay.py",
    "managedlog/replay_turns.py",
    "managedlog/cursor_store.py",
    "managedlog/delta_ledger.py",
    "managedlog/lifecycle.py",
    "managedlog/logs.py",
    "managedlog/stored_log.py",
    "metadata/bookkeeper/folder_registry.py",
    "metadata/bookkeeper/tree_registry.py",
    "metadata/embedded.py",
    "metadata/etcd/client.py",
    "metadata/etcd/lease.py",
    "metadata/etcd/store.py",
    "metadata/etcd/watching.py",
    "metadata/memory.py",
    "metadata/sqlite_check.py",
    "metadata/sqlite_file.py",
    "metadata/sqlite_nodes.py",
    "metadata/sqlite_rebuild.py",
    "metadata/sqlite_schema.py",
    "metadata/zookeeper/link.py",
    "metadata/zookeeper/writer.py",
    "observability/logs.py",
    "observability/process.py",
    "schemas/registry.py",
    "tiered/copy_reader.py",
    "tiered/merger.py",
    "tiered/offloader.py",
    "tiered/parquet/worker.py",
    "tiered/owner.py",
    "tiered/room.py",
    "websocket/app.py",
    "websocket/endpoint.py",
    "websocket/line.py",
    "websocket/producing.py",
}
"""Modules of the other rooms that own tasks, sockets, files or time. All others are plain logic that
tests run without any of these."""


def is_generated(path: Path) -> bool:
    return path.stem.endswith("_pb2")


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if not is_generated(path))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Top-level packages that a module imports when it runs; those for type checking alone do not count."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(inner for statement in node.body for inner in ast.walk(statement))
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


def test_modules_have_docstrings_and_one_concept() -> None:
    filled = [path for path in modules() if parsed(path).body]
    assert [name_of(path) for path in filled if not ast.get_docstring(parsed(path))] == []
    sizes = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert within(sizes, LINES_MAX, LONG_MODULES) == []


def test_functions_fit_the_head() -> None:
    sizes: dict[str, int] = {}
    for path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                key = f"{name_of(path)}:{node.name}"
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                sizes[key] = max(size, sizes.get(key, 0))
    assert within(sizes, FUNCTION_LINES_MAX, LONG_FUNCTIONS) == []


def test_decisions_touch_nothing_outside() -> None:
    found = {
        name_of(path)
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] not in DRIVER_ROOMS and OUTSIDE & set(imported(parsed(path)))
    }
    assert sorted(found - DRIVERS) == []
    assert sorted(DRIVERS - found) == [], "these are plain logic now: take them out of the table"


def test_nothing_is_left_for_later() -> None:
    mark = re.compile(r"\b(TODO|FIXME)\b")
    folders = [REPOSITORY / name for name in ("src", "bench", "tools", "tests", "docs")]
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
        for folder in ("src", "bench", "tools")
        for path in (REPOSITORY / folder).rglob("*.py")
        if not is_generated(path)
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
