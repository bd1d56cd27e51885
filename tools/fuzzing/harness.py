"""What a harness is: one parser, what it may raise, and where mutation begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from google.protobuf.message import Message


class BrokenRuleError(AssertionError):
    """A parser gave what its harness forbids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """One parser."""

    name: str
    run: Callable[[bytes], object]
    """Parses; what it returns is compared between the twins. Raises BrokenRuleError, `refusals`."""
    refusals: tuple[type[Exception], ...]
    """The declared errors: everything else that is raised is a finding."""
    seeds: Callable[[], Sequence[bytes]]
    """Sound inputs, and some that found something once."""
    words: tuple[bytes, ...] = ()
    """Pieces that chance would not make."""
    input_bytes_max: int = 4_096
    seconds_max: float = 1.0
    """For one input; a hundred times what the slowest takes on an idle machine, as machines are busy."""
    memory_bytes_max: int = 96 << 20
    """By which the process may grow over all inputs: what is opened at most, and the allocator's share."""


def require(holds: bool, text: str) -> None:
    """Raises BrokenRuleError unless the rule holds."""
    if not holds:
        raise BrokenRuleError(text)


def described(value: object) -> object:
    """The value without addresses and identities, so that two processes can compare what they got."""
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    if isinstance(value, Enum):
        # A member refers to its kind, and that to all members.
        return value.name
    if isinstance(value, Message):
        return type(value).__name__, value.SerializePartialToString(deterministic=True)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple | list):
        return [described(item) for item in value]
    if isinstance(value, dict):
        return [(described(key), described(item)) for key, item in value.items()]
    kind = type(value)
    return kind.__name__, [
        (name, described(getattr(value, name, None)))
        for name in _known.get(kind) or _attributes(kind)
        if not callable(getattr(value, name, None))
    ]


_known: dict[type, list[str]] = {}


def _attributes(kind: type) -> list[str]:
    """Of values of a class, be it compiled or not: a compiled one has no __slots__."""
    # In the pure twin only annotations name the attributes of a class without slots.
    names = {*dir(kind), *getattr(kind, "__annotations__", ())}
    found = _known[kind] = sorted(name for name in names if not name.startswith("_"))
    return found
