"""Converts JSON values by the rules of Pulsar's reader, which is Jackson with its defaults (pure).

    wanted           JSON                                   result
    boolean          true, "true", "True", "TRUE"           true; so for false
                     a whole number                         true unless it is 0
    whole number     a fraction                             the part before the point
                     "12", " 12 "                           12
    any of these     null, "", "null"                       a Java primitive: false, 0; else nothing (None)
    text             a number, true, false                  its JSON text
    one of names     its number, from 0                     the name

There are two differences. A name is accepted in any case, while Jackson requires its own spelling; and an
unknown name is refused, while Pulsar takes it for null and silently drops the policy.

Error texts begin with Jackson's, because clients show them. Source: answers of Pulsar 4.2's admin API.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from magnetar.admin.calls.errors import BadRequestError

INT_BITS: Final = 32
LONG_BITS: Final = 64

_NOTHING: Final = ("", "null")
"""Texts that mean null."""
_TRUE: Final = ("true", "True", "TRUE")
_FALSE: Final = ("false", "False", "FALSE")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?")
_SHOWN_CHARS: Final = 100


def as_boolean(value: object, *, what: str = "the body") -> bool | None:
    """True or false; None for null. Raises BadRequestError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    if isinstance(value, str):
        text = value.strip()
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if text in _NOTHING:
            return None
        raise _refused(value, "boolean", what, 'only "true" or "false" recognized')
    raise _refused(value, "boolean", what)


def as_whole(value: object, *, bits: int = INT_BITS, what: str = "the body") -> int | None:
    """A whole number of `bits` bits; None for null. Raises BadRequestError."""
    kind = "int" if bits == INT_BITS else "long"
    if value is None:
        return None
    if isinstance(value, bool):
        raise _refused(value, kind, what)
    if isinstance(value, float) and abs(value) < 1 << bits:
        value = int(value)
    if isinstance(value, str):
        text = value.strip()
        if text in _NOTHING:
            return None
        if not _WHOLE.fullmatch(text):
            raise _refused(value, kind, what, f"not a valid `{kind}` value")
        value = int(text)
    if not isinstance(value, int):
        raise _refused(value, kind, what)
    most = 1 << (bits - 1)
    if not -most <= value < most:
        raise BadRequestError(
            f"Numeric value ({str(value)[:_SHOWN_CHARS]}) out of range of {kind} ({-most} - {most - 1})"
            f" in {what}"
        )
    return value


def as_decimal(value: object, *, what: str = "the body") -> float | None:
    """A number; None for null. Raises BadRequestError."""
    if value is None:
        return None
    if isinstance(value, bool):
        raise _refused(value, "double", what)
    if isinstance(value, str):
        text = value.strip()
        if text in _NOTHING:
            return None
        if not _DECIMAL.fullmatch(text):
            raise _refused(value, "double", what, "not a valid `double` value (as String to convert)")
        return float(text)
    if isinstance(value, int) and abs(value) < 1 << 1000:
        return float(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise _refused(value, "double", what)


def as_text(value: object, *, what: str = "the body") -> str | None:
    """A text; None for null. Raises BadRequestError."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)[:_SHOWN_CHARS]
    raise _refused(value, "java.lang.String", what)


def as_choice(value: object, names: Sequence[str], *, what: str = "the body") -> str | None:
    """One of `names`, which must be in Pulsar's order; None for null. Raises BadRequestError."""
    known = {name.lower(): name for name in names}
    if isinstance(value, str):
        text = value.strip()
        if text in _NOTHING:
            return None
        if text.lower() in known:
            return known[text.lower()]
        if _WHOLE.fullmatch(text):
            value = int(text)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    raise _refused(value, "enum", what, f"not one of the values accepted: [{', '.join(names)}]")


def as_object(value: object, *, what: str = "the body") -> dict[str, object] | None:
    """An object; None for null. Raises BadRequestError."""
    if value is None or isinstance(value, dict):
        return value
    raise _refused(value, "object", what)


def as_texts(value: object, *, what: str = "the body") -> list[str] | None:
    """A list of texts; None for null. Raises BadRequestError."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise _refused(value, "java.util.ArrayList<java.lang.String>", what)
    found = [as_text(each, what=what) for each in value]
    if None in found:
        raise BadRequestError(f"null cannot stand in the list of {what}")
    return [each for each in found if each is not None]


_TOKENS: Final = {list: "Array", dict: "Object", bool: "Boolean", int: "Integer", float: "Floating-point"}


def _refused(value: object, kind: str, what: str, detail: str = "") -> BadRequestError:
    if isinstance(value, str):
        shown = f'String "{value[:_SHOWN_CHARS]}"'
    else:
        shown = f"{_TOKENS.get(type(value), 'Null')} value"
    tail = f": {detail}" if detail else ""
    return BadRequestError(f"Cannot deserialize value of type `{kind}` from {shown}{tail} (in {what})")
