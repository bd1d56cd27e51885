"""State machines are asserted, and what waits is declared: two house rules that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from support.sources import PACKAGE, below, nodes

LIMITS = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")

ASSERTS_PER_100_FUNCTIONS = 30

SUBJECTS = {
    "a log and its ledgers": [
        *("managedlog/log.py", "managedlog/log_life.py", "managedlog/lifecycle.py", "managedlog/rollover.py"),
        *("managedlog/appender.py", "managedlog/ledger_list.py"),
    ],
    "cursors": [
        *("managedlog/cursors/cursor_store.py", "managedlog/cursors/cursor_writes.py"),
        *("managedlog/cursors/cursor_state.py", "managedlog/cursors/entry_set.py"),
    ],
    "a session": ["broker/session/session.py", "broker/session/session_invariants.py"],
    "a subscription": [
        *("broker/subscription/subscription.py", "broker/subscription/subscription_invariants.py"),
        *("broker/subscription/pump.py", "broker/subscription/read_place.py"),
        *("broker/subscription/attachments.py", "broker/subscription/seek_fence.py"),
    ],
    "a topic": [
        *("broker/topic/topic.py", "broker/topic/unanswered.py"),
        *("broker/topic/publish_path.py", "broker/topic/stored_publishing.py"),
        "broker/topic/subscription_life.py",
    ],
    "names of topics": ["broker/registry/registry.py", "broker/registry/topic_states.py"],
    "compaction": [
        *("broker/compaction/job.py", "broker/compaction/progress.py", "broker/compaction/named.py"),
        "broker/compaction/topic_compaction.py",
    ],
    "who may publish": ["broker/access/access_state.py"],
    "writing a ledger": [
        *("ledger/quorum/quorum_writer.py", "ledger/quorum/pending.py", "ledger/quorum/replacing.py"),
    ],
    "recovery of a ledger": ["ledger/quorum/recovery.py"],
    "offloading": ["tiered/attempt.py", "tiered/pieces.py", "tiered/request.py"],
    "group commit": ["bookie/commit.py", "bookie/index.py"],
    "the tail cache": ["managedlog/tail_cache.py"],
}
"""Modules that hold the states of one subject, what is asked of them together."""


def of(kinds: type[ast.AST] | tuple[type[ast.AST], ...], files: list[str]) -> int:
    return sum(isinstance(node, kinds) for file in files for node in nodes(PACKAGE / file))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_state_modules_assert_what_they_rely_on(subject: str) -> None:
    functions = of((ast.FunctionDef, ast.AsyncFunctionDef), SUBJECTS[subject])
    asserts = of(ast.Assert, SUBJECTS[subject])
    assert 100 * asserts >= ASSERTS_PER_100_FUNCTIONS * functions, f"{asserts} of {functions} functions"


QUEUE = re.compile(r"\bdeque\(|\bQueue\(|\bWaitingReads\(")
WAITERS = re.compile(
    r"list\[(asyncio\.Future|Callable|tuple\[int, asyncio\.Future|bytes|Request\])"
    r"|dict\[\w+, list\[(Request|tuple\[\w+, Request\])\]"
)


def might_wait(node: ast.AST) -> bool:
    """Whether a name in it is one that the patterns above look for; to write all of it out costs far more."""
    names = (getattr(each, "attr", None) or getattr(each, "id", "") for each in below(node))
    return not {"deque", "Queue", "WaitingReads", "list"}.isdisjoint(names)


def queues(room: str, walked: Iterable[ast.AST]) -> Iterator[str]:
    """Attributes that hold a queue, waiters or pieces of output: `room:Class.attribute`."""
    for kind in walked:
        if not isinstance(kind, ast.ClassDef):
            continue
        for node in below(kind):
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
                continue
            if target.value.id != "self" or not might_wait(node):
                continue
            grows = None
            text = ast.unparse(node.value) if node.value else ""
            if isinstance(node, ast.AnnAssign):
                text = f"{ast.unparse(node.annotation)} {text}"
                grows = WAITERS.match(text)
            if QUEUE.search(text) or grows:
                yield f"{room}:{kind.name}.{target.attr.lstrip('_')}"


def found() -> set[str]:
    return {
        queue
        for path in PACKAGE.rglob("*.py")
        for queue in queues(path.relative_to(PACKAGE).parts[0], nodes(path))
    }


def declared() -> set[str]:
    section = LIMITS.split("\n## What waits, and how much of it\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([\w:.]+)` \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE))


def test_each_queue_has_a_declared_bound() -> None:
    assert sorted(found() - declared()) == [], "say in docs/limits.md what bounds it, and who pays"
    assert sorted(declared() - found()) == [], "these queues are gone: take them out of docs/limits.md"


@pytest.mark.parametrize(
    "line",
    ["self._a = deque()", "self._a: deque[int] = deque()", "self.a = asyncio.Queue(5)",
     "self._a: list[asyncio.Future[None]] = []", "self._a: list[bytes] = []",
     "self.a: Final = WaitingReads()", "self._a: dict[Key, list[Request]] = {}",
     "self._a: dict[Key, list[tuple[Client, Request]]] = {}"],
)  # fmt: skip
def test_the_rule_of_queues_sees(line: str) -> None:
    tree = ast.parse(f"class K:\n    def __init__(self):\n        {line}")
    assert list(queues("room", ast.walk(tree))) == ["room:K.a"]


def test_the_rule_of_queues_sees_no_values() -> None:
    tree = ast.parse("class K:\n    def __init__(self):\n        self._a: list[int] = []")
    assert list(queues("room", ast.walk(tree))) == []
