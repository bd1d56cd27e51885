"""Classes of the objects that a function handles, as annotations and calls of classes show them.

It follows names (`topic: Topic`), attributes (`self.topic` that the class sets from a parameter, makes by a
call, or declares), properties, and what methods return. Where these do not tell, or tell of a protocol, whose
classes nothing names, the answer is None: callers then go by the names of attributes alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from support.sources import below, modules, nodes

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """The classes of the package by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def bases(kind: ast.ClassDef) -> set[str]:
    """Names of a class's bases, without their parameters."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in kind.bases)
    return {ast.unparse(base).rpartition(".")[2] for base in plain}


@cache
def _heirs() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, kinds in classes().items():
        for kind in kinds:
            for base in bases(kind):
                found.setdefault(base, set()).add(name)
    return found


@cache
def family(name: str) -> tuple[ast.ClassDef, ...] | None:
    """The classes that an object may be of whose type has this name, with the bases of each; None when one of
    them is a protocol or not of this package."""
    downwards, upwards = {name}, [name]
    waiting = [name]
    while waiting:
        new = _heirs().get(waiting.pop(), set()) - downwards
        downwards |= new
        waiting += new
        upwards += new
    found: dict[str, list[ast.ClassDef]] = {}
    while upwards:
        one = upwards.pop()
        if one in found or one in ("Generic", "object", "ABC"):
            continue
        kinds = classes().get(one)
        if kinds is None or any("Protocol" in bases(kind) for kind in kinds):
            return None
        found[one] = kinds
        upwards += [base for kind in kinds for base in bases(kind)]
    return tuple(kind for kinds in found.values() for kind in kinds)


def named(annotation: ast.expr | None) -> str | None:
    """The one class of this package in an annotation; None without one."""
    match annotation:
        case ast.Constant(value=str() as text):
            return named(ast.parse(text, mode="eval").body)
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(value=ast.Name(id=name)):
            return name if name in classes() else None
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            sides = [side for side in (left, right) if ast.unparse(side) != "None"]
            return named(sides[0]) if len(sides) == 1 else None
    return None


def parameters(function: Function) -> dict[str, str]:
    """The classes of a function's parameters."""
    given = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return {each.arg: name for each in given if (name := named(each.annotation)) is not None}


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, ast.expr | None]]:
    """Targets of an assignment, each with its annotation and value."""
    if isinstance(node, ast.Assign):
        yield from ((target, None, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign):
        yield node.target, node.annotation, node.value
    elif isinstance(node, ast.NamedExpr):
        yield node.target, None, node.value


@cache
def parts(name: str) -> dict[str, str]:
    """Attributes, properties and methods of a class, with the class of their value or answer."""
    found: dict[str, str | None] = {}

    def note(attribute: str, kind: str | None) -> None:
        # What has two types, or an unknown one beside a known one, has none here.
        found[attribute] = kind if found.setdefault(attribute, kind) == kind else None

    for kind in family(name) or ():
        for each in kind.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                note(each.target.id, named(each.annotation))
            elif isinstance(each, Function):
                note(each.name, named(each.returns))
                known = parameters(each)
                for node in below(each):
                    for target, annotation, value in assigned(node):
                        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                            given = known.get(value.id) if isinstance(value, ast.Name) else made(value)
                            note(target.attr, named(annotation) or given)
    return {attribute: kind for attribute, kind in found.items() if kind is not None}


def made(value: ast.expr | None) -> str | None:
    """The class that a call makes an object of."""
    return named(value.func) if isinstance(value, ast.Call) else None


class Owners:
    """The classes of the objects that a function names."""

    def __init__(self, function: Function, kind: ast.ClassDef | None) -> None:
        self._function, self._kind = function, kind
        self._known: dict[str, str | None] = {}
        self._read = False

    def _read_function(self) -> None:
        """Only of functions about whose objects there is a question: most have none."""
        self._read = True
        self._known.update(parameters(self._function))
        if self._kind is not None:
            self._known["self"] = self._kind.name
        for node in below(self._function):
            for target, annotation, value in assigned(node):
                if isinstance(target, ast.Name):
                    of = named(annotation) or self._of(value)
                    self._known[target.id] = of if self._known.setdefault(target.id, of) == of else None
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                inner = [each for each in below(node.target) if isinstance(each, ast.Name)]
                self._known.update((each.id, None) for each in inner)

    def _of(self, value: ast.expr | None) -> str | None:
        match value:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Await(value=inner) | ast.NamedExpr(value=inner):
                return self._of(inner)
            case ast.Call(func=ast.Attribute() as method):
                return self._of(method)
            case ast.Attribute(value=owner, attr=attribute):
                of = self._of(owner)
                return None if of is None else parts(of).get(attribute)
        return made(value)

    def classes_of(self, path: str) -> tuple[ast.ClassDef, ...] | None:
        """The classes of the object at a path such as `topic` or `self.log`; None when they are unknown."""
        if not self._read:
            self._read_function()
        first, *others = path.split(".")
        of = self._known.get(first)
        for attribute in others:
            of = None if of is None else parts(of).get(attribute)
        return None if of is None else family(of)
