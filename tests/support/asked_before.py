"""Predicates that are asked before a wait when a method of the same object acts after it: the second rule of
`tests/unit/test_checks_across_waits.py`, which says what it sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from support.asking import is_predicate, is_property
from support.effects import FOREIGN, all_functions
from support.sources import below, modules, name_of, nodes
from support.waits import (
    attribute_of,
    changed_in,
    changing,
    changing_anywhere,
    coroutines,
    end,
    own_nodes,
    told_by,
    waits,
    within,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Condition = ast.If | ast.While | ast.IfExp

_ENDS: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Acted(NamedTuple):
    """A method that acts on an answer from before a wait."""

    asked: str
    """The predicate or property with its object, as `topic.is_open`; of `self` without the object."""
    method: str
    checked: int
    """Line of the condition."""
    used: int
    """Line of the call."""


class Known(NamedTuple):
    """What classes of the package tell and do, by names, as the rule knows no types."""

    told: dict[str, set[str]]
    """Predicates and properties, and the last names of the attributes that they read."""
    called: frozenset[str]
    """Those that are asked by a call."""
    acting: frozenset[str]
    """Methods of which at least one changes something, and all coroutines."""
    definitions: dict[str, list[Function]]


def known_of(trees: Sequence[Sequence[ast.AST]], elsewhere: frozenset[str]) -> Known:
    """`trees`: all nodes of each module; `elsewhere`: names of attributes that some module changes."""
    told: dict[str, set[str]] = {}
    called: set[str] = set()
    definitions: dict[str, list[Function]] = {}
    acting: set[str] = set()
    for walked in trees:
        acting |= {each.name for each in all_functions(walked) if each.acts}
        for node in walked:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                definitions.setdefault(node.name, []).append(node)
                if isinstance(node, ast.AsyncFunctionDef):
                    acting.add(node.name)
                elif is_predicate(node) and not is_property(node):
                    called.add(node.name)
            elif isinstance(node, ast.ClassDef):
                for name, read in told_by(node, changing(node), elsewhere).items():
                    told.setdefault(name, set()).update(last(attribute) for attribute in read)
    return Known(told, frozenset(called), frozenset(acting - FOREIGN), definitions)


@cache
def known_anywhere() -> Known:
    """What the classes of the package tell and do."""
    return known_of([nodes(path) for path in modules()], changing_anywhere())


def last(attribute: str) -> str:
    return attribute.rpartition(".")[2]


@cache
def looked_at(function: Function) -> set[str]:
    """Names of attributes in the conditions and asserts of a function."""
    return {
        each.attr
        for node in own_nodes(function)
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)
        for each in below(node.test)
        if isinstance(each, ast.Attribute)
    }


@cache
def changes_of(kind: ast.ClassDef) -> dict[str, set[str]]:
    """Methods of a class, and attributes of `self` that they change, also by methods that they call."""
    methods = {each.name: each for each in kind.body if isinstance(each, Function)}
    found = {
        name: {attribute for node in changed_in(each) if (attribute := attribute_of(node)) is not None}
        for name, each in methods.items()
    }
    uses = {
        name: {attribute for node in below(each) if (attribute := attribute_of(node)) in methods}
        for name, each in methods.items()
    }
    more = True
    while more:
        more = False
        for name in methods:
            new = set().union(*(found[str(one)] for one in uses[name])) - found[name]
            more = more or bool(new)
            found[name] |= new
    return found


def apart(function: ast.AST, wait: ast.AST, call: ast.AST) -> bool:
    """Whether no run of the function goes from the wait to the call without passing the condition again: they
    are in different branches, or the branch of the wait, or the loop, ends before the call."""
    for node in own_nodes(function):
        if isinstance(node, ast.If):
            for here, there in ((node.body, node.orelse), (node.orelse, node.body)):
                leaves = holds(here, wait) and not holds(here, call)
                if leaves and (holds(there, call) or isinstance(here[-1], _ENDS)):
                    return True
    return False


def holds(statements: Sequence[ast.stmt], node: ast.AST) -> bool:
    return any(one is node for statement in statements for one in below(statement))


def found_in(function: ast.AsyncFunctionDef, kind: ast.ClassDef | None, known: Known) -> Iterator[Acted]:
    """Answers of predicates that a method acts on after a wait, without a new look."""
    every = list(own_nodes(function))
    called = {id(node.func) for node in every if isinstance(node, ast.Call)}
    own = {} if kind is None else _own(kind)
    for condition in every:
        if not isinstance(condition, Condition):
            continue
        for node in within(condition.test):
            asked = attribute_of(node)
            if asked is None or not isinstance(node, ast.Attribute):
                continue
            is_own = "." not in asked
            if node.attr not in (own if is_own else known.told):
                continue
            if not is_own and (id(node) in called) != (node.attr in known.called):
                continue
            read = {last(each) for each in own[asked]} if is_own else known.told[node.attr]
            for call, method in _calls(every, asked, is_own=is_own):
                if is_own:
                    assert kind is not None, "it told something"
                    acts = not read.isdisjoint(map(last, changes_of(kind).get(method, ())))
                else:
                    acts = method in known.acting
                if not acts or not _waited(every, function, condition, node.attr, call):
                    continue
                bodies = known.definitions.get(method, [])
                if not bodies or not all((read | {node.attr}) & looked_at(each) for each in bodies):
                    yield Acted(asked, method, condition.test.lineno, call.lineno)
                    break


@cache
def _own(kind: ast.ClassDef) -> dict[str, set[str]]:
    return told_by(kind, changing(kind), changing_anywhere())


def _calls(every: Sequence[ast.AST], asked: str, *, is_own: bool) -> list[tuple[ast.Call, str]]:
    """Calls of methods of the object that was asked, each with the method, in the order of the text."""
    owner = "" if is_own else f"{asked.rpartition('.')[0]}."
    found = [
        (node, node.func.attr)
        for node in every
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and attribute_of(node.func) == f"{owner}{node.func.attr}"
    ]
    return sorted(found, key=lambda each: (each[0].lineno, each[0].col_offset))


def _waited(
    every: Sequence[ast.AST], function: ast.AST, condition: Condition, name: str, call: ast.Call
) -> bool:
    """Whether a wait stands between the condition and the call, and no other condition that asks the same."""
    place = (call.lineno, call.col_offset)
    looks = [
        end(node.test)
        for node in every
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)
        and any(isinstance(each, ast.Attribute) and each.attr == name for each in within(node.test))
    ]
    for wait, begin, after in waits(list(every)):
        if begin < end(condition.test) or after > place or apart(function, wait, call):
            continue
        loop = condition.body if isinstance(condition, ast.While) else []
        asks_again = holds(loop, wait) and not holds(loop, call)
        if not asks_again and not any(after < look <= place for look in looks):
            return True
    return False


def acted(path: Path) -> Iterator[tuple[str, Acted]]:
    """`module:function:object.predicate->method` of a module, also of those that a comment explains."""
    for function, kind in coroutines(nodes(path)):
        for found in found_in(function, kind, known_anywhere()):
            yield f"{name_of(path)}:{function.name}:{found.asked}->{found.method}", found
