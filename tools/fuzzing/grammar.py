"""Sound things from bytes of chance (pure): each byte is a choice, so what is mutated stays nearly sound.

Bytes of chance alone do not get behind the first look of a parser of JSON, or of blocks with sums.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeVar

_T = TypeVar("_T")

_NUMBERS: Final = (0, 1, -1, 2, 7, 127, 128, 255, 256, 65_535, (1 << 31) - 1, 1 << 31, -(1 << 31))
_WIDE: Final = ((1 << 63) - 1, 1 << 63, -(1 << 63), (1 << 64) - 1)
_TEXTS: Final = ("", "a", "R", "R2", "b", "n.R", ".a", "é", "\ud7ff", "\0", "a b", "key", "x" * 70)
_PRIMITIVES: Final = (
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "R",
    "R2",
    "E",
    "unknown",
)
_LOGICAL: Final = ("decimal", "date", "uuid", "timestamp-millis", "duration", 7)
_NAMES: Final = (
    "key",
    "producer",
    "size",
    "messages",
    "event_time",
    "properties.colour",
    'properties["a"]',
    "sequence_id",
)
_BETWEEN: Final = (
    " and ",
    " or ",
    " == ",
    " != ",
    " < ",
    " >= ",
    " in ",
    " not in ",
    " + ",
    " - ",
    " // ",
    " % ",
    " is ",
    " * ",
)
_CALLS: Final = (
    "number({})",
    "len({})",
    "lower({})",
    "starts({}, 'a')",
    "contains({}, 'e')",
    "not ({})",
    "-({})",
    "({})",
)
_LITERALS: Final = ("None", "True", "0", "-1", "1.5", "'red'", "''", "('a', 'b')", "(1,)", "9" * 30)


class Choices:
    """What the bytes choose; when they are at an end, always the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, most: int) -> int:
        """A number from 0 on."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1] % most

    def one(self, things: Sequence[_T]) -> _T:
        """One of them."""
        return things[self.below(len(things))]

    def number(self) -> int:
        """Near the ends of ranges, mostly."""
        kind = self.below(8)
        if kind < 6:
            return self.one(_NUMBERS)
        return self.one(_WIDE) if kind == 6 else self.below(256) << 8 | self.below(256)

    def text(self) -> str:
        """A short one."""
        return self.one(_TEXTS)

    def some(self, most: int) -> bytes:
        """Some of the bytes themselves."""
        size = self.below(most + 1)
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def json(self, depth: int = 3) -> object:
        """A value of JSON."""
        kind = self.below(8 if depth else 6)
        if kind == 6:
            return [self.json(depth - 1) for _ in range(self.below(4))]
        if kind == 7:
            return {self.text(): self.json(depth - 1) for _ in range(self.below(4))}
        return (None, True, False, self.number(), 1.5, self.text())[kind]

    def avro(self, depth: int = 5) -> object:
        """A definition of Avro that is sound but for a few of its parts."""
        kind = self.below(9) if depth else 0
        if kind < 3:
            return self.one(_PRIMITIVES)
        if kind == 3:
            return {
                "type": self.one(_PRIMITIVES),
                "logicalType": self.one(_LOGICAL),
                "precision": self.number(),
                "scale": self.number(),
            }
        if kind == 4:
            return [self.avro(depth - 1) for _ in range(self.below(4))]
        if kind == 5:
            return {"type": self.one(("array", "map")), self.one(("items", "values")): self.avro(depth - 1)}
        if kind == 6:
            return {
                "type": "enum",
                "name": self.one(("E", "R")),
                "symbols": [self.text() for _ in range(self.below(4))],
                "default": self.text(),
            }
        if kind == 7:
            return {
                "type": "fixed",
                "name": self.text(),
                "size": self.number(),
                "logicalType": self.one(_LOGICAL),
            }
        fields: list[object] = [
            {
                "name": self.text(),
                "type": self.avro(depth - 1),
                **({"default": self.json(2)} if self.below(2) else {}),
                **({"aliases": self.json(2)} if not self.below(4) else {}),
            }
            for _ in range(self.below(5))
        ]
        record: dict[str, object] = {
            "type": "record",
            "name": self.one(("R", "R2", "n.R", "")),
            "fields": fields,
        }
        if not self.below(6):
            record[self.one(("namespace", "aliases", "fields", "type"))] = self.json(2)
        return record

    def expression(self, depth: int = 5) -> str:
        """An expression of a filter."""
        kind = self.below(4) if depth else self.below(2)
        if kind < 2:
            return self.one((_NAMES, _LITERALS)[kind])
        if kind == 2:
            return self.one(_CALLS).format(self.expression(depth - 1))
        return self.expression(depth - 1) + self.one(_BETWEEN) + self.expression(depth - 1)

    def damaged(self, data: bytes) -> bytes:
        """The same with up to three bytes changed, or cut off; in half of all cases as it is."""
        kind = self.below(4)
        if kind < 2 or not data:
            return data
        place = (self.below(256) << 8 | self.below(256)) % len(data)
        if kind == 3:
            return data[:place]
        changed = bytearray(data)
        for step in range(1 + self.below(3)):
            changed[(place + step * self.below(64)) % len(data)] ^= 1 + self.below(255)
        return bytes(changed)


def document(value: object) -> bytes:
    """As JSON, also what is none in it: NaN, a lone surrogate."""
    return json.dumps(value).encode("utf-8", "surrogatepass")
