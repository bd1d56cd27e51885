"""Looking has no effect: properties, and predicates by whatever name, change nothing.

A page for operators, a metric or a `check()` looks at things at any time; whoever looks must not change what
happens next. A method that acts and tells how it went has a verb in the imperative (`take_token`,
`begin_one`, `hold_back`), or names an event (`measured`, `committed`).

What the rule sees: an attribute or item that is set, a container that is changed, and calls of what does so:
of the same class or module, and of other objects where every method of that name in the package does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

import pytest

from support.asking import is_predicate, is_property, is_setter
from support.sources import modules, name_of, nodes

CHANGING = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"),
    *("remove", "reverse", "setdefault", "sort", "update"),
}
"""Methods of containers that change them."""


def root_of(node: ast.expr) -> str | None:
    """The name that an expression begins with: `self` of `self.a.b(c)[0]`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def made_here(function: ast.FunctionDef) -> set[str]:
    """Local names of what the function itself makes, and may change."""
    given = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            is_name = isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript | ast.NamedExpr)
            called = node.value.func if isinstance(node.value, ast.Call) else None
            is_asked = isinstance(called, ast.Attribute) and root_of(called) in given | {"self"}
            if not is_name and not is_asked:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def changes_something(function: ast.FunctionDef) -> bool:
    """Whether a function sets an attribute or an item, or changes a container, that it did not make."""
    own = made_here(function)
    changed: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            changed.append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed += [node.func.value] if node.func.attr in CHANGING else []
    return any(root_of(each) not in own for each in changed)


FOREIGN: Final = {name for kind in (bytes, dict, list, re.Pattern, set, str) for name in dir(kind)} | {
    "column"
}
"""Methods of other libraries, whatever the package calls so."""

MEMOS: Final = {
    "broker/compaction/survivors.py:_is_gone": "what it keeps follows from what was collected before",
}
"""Predicates that keep what they have found, and why that changes no answer."""


class Asked(NamedTuple):
    """A function that one looks with, or may look with."""

    name: str
    line: int
    node: ast.FunctionDef
    acts: bool
    """Whether it changes something, by itself or by what it calls of its class or module."""


def used_by(function: ast.FunctionDef, *, of_class: bool) -> set[str]:
    """Names of its class, or of its module, that a function uses."""
    if not of_class:
        return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def functions_of(kind: ast.AST, body: Sequence[ast.stmt]) -> list[Asked]:
    """The functions of a class or a module, and whether they act."""
    methods = {each.name: each for each in body if isinstance(each, ast.FunctionDef) and not is_setter(each)}
    uses = {name: used_by(each, of_class=isinstance(kind, ast.ClassDef)) for name, each in methods.items()}
    found = {name for name, each in methods.items() if changes_something(each)}
    while more := {name for name in methods.keys() - found if uses[name] & found}:
        found |= more
    return [Asked(name, each.lineno, each, name in found) for name, each in sorted(methods.items())]


def all_functions(walked: Iterable[ast.AST]) -> Iterator[Asked]:
    for kind in walked:
        if isinstance(kind, ast.ClassDef | ast.Module):
            yield from functions_of(kind, kind.body)


def acting_names(functions: Iterable[Asked]) -> set[str]:
    """Names of methods that all act, whichever class they are of."""
    acts: dict[str, bool] = {}
    for each in functions:
        is_stub = all(
            isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in each.node.body
        )
        if not is_stub:
            acts[each.name] = acts.get(each.name, True) and each.acts
    return {name for name, always in acts.items() if always} - FOREIGN


def calls(function: ast.FunctionDef) -> set[str]:
    """Methods that it calls of what it did not make."""
    own = made_here(function)
    return {
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and root_of(node.func) not in own
    }


def effects(functions: Iterable[Asked], acting: set[str]) -> Iterator[Asked]:
    """Properties and predicates that change something, by themselves or by what they call."""
    for each in functions:
        asks = is_property(each.node) or is_predicate(each.node)
        if asks and (each.acts or calls(each.node) & acting):
            yield each


@cache
def acting_anywhere() -> frozenset[str]:
    return frozenset(acting_names(each for path in modules() for each in all_functions(nodes(path))))


def test_looking_has_no_effect() -> None:
    found = {
        f"{name_of(path)}:{each.name}": each.line
        for path in modules()
        for each in effects(all_functions(nodes(path)), set(acting_anywhere()))
    }
    assert {place: line for place, line in found.items() if place not in MEMOS} == {}, (
        "name a method for what it does, and make a property or predicate of what it tells"
    )
    assert sorted(MEMOS.keys() - found.keys()) == [], "these are gone: take them out of MEMOS"


def seen(text: str, acting: Iterable[str] = ()) -> list[tuple[int, str]]:
    functions = list(all_functions(ast.walk(ast.parse(text))))
    return [(each.line, each.name) for each in effects(functions, set(acting))]


@pytest.mark.parametrize(
    "body",
    [
        "self.n += 1", "self.n = 1", "del self.n", "self.n[0] = 1", "self.n.append(1)", "self.b()",
        "for each in self.n:\n            each.seen = True", "n = self.n\n        n.pop()",
        "self.n.get(1).update()", "n = self.get(1)\n        n.pop()", "return [self.b(1) for _ in self.n]",
    ],
)  # fmt: skip
def test_the_rule_about_properties_sees(body: str) -> None:
    text = (
        f"class A:\n    @property\n    def a(self):\n        {body}\n"
        "    def b(self):\n        self.c()\n    def c(self):\n        self.n = 2\n"
    )
    assert seen(text) == [(3, "a")]


@pytest.mark.parametrize(
    "body",
    [
        "return self.n", "n = []\n        n.append(self.n)", "n = sorted(self.n)\n        n.pop()",
        "return self.d()", "n = np.ones(2)\n        n[0] = self.n",
    ],
)  # fmt: skip
def test_the_rule_about_properties_does_not_see(body: str) -> None:
    text = (
        f"class A:\n    @property\n    def a(self):\n        {body}\n    @a.setter\n"
        "    def a(self, n):\n        self.n = n\n    def d(self):\n        return self.n\n"
    )
    assert seen(text) == []


@pytest.mark.parametrize(
    "name", ["is_full", "has_work", "_may_go", "matches", "opens_to", "_no_core_is_left", "used_before"]
)
def test_the_rule_sees_predicates_that_act(name: str) -> None:
    text = f"class A:\n    def {name}(self) -> bool:\n        self.n += 1\n        return True\n"
    assert seen(text) == [(2, name)]
    assert seen(text.replace("self.n += 1", "self.n")) == []
    assert seen(text.replace("-> bool", "-> int")) == []


@pytest.mark.parametrize("name", ["take", "begin_one", "measured", "pass_on", "hold_back"])
def test_the_rule_leaves_commands_alone(name: str) -> None:
    text = f"class A:\n    def {name}(self) -> bool:\n        self.n += 1\n        return True\n"
    assert seen(text) == []


def test_the_rule_sees_what_others_do() -> None:
    text = "class A:\n    def is_full(self) -> bool:\n        return self.part.settle() > 1\n"
    assert seen(text, {"settle"}) == [(2, "is_full")]
    other = "class B:\n    def settle(self):\n        {}\nclass C:\n    def settle(self):\n        {}\n"
    acts = all_functions(ast.walk(ast.parse(other.format("self.n += 1", "self.n = 1"))))
    assert acting_names(acts) == {"settle"}
    may_not = all_functions(ast.walk(ast.parse(other.format("self.n += 1", "return self.n"))))
    assert acting_names(may_not) == set()
