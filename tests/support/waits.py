"""Checks whose outcome is used after a wait, as the sources show them: the rule of
`tests/unit/test_checks_across_waits.py`, which says what it sees."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from support.asking import is_predicate, is_property, is_setter
from support.owner_types import Owners
from support.sources import below, modules, name_of, nodes

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
    """The `a` of `self.a`, and all of `other.a`, `self.other.a`."""
    if not isinstance(node, ast.Attribute):
        return None
    if isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else f"{node.value.id}.{node.attr}"
    if isinstance(node.value, ast.Attribute) and (owner := attribute_of(node.value)) is not None:
        return f"{owner}.{node.attr}" if "." in owner else f"self.{owner}.{node.attr}"
    return None


@cache
def changed_in(function: ast.AST) -> tuple[ast.AST, ...]:
    """Whatever a function sets, or whose content it changes."""
    return tuple(_changed_in(function))


def _changed_in(function: ast.AST) -> Iterator[ast.AST]:
    for node in below(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _CHANGING
        ):
            yield node.func.value


@cache
def changing(kind: ast.AST) -> set[str]:
    """Attributes of `self` that methods other than `__init__` change."""
    found: set[str] = set()
    for function in below(kind):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name != "__init__":
            names = [attribute_of(node) for node in changed_in(function)]
            found.update(name for name in names if name is not None and "." not in name)
    return found


@cache
def changing_anywhere() -> frozenset[str]:
    """Names of attributes that some module changes after their object was made."""
    return frozenset(
        node.attr
        for path in modules()
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name != "__init__"
        for node in changed_in(function)
        if isinstance(node, ast.Attribute)
    )


def told_by(kind: ast.ClassDef, own: set[str], elsewhere: frozenset[str]) -> dict[str, set[str]]:
    """Properties and predicates of a class, and the attributes that change among those that they read."""
    methods = {
        each.name: each for each in kind.body if isinstance(each, ast.FunctionDef) and not is_setter(each)
    }
    read = {
        name: {attribute for node in below(each) if (attribute := attribute_of(node)) is not None}
        for name, each in methods.items()
    }
    told: dict[str, set[str]] = {}
    for name, each in methods.items():
        if not (is_property(each) or is_predicate(each)):
            continue
        seen: set[str] = set()
        found: set[str] = set()
        waiting = [name]
        while waiting:
            if (one := waiting.pop()) in seen:
                continue
            seen.add(one)
            waiting += read[one] & methods.keys()
            found |= read[one] & own
            found |= {
                attribute
                for attribute in read[one]
                if attribute.startswith("self.") and attribute.rpartition(".")[2] in elsewhere
            }
        if found:
            told[name] = found
    return told


@cache
def told_anywhere() -> frozenset[str]:
    """Properties and predicates of all classes that read something that changes."""
    return frozenset(
        name
        for path in modules()
        for kind in nodes(path)
        if isinstance(kind, ast.ClassDef)
        for name in told_by(kind, changing(kind), changing_anywhere())
    )


@cache
def changing_from_outside() -> frozenset[str]:
    """Names of attributes that some code changes of another object than its own."""
    return frozenset(
        node.attr
        for path in modules()
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in changed_in(function)
        if isinstance(node, ast.Attribute) and "." in (attribute_of(node) or ".")
    )


@cache
def changing_of(kind: ast.ClassDef) -> frozenset[str]:
    """Attributes, properties and predicates of a class whose values may change."""
    own = changing(kind)
    return frozenset(own | told_by(kind, own, changing_anywhere()).keys())


class Changes:
    """Which attributes others may change meanwhile."""

    def __init__(
        self,
        own: set[str],
        elsewhere: frozenset[str],
        told: dict[str, set[str]] | None = None,
        owners: Owners | None = None,
    ) -> None:
        """`told`: properties and predicates of the class, and what they read of what changes. `owners`: the
        classes of other objects; where they are unknown `elsewhere` counts."""
        self._told = told or {}
        self._own = own | self._told.keys()
        self._elsewhere = elsewhere
        self._owners = owners

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        owner, _, attribute = name.rpartition(".")
        if not owner:
            return name in self._own
        if attribute not in self._elsewhere:
            return False
        kinds = None if self._owners is None else self._owners.classes_of(owner)
        if kinds is None or attribute in changing_from_outside():
            return True
        return any(attribute in changing_of(kind) for kind in kinds)

    def behind(self, names: set[str]) -> set[str]:
        """The names, and the attributes that they stand for."""
        return names.union(*(self._told.get(name, ()) for name in names))


@cache
def own_nodes(function: ast.AST) -> tuple[ast.AST, ...]:
    """Nodes of a function without those of functions inside it. Several rules ask for them."""
    return tuple(_own_nodes(function))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, _INNER):
            yield node
            yield from _own_nodes(node)


_INNER: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def within(expression: ast.expr) -> Iterator[ast.AST]:
    """An expression and its parts, without what lambdas in it do."""
    yield expression
    yield from own_nodes(expression)


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


def is_other_method(node: ast.AST, called: set[int]) -> bool:
    """Whether it is the method of another object, where that is called."""
    return id(node) in called and "." in (attribute_of(node) or "")


def checks(nodes: list[ast.AST], called: set[int], changes: Changes) -> Iterator[tuple[int, Place, set[str]]]:
    """Each condition: its line, where it ends, and the attributes that it reads, itself or by names that were
    made of them."""
    made: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            read = {
                name
                for each in within(node.value)
                if (name := attribute_of(each)) in changes and not is_other_method(each, called)
            }
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    made.setdefault(target.id, set()).update(name for name in read if name is not None)
    for node in nodes:
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            attributes: set[str] = set()
            for each in within(node.test):
                name = attribute_of(each)
                if name in changes and name is not None and not is_other_method(each, called):
                    attributes.add(name)
                elif isinstance(each, ast.Name):
                    attributes |= made.get(each.id, set())
            yield node.test.lineno, end(node.test), changes.behind(attributes)


def uses_after(nodes: list[ast.AST], wait: ast.AST, after: Place, attribute: str) -> list[ast.AST]:
    """Where the attribute occurs after a wait, in the order of the text; first where its result goes."""
    stored = [
        each
        for node in nodes
        if isinstance(node, ast.Assign | ast.AugAssign) and any(one is wait for one in below(node.value))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for each in below(target)
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


def found_in(function: ast.AsyncFunctionDef, changes: Changes) -> Iterator[Found]:
    """Checks whose outcome is used after a wait without a new look."""
    every = list(own_nodes(function))
    called = {id(node.func) for node in every if isinstance(node, ast.Call)}
    nodes = [node for node in every if not is_other_method(node, called)]
    conditions = {
        id(each)
        for node in nodes
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)
        for each in below(node.test)
    }
    for line, checked, attributes in checks(nodes, called, changes):
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


def coroutines(tree: Iterable[ast.AST]) -> Iterator[tuple[ast.AsyncFunctionDef, ast.ClassDef | None]]:
    """All coroutines, those within functions too, and the class of their `self`."""
    of_class: dict[ast.AST, ast.ClassDef] = {}
    for kind in tree:
        if isinstance(kind, ast.ClassDef):
            inner = [each for each in below(kind) if isinstance(each, ast.AsyncFunctionDef)]
            of_class.update(dict.fromkeys(inner, kind))
    for function in tree:
        if isinstance(function, ast.AsyncFunctionDef):
            yield function, of_class.get(function)


@cache
def waiting(path: Path) -> tuple[tuple[ast.AsyncFunctionDef, ast.ClassDef | None], ...]:
    """The coroutines of a module that wait for something."""
    waits_in = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    return tuple(
        (function, kind)
        for function, kind in coroutines(nodes(path))
        if any(isinstance(node, waits_in) for node in own_nodes(function))
    )


def changes_around(
    kind: ast.ClassDef | None,
    elsewhere: frozenset[str],
    told: frozenset[str],
    owners: Owners | None = None,
) -> Changes:
    """What others may change while a coroutine of the class waits."""
    own = set() if kind is None else changing(kind)
    return Changes(own, elsewhere | told, _told_by(kind, elsewhere), owners)


@cache
def _told_by(kind: ast.ClassDef | None, elsewhere: frozenset[str]) -> dict[str, set[str]] | None:
    return None if kind is None else told_by(kind, changing(kind), elsewhere)


def unexplained(path: Path) -> Iterator[str]:
    """`module:function:attribute` of a module."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for function, kind in waiting(path):
        owners = Owners(function, kind)
        for found in found_in(function, changes_around(kind, changing_anywhere(), told_anywhere(), owners)):
            if not is_explained(lines, found):
                yield f"{name_of(path)}:{function.name}:{found.attribute}"
