"""Which functions change something, as the sources show it: the rule of `tests/unit/test_effects.py`, which
says what it sees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from support.asking import is_predicate, is_property, is_setter
from support.sources import below, modules, nodes

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


@cache
def made_here(function: ast.FunctionDef) -> set[str]:
    """Local names of what the function itself makes, and may change."""
    given = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    found: set[str] = set()
    for node in below(function):
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
    for node in below(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            changed.append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed += [node.func.value] if node.func.attr in CHANGING else []
    return any(root_of(each) not in own for each in changed)


FOREIGN: Final = {name for kind in (bytes, dict, list, re.Pattern, set, str) for name in dir(kind)} | {
    "column"
}
"""Methods of other libraries, whatever the package calls so."""


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
        return {node.id for node in below(function) if isinstance(node, ast.Name)}
    return {
        node.attr
        for node in below(function)
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
        for node in below(function)
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
