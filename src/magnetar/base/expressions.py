"""Filter expressions such as `size > 100 and key in ("a", "b")`, which are interpreted and never run as code.

The notation is a part of Python's: comparisons, logic, arithmetic, names, fields and functions. The users of
this module define the names and functions: `cli.messages.expressions` for messages that are read,
`broker.filters.expression` for entries that are sent. A missing field is None, and a comparison of unfit
types is false, because messages may have different fields.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar.base.errors import MagnetarError

_Read = Callable[[Mapping[str, object]], object]
Step = Callable[[], object]
"""Called between parts of an evaluation, which it may delay or end."""

_SEARCHED_AT_ONCE: Final = 1 << 18
"""Characters that a search compares between two steps, at most: a tenth of a millisecond or two."""


def no_step() -> None:
    """For an evaluation that is not interrupted."""


def is_in(one: object, many: object, step: Step = no_step) -> bool:
    """Whether `many` contains `one`. Raises TypeError for a value that contains nothing.

    A long text is searched in pieces, with a step after each: for texts that are made to be slow, Python
    compares every character of the one with every character of the other.
    """
    if isinstance(one, str) and isinstance(many, str):
        places = len(many) - len(one) + 1
        if places * len(one) > _SEARCHED_AT_ONCE:
            at_once = max(1, _SEARCHED_AT_ONCE // len(one))
            for start in range(0, places, at_once):
                if many.find(one, start, min(start + at_once, places) + len(one) - 1) >= 0:
                    return True
                step()
            return False
    if not isinstance(many, Container):
        raise TypeError
    return one in many


_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], object]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[object, object], object]]] = {
    ast.Add: lambda one, other: _number(one) + _number(other),
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda one, other: _number(one) % _number(other),
}
"""The allowed operators. Products, powers and sums of texts are missing: a short expression must not make an
unbounded value."""


def _number(value: object) -> float:
    """Returns the value. Raises TypeError for a text, which `%` would format and `+` would lengthen."""
    if not isinstance(value, int | float):
        raise TypeError
    return value


class ExpressionError(MagnetarError):
    """The text is not an expression of this notation."""


def as_text(value: object) -> str:
    """The value as a text; bytes as UTF-8 text, with other bytes escaped. Raises TypeError for a list or a
    mapping: texts within it are escaped, so that a list in a list in a list has a text of twice the length
    each time."""
    if isinstance(value, list | Mapping):
        raise TypeError
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def contains(whole: object, part: object, step: Step = no_step) -> bool:
    """The function `contains` of all expressions."""
    return is_in(part, as_text(whole) if isinstance(whole, bytes | int | float) else whole, step)


FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "contains": contains,
    "lower": lambda text: as_text(text).lower(),
    "len": len,
}
"""Functions of all expressions. Their cost depends only on the size of their arguments."""


@dataclass(frozen=True, slots=True)
class Notation:
    """The names and functions of expressions."""

    names: Collection[str]
    functions: Mapping[str, Callable[..., object]]
    step: Step = no_step
    """Before each call and comparison, and within long searches; its errors end the evaluation."""

    def compiled(self, text: str, parts_max: int | None = None) -> Callable[[Mapping[str, object]], bool]:
        """A function that tests the values of the names; a name without a value is None.

        Raises ExpressionError, also when the expression has more than `parts_max` names, values, functions
        and operators.
        """
        try:
            tree = _parsed(text)
            parts = _parts(tree)
            if parts_max is not None and parts > parts_max:
                raise ExpressionError(f"the expression has {parts} parts, {parts_max} are allowed")
            read = _reader(tree, self)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"{text!r} is not an expression: {error}") from error

        def holds(names: Mapping[str, object]) -> bool:
            try:
                return bool(read(names))
            except (TypeError, ValueError, ArithmeticError, re.error, RecursionError):
                return False

        return holds


def parts_of(text: str) -> int:
    """The number of names, values, functions and operators of a compiled expression."""
    return _parts(_parsed(text))


def walks_of(text: str) -> int:
    """How many of its parts may go through a whole text, once or for each of its characters."""
    return sum(isinstance(node, ast.Call | ast.In | ast.NotIn) for node in ast.walk(_parsed(text)))


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        # Python would write warnings about a client's text to the log of the process.
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval").body


def _parts(tree: ast.expr) -> int:
    return sum(not isinstance(node, ast.expr_context) for node in ast.walk(tree))


def _reader(node: ast.expr, notation: Notation) -> _Read:
    """A function that computes the value of a part of the expression."""
    match node:
        case ast.Constant(value=value):
            return lambda _: value
        case ast.Name(id=name):
            if name not in notation.names:
                raise ExpressionError(f"there is no {name!r}; there are {', '.join(sorted(notation.names))}")
            return lambda names: names.get(name)
        case ast.Attribute(value=inner, attr=field):
            return _field(_reader(inner, notation), field)
        case ast.Subscript(value=inner, slice=ast.Constant(value=field)):
            return _field(_reader(inner, notation), field)
        case ast.Subscript(
            value=inner, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as place))
        ):
            return _field(_reader(inner, notation), -place)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            readers = [_reader(part, notation) for part in parts]
            return lambda names: [read(names) for read in readers]
        case ast.BoolOp() | ast.UnaryOp() | ast.BinOp() | ast.Compare():
            return _operation(node, notation)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in notation.functions:
            return _call(
                notation.functions[name], [_reader(each, notation) for each in arguments], notation.step
            )
    raise ExpressionError(
        f"{ast.unparse(node)!r} has no place in a filter; there are {', '.join(notation.functions)}(...)"
    )


def _call(function: Callable[..., object], given: list[_Read], step: Step) -> _Read:
    def call(names: Mapping[str, object]) -> object:
        values = [read(names) for read in given]
        # Behind what may have taken its own time.
        step()
        return function(*values)

    return call


def _field(read: _Read, field: object) -> _Read:
    def get(names: Mapping[str, object]) -> object:
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


def _operation(node: ast.expr, notation: Notation) -> _Read:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            readers = [_reader(part, notation) for part in parts]
            return lambda names: all(_holds(read, names) for read in readers)
        case ast.BoolOp(values=parts):
            readers = [_reader(part, notation) for part in parts]
            return lambda names: any(_holds(read, names) for read in readers)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            read = _reader(inner, notation)
            return lambda names: not _holds(read, names)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            read = _reader(inner, notation)
            return lambda names: -_number(read(names))
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _ARITHMETIC:
            apply, one, other = _ARITHMETIC[type(kind)], _reader(left, notation), _reader(right, notation)
            return lambda names: apply(one(names), other(names))
        case ast.Compare(left=left, ops=kinds, comparators=others):
            sides = [_reader(each, notation) for each in (left, *others)]
            tests = [_test(kind, notation.step) for kind in kinds]
            return lambda names: _compared(tests, [read(names) for read in sides])
    raise ExpressionError(f"{ast.unparse(node)!r} has no place in a filter")


def _test(kind: ast.cmpop, step: Step) -> Callable[[object, object], object]:
    if isinstance(kind, ast.In):
        return lambda one, many: is_in(one, many, step)
    if isinstance(kind, ast.NotIn):
        return lambda one, many: not is_in(one, many, step)
    compare = _COMPARE[type(kind)]
    if step is no_step:
        return compare

    def stepped(one: object, other: object) -> object:
        step()
        return compare(one, other)

    return stepped


def _holds(read: _Read, names: Mapping[str, object]) -> bool:
    """The truth of a part; False when its types are unfit for this message, so that `or` can continue."""
    try:
        return bool(read(names))
    except (TypeError, ValueError, ArithmeticError):
        return False


def _compared(tests: list[Callable[[object, object], object]], values: list[object]) -> bool:
    return all(test(one, other) for test, one, other in zip(tests, values, values[1:], strict=False))
