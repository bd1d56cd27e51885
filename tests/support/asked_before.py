"""Predicates that are asked before a wait when a method of the same object acts after it: the second rule of
`tests/unit/test_checks_across_waits.py`, which says what it sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from support.asking import ASKING, is_predicate, is_property
from support.effects import FOREIGN, all_functions, functions_of
from support.owner_types import Owners
from support.sources import below, modules, name_of, nodes
from support.waits import (
    attribute_of,
    changed_in,
    changing,
    changing_anywhere,
    changing_from_outside,
    changing_of,
    end,
    own_nodes,
    told_by,
    waiting,
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
    """Line where it is asked: in a condition, or in the value of a name."""
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


class Question(NamedTuple):
    """An attribute that a condition depends on."""

    node: ast.Attribute
    asked_in: ast.expr
    """The condition, or the value of a name that the condition reads."""
    loop: Sequence[ast.stmt]
    """What is repeated after the question is asked again; empty for a name, which keeps its answer."""


def questions(every: Sequence[ast.AST]) -> Iterator[Question]:
    """What conditions ask themselves, and what names in them were made of. Only predicates count for a name:
    other values that it may have been made of are copies."""
    made: dict[str, list[ast.expr]] = {}
    for node in every:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    made.setdefault(target.id, []).append(node.value)
    for condition in every:
        if not isinstance(condition, Condition):
            continue
        for node in within(condition.test):
            if isinstance(node, ast.Attribute):
                loop = condition.body if isinstance(condition, ast.While) else []
                yield Question(node, condition.test, loop)
            elif isinstance(node, ast.Name):
                for value in made.get(node.id, ()):
                    if end(value) <= end(condition.test):
                        asked = (each for each in within(value) if isinstance(each, ast.Attribute))
                        yield from (Question(each, value, []) for each in asked if _asks(each.attr))


def _asks(name: str) -> bool:
    """Whether an attribute of this name is a predicate."""
    return name.strip("_").split("_")[0] in ASKING


@cache
def _acting_of(kind: ast.ClassDef) -> frozenset[str]:
    """Methods of a class that change something, and its coroutines."""
    waiting = {each.name for each in kind.body if isinstance(each, ast.AsyncFunctionDef)}
    return frozenset(waiting | {each.name for each in functions_of(kind, kind.body) if each.acts})


def _is_of(owners: Owners | None, asked: str, method: str) -> bool:
    """Whether the class of the object tells what is asked, and the method acts; True when it is unknown."""
    owner, _, attribute = asked.rpartition(".")
    kinds = None if owners is None else owners.classes_of(owner)
    if kinds is None:
        return True
    tells = attribute in changing_from_outside() or any(attribute in changing_of(kind) for kind in kinds)
    return tells and any(method in _acting_of(kind) for kind in kinds)


def found_in(
    function: ast.AsyncFunctionDef, kind: ast.ClassDef | None, known: Known, owners: Owners | None = None
) -> Iterator[Acted]:
    """Answers of predicates that a method acts on after a wait, without a new look. `owners`: the classes of
    objects; without them names count alone."""
    every = list(own_nodes(function))
    called = {id(node.func) for node in every if isinstance(node, ast.Call)}
    own = {} if kind is None else _own(kind)
    seen: set[int] = set()
    for question in questions(every):
        node = question.node
        asked = attribute_of(node)
        if asked is None or id(node) in seen:
            continue
        seen.add(id(node))
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
                acts = method in known.acting and _is_of(owners, asked, method)
            if not acts or not _waited(every, function, question, call):
                continue
            bodies = known.definitions.get(method, [])
            if not bodies or not all((read | {node.attr}) & looked_at(each) for each in bodies):
                yield Acted(asked, method, question.asked_in.lineno, call.lineno)
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


def _waited(every: Sequence[ast.AST], function: ast.AST, question: Question, call: ast.Call) -> bool:
    """Whether a wait stands between the question and the call, and no other condition that asks the same."""
    place, name, asked_at = (call.lineno, call.col_offset), question.node.attr, end(question.asked_in)
    looks = [
        end(node.test)
        for node in every
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)
        and any(isinstance(each, ast.Attribute) and each.attr == name for each in within(node.test))
    ]
    for wait, begin, after in waits(list(every)):
        if begin < asked_at or after > place or apart(function, wait, call):
            continue
        asks_again = holds(question.loop, wait) and not holds(question.loop, call)
        if not asks_again and not any(after < look <= place for look in looks):
            return True
    return False


def acted(path: Path) -> Iterator[tuple[str, Acted]]:
    """`module:function:object.predicate->method` of a module, also of those that a comment explains."""
    for function, kind in waiting(path):
        for found in found_in(function, kind, known_anywhere(), Owners(function, kind)):
            yield f"{name_of(path)}:{function.name}:{found.asked}->{found.method}", found
