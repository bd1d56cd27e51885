"""Reads JSON values into typed ones (pure).

A shape names the fields of an object with what reads each. Null counts as not given, and names that a shape
lacks are passed over, as Pulsar's reader does: a newer tool may send more. Numbers and truth values may come
as texts, as some clients send them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from magnetar.functions.refusals import InvalidConfigError

Reader = Callable[[object, str], object]
"""Makes the typed value from a JSON value that is not null; its second argument names the place for errors.
Raises InvalidConfigError."""

Shape = Mapping[str, Reader]

ENTRIES_MAX: Final = 10_000
"""Most entries of one list or object of names."""
_SHOWN_CHARS: Final = 100
_INT: Final = 1 << 31
_LONG: Final = 1 << 63


def _wrong(value: object, place: str, wanted: str) -> InvalidConfigError:
    shown = f'"{value[:_SHOWN_CHARS]}"' if isinstance(value, str) else type(value).__name__
    return InvalidConfigError(f"{place} must be {wanted}, not {shown}")


def text(value: object, place: str) -> str:
    """A text; numbers and truth values by their JSON text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)[:_SHOWN_CHARS]
    if not isinstance(value, str):
        raise _wrong(value, place, "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidConfigError(f"{place} is not Unicode text") from None
    if "\0" in value:
        raise InvalidConfigError(f"{place} holds a zero character")
    return value


def flag(value: object, place: str) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _wrong(value, place, "true or false")


def _whole(value: object, place: str, most: int) -> int:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) <= 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < most:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(value, place, "a whole number")
    if not -most <= value < most:
        raise InvalidConfigError(f"{place} is out of range: {-most} to {most - 1}")
    return value


def whole(value: object, place: str) -> int:
    """A whole number of 32 bits."""
    return _whole(value, place, _INT)


def long(value: object, place: str) -> int:
    """A whole number of 64 bits."""
    return _whole(value, place, _LONG)


def decimal(value: object, place: str) -> float:
    """A finite number."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _wrong(value, place, "a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1 << 63:
        raise _wrong(value, place, "a number")
    if not math.isfinite(value):
        raise _wrong(value, place, "a finite number")
    return float(value)


def choice(names: Sequence[str]) -> Reader:
    """Reads one of `names` in any case; an empty text counts as not given."""
    known = {name.lower(): name for name in names}

    def read(value: object, place: str) -> str:
        if value == "":
            return ""
        if isinstance(value, str) and value.strip().lower() in known:
            return known[value.strip().lower()]
        raise _wrong(value, place, f"one of {', '.join(names)}")

    return read


def texts(value: object, place: str) -> list[str]:
    """A list of texts."""
    if not isinstance(value, list) or len(value) > ENTRIES_MAX:
        raise _wrong(value, place, f"a list of at most {ENTRIES_MAX} texts")
    return [text(each, f"{place}[{number}]") for number, each in enumerate(value)]


def _object(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict) or len(value) > ENTRIES_MAX:
        raise _wrong(value, place, f"an object of at most {ENTRIES_MAX} entries")
    return value


def document(value: object, place: str) -> dict[str, object]:
    """An object of any JSON values."""
    return dict(_object(value, place))


def map_of(reader: Reader) -> Reader:
    """Reads an object whose values have one shape; null values count as not given."""

    def read(value: object, place: str) -> dict[str, object]:
        return {
            text(name, place): reader(each, f"{place}.{name[:_SHOWN_CHARS]}")
            for name, each in _object(value, place).items()
            if each is not None
        }

    return read


def object_of(shape: Shape) -> Reader:
    """Reads an object of a shape."""
    return lambda value, place: read_object(value, place, shape)


def read_object(value: object, place: str, shape: Shape) -> dict[str, object]:
    """The given fields of an object, typed. Raises InvalidConfigError."""
    document = _object(value, place)
    prefix = f"{place}." if place else ""
    return {
        name: reader(document[name], f"{prefix}{name}")
        for name, reader in shape.items()
        if document.get(name) is not None
    }
