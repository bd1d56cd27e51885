"""Filter expressions: `value.amount > 100 and key in ("a", "b")`.

The notation is Python's, cut down to comparisons, logic, arithmetic, names, fields and a few functions; an
expression is looked at once and never run as code. A field that is not there is None, and a comparison that
makes no sense is false: messages need not be alike.

| Name | Is |
|---|---|
| `value` | the decoded value; fields as `value.a.b` or `value["a"]` |
| `key`, `properties`, `id`, `topic`, `producer`, `index`, `sequence_id`, `size` | as in `-o json` |
| `publish_time`, `event_time`, `broker_time` | Unix milliseconds |
| `age` | seconds since it was published |
| `matches(text, "regex")`, `contains(text, "part")`, `lower(text)`, `len(x)`, `time("2025-01-31")` | |
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from magnetar.base.errors import MagnetarError
from magnetar.cli.times import Moment

_Read = Callable[[Mapping[str, Any]], Any]

NAMES: Final = frozenset(
    {
        "value", "key", "properties", "id", "topic", "producer", "index", "sequence_id", "size",
        "publish_time", "event_time", "broker_time", "age",
    }
)  # fmt: skip

_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda one, other: _number(one) % _number(other),
}
"""No products and powers: a short expression must not make a value without bounds."""


def _number(value: Any) -> Any:
    """Itself. Raises TypeError for a text, which `%` would format."""
    if not isinstance(value, int | float):
        raise TypeError
    return value


class ExpressionError(MagnetarError):
    """The text is no filter expression."""


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _contains(whole: Any, part: Any) -> bool:
    return part in (_text(whole) if isinstance(whole, bytes | int | float) else whole)


def _time(text: str) -> Any:
    try:
        return Moment().convert(text, None, None)
    except click.UsageError as error:
        raise ExpressionError(error.message) from error


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "matches": lambda text, pattern: re.search(pattern, _text(text)) is not None,
    "contains": _contains,
    "lower": lambda text: _text(text).lower(),
    "len": len,
    "time": _time,
}


def compiled(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """A test of a message's names (see the module). Raises ExpressionError."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ExpressionError(f"{text!r} is no expression: {error}") from error
    read = _reader(tree.body)

    def holds(names: Mapping[str, Any]) -> bool:
        try:
            return bool(read(names))
        except (TypeError, ValueError, ArithmeticError, re.error, RecursionError):
            return False

    return holds


def _reader(node: ast.expr) -> _Read:
    """What gives the value of a part of the expression."""
    match node:
        case ast.Constant(value=value):
            return lambda _: value
        case ast.Name(id=name):
            if name not in NAMES:
                raise ExpressionError(f"there is no {name!r}; there are {', '.join(sorted(NAMES))}")
            return lambda names: names.get(name)
        case ast.Attribute(value=inner, attr=field):
            return _field(_reader(inner), field)
        case ast.Subscript(value=inner, slice=ast.Constant(value=field)):
            return _field(_reader(inner), field)
        case ast.Subscript(
            value=inner, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as place))
        ):
            return _field(_reader(inner), -place)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            readers = [_reader(part) for part in parts]
            return lambda names: [read(names) for read in readers]
        case ast.BoolOp() | ast.UnaryOp() | ast.BinOp() | ast.Compare():
            return _operation(node)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            function = _FUNCTIONS[name]
            given = [_reader(each) for each in arguments]
            return lambda names: function(*(read(names) for read in given))
    raise ExpressionError(
        f"{ast.unparse(node)!r} has no place in a filter; there are {', '.join(_FUNCTIONS)}(...)"
    )


def _field(read: _Read, field: Any) -> _Read:
    def get(names: Mapping[str, Any]) -> Any:
        owner = read(names)
        if isinstance(owner, Mapping):
            return owner.get(field)
        if (
            isinstance(owner, list | str | bytes)
            and isinstance(field, int)
            and -len(owner) <= field < len(owner)
        ):
            return owner[field]
        return None

    return get


def _operation(node: ast.expr) -> _Read:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            readers = [_reader(part) for part in parts]
            return lambda names: all(_holds(read, names) for read in readers)
        case ast.BoolOp(values=parts):
            readers = [_reader(part) for part in parts]
            return lambda names: any(_holds(read, names) for read in readers)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            read = _reader(inner)
            return lambda names: not _holds(read, names)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            read = _reader(inner)
            return lambda names: -read(names)
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _ARITHMETIC:
            apply, one, other = _ARITHMETIC[type(kind)], _reader(left), _reader(right)
            return lambda names: apply(one(names), other(names))
        case ast.Compare(left=left, ops=kinds, comparators=others):
            sides = [_reader(each) for each in (left, *others)]
            tests = [_COMPARE[type(kind)] for kind in kinds]
            return lambda names: _compared(tests, [read(names) for read in sides])
    raise ExpressionError(f"{ast.unparse(node)!r} has no place in a filter")


def _holds(read: _Read, names: Mapping[str, Any]) -> bool:
    """False for what makes no sense for this message, so that `or` can go on."""
    try:
        return bool(read(names))
    except (TypeError, ValueError, ArithmeticError):
        return False


def _compared(tests: list[Callable[[Any, Any], Any]], values: list[Any]) -> bool:
    return all(test(one, other) for test, one, other in zip(tests, values, values[1:], strict=False))
