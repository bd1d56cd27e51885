"""What a function does to its state before it is stored (pure).

A call's changes are collected by themselves, so that those of a call that fails are dropped. Changes of
several calls are merged by key: additions to a counter are added up, and a later value replaces
what was before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COUNTER_MIN: Final = -(1 << 63)
"""Counters are signed 64-bit numbers; sums wrap around as Java's do."""
VALUE_BYTES_MAX: Final = 8 << 20
"""Most bytes of a value."""
KEY_CHARS_MAX: Final = 4_096
"""Most characters of a key."""


def wrapped(number: int) -> int:
    """`number` as a signed 64-bit number."""
    return (number - COUNTER_MIN) % (1 << 64) + COUNTER_MIN


def counter_bytes(number: int) -> bytes:
    """A counter's value: 8 bytes, big-endian, with sign."""
    return number.to_bytes(8, "big", signed=True)


def counter_of(value: bytes) -> int | None:
    """The number of a value of 8 bytes; None when it is not a counter."""
    return int.from_bytes(value, "big", signed=True) if len(value) == 8 else None


@dataclass(slots=True)
class StateChange:
    """What happens to one key."""

    replaces: bool = False
    """Whether the old value is gone, and `value` takes its place."""
    value: bytes | None = None
    """The new value; None, with `replaces`: the key is deleted."""
    added: int = 0
    """What is added to the counter after that."""
    expires_ms: int = 0
    """When the value ends, Unix milliseconds; 0: never."""

    def add(self, amount: int) -> None:
        """Adds to the counter."""
        self.added += amount

    def put(self, value: bytes | None, expires_ms: int = 0) -> None:
        """Sets the value; None deletes the key."""
        self.replaces = True
        self.value = value
        self.added = 0
        self.expires_ms = expires_ms

    def then(self, later: StateChange) -> None:
        """Adds what happens later."""
        if later.replaces:
            self.put(later.value, later.expires_ms)
        self.added += later.added

    def applied_to(self, old: bytes | None) -> bytes | None:
        """The value after the change; None: the key does not exist."""
        base = self.value if self.replaces else old
        if not self.added:
            return base
        number = counter_of(base) if base is not None else 0
        # Pulsar's counters read another value as none too.
        return counter_bytes(wrapped((number or 0) + self.added))


StateChanges = dict[str, StateChange]
"""Changes by key."""


def merge(into: StateChanges, later: StateChanges) -> None:
    """Adds what happens later to `into`."""
    for key, change in later.items():
        known = into.get(key)
        if known is None:
            into[key] = StateChange(change.replaces, change.value, change.added, change.expires_ms)
        else:
            known.then(change)
