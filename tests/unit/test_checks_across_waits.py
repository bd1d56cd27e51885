"""No `await` between a check of an attribute and what depends on it, unless somebody says why it is harmless.

Between two `await`s no other code runs. So a coroutine that looks at an attribute of its object, waits, and
then uses the attribute acts on something that others may have changed. It has to look again after the wait,
or to hold the thing, or to say in a comment between check and use who else can act and why that does no harm.
`checks_across_waits.txt` lists those that were gone through and says it there.

What the rule sees: in one coroutine, a condition of `if`, `while` or `x if y else z` that reads `self.a`, or
a name that was made of it; an `await` behind it in the text; and after that a use of `self.a` that is no
condition itself. Only attributes that change after the object was made are of concern.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from support.sources import modules, name_of, nodes

REVIEWED: Final = Path(__file__).parent / "checks_across_waits.txt"

_CHANGING: Final = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"),
    *("remove", "setdefault", "update"),
}
"""Methods of containers that change them."""

Place = tuple[int, int]
"""Line and column."""


class Found(NamedTuple):
    """A use that depends on a check from before a wait."""

    attribute: str
    checked: int
    """Line of the check."""
    used: int
    """Line of the use."""


def attribute_of(node: ast.AST) -> str | None:
    """The `a` of `self.a`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def changing(kind: ast.ClassDef) -> set[str]:
    """Attributes that methods other than `__init__` set, or whose content they change."""
    found: set[str | None] = set()
    for function in ast.walk(kind):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name == "__init__":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                found.add(attribute_of(node))
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                found.add(attribute_of(node.value))
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _CHANGING
            ):
                found.add(attribute_of(node.func.value))
    return {name for name in found if name is not None}


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from own_nodes(node)


def end(node: ast.expr) -> Place:
    return (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def waits(nodes: list[ast.AST]) -> Iterator[tuple[ast.AST, Place, Place]]:
    """Each wait: the node, where it begins, and from where on others may have run."""
    for node in nodes:
        if isinstance(node, ast.Await):
            yield node, (node.lineno, node.col_offset), end(node)
        elif isinstance(node, ast.AsyncFor):
            yield node, (node.lineno, node.col_offset), end(node.iter)
        elif isinstance(node, ast.AsyncWith):
            yield node, (node.lineno, node.col_offset), end(node.items[-1].context_expr)


def checks(nodes: list[ast.AST], changes: set[str]) -> Iterator[tuple[int, Place, set[str]]]:
    """Each condition: its line, where it ends, and the attributes that it reads, itself or by names that were
    made of them."""
    made: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            read = {name for each in ast.walk(node.value) if (name := attribute_of(each)) in changes}
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    made.setdefault(target.id, set()).update(name for name in read if name is not None)
    for node in nodes:
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            attributes: set[str] = set()
            for each in ast.walk(node.test):
                name = attribute_of(each)
                if name in changes and name is not None:
                    attributes.add(name)
                elif isinstance(each, ast.Name):
                    attributes |= made.get(each.id, set())
            yield node.test.lineno, end(node.test), attributes


def uses_after(nodes: list[ast.AST], wait: ast.AST, after: Place, attribute: str) -> list[ast.AST]:
    """Where the attribute occurs after a wait, in the order of the text; first where its result goes."""
    stored = [
        each
        for node in nodes
        if isinstance(node, ast.Assign | ast.AugAssign) and any(one is wait for one in ast.walk(node.value))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for each in ast.walk(target)
        if attribute_of(each) == attribute
    ]
    later = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and attribute_of(node) == attribute
        and (node.lineno, node.col_offset) > after
    ]
    return stored + sorted(later, key=lambda node: (node.lineno, node.col_offset))


def found_in(function: ast.AsyncFunctionDef, changes: set[str]) -> Iterator[Found]:
    """Checks whose outcome is used after a wait without a new look."""
    nodes = list(own_nodes(function))
    conditions = {
        id(each)
        for node in nodes
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)
        for each in ast.walk(node.test)
    }
    for line, checked, attributes in checks(nodes, changes):
        for attribute in sorted(attributes):
            for wait, begin, after in waits(nodes):
                if begin < checked:
                    continue
                uses = uses_after(nodes, wait, after, attribute)
                if uses and id(uses[0]) not in conditions:
                    use = uses[0]
                    assert isinstance(use, ast.Attribute)
                    yield Found(attribute, line, max(use.lineno, after[0]))
                    break


def is_explained(lines: list[str], found: Found) -> bool:
    """Whether a comment stands between check and use, or right before the check."""
    return any(line.lstrip().startswith("#") for line in lines[found.checked - 3 : found.used])


def unexplained(path: Path) -> Iterator[str]:
    """`module:function:attribute` of a module."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for kind in nodes(path):
        if isinstance(kind, ast.ClassDef):
            functions = [each for each in kind.body if isinstance(each, ast.AsyncFunctionDef)]
            changes = changing(kind) if functions else set()
            for function in functions:
                for found in found_in(function, changes):
                    if not is_explained(lines, found):
                        yield f"{name_of(path)}:{function.name}:{found.attribute}"


def reviewed() -> dict[str, str]:
    """Places that were gone through, and why they are harmless."""
    text = REVIEWED.read_text(encoding="utf-8")
    rows = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


def test_nobody_acts_on_what_was_checked_before_a_wait() -> None:
    places = {place for path in modules() for place in unexplained(path)}
    known = reviewed()
    assert sorted(places - known.keys()) == [], (
        "look again after the wait, or say in a comment who else can act; see the head of this test"
    )
    assert sorted(known.keys() - places) == [], "these are gone: take them out of checks_across_waits.txt"
    assert all(len(reason) > 20 for reason in known.values()), "say who else can act, and why it is harmless"


def of(body: str) -> list[str]:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    text = f"class K:\n    async def f(self):\n{lines}\n    def g(self):\n        self.a = 1\n"
    (kind,) = ast.parse(text).body
    assert isinstance(kind, ast.ClassDef)
    (function, _) = kind.body
    assert isinstance(function, ast.AsyncFunctionDef)
    source = text.splitlines()
    return [
        found.attribute
        for found in found_in(function, changing(kind))
        if not is_explained(source, found)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "if not self.a:\n    self.a = await made()",
        "if self.a:\n    await done()\n    self.a.close()",
        "b = self.a.get(1)\nif b is None:\n    await done()\n    self.a[1] = 2",
        "while self.a:\n    async with lock:\n        self.a.pop()",
        "b = 1 if self.a else 2\nself.a = b + await made()",
    ],
)
def test_the_rule_sees(body: str) -> None:
    assert of(body) == ["a"]


@pytest.mark.parametrize(
    "body",
    [
        "if self.a:\n    self.a.close()\n    await done()",  # before the wait
        "if self.a:\n    await done()\n    if self.a:\n        self.a.close()",  # looked again
        "if self.a:\n    await self.a.done()",  # read before the wait begins
        "if self.a:\n    # Nobody else sets it.\n    await done()\n    self.a.close()",  # explained
        "if self.b:\n    await done()\n    self.b.close()",  # nobody changes b
        "await done()\nif self.a:\n    self.a.close()",  # checked after the wait
    ],
)
def test_the_rule_does_not_see(body: str) -> None:
    assert of(body) == []
