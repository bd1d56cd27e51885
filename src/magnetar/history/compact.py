"""Thrift's compact protocol, for records of known shapes: read strictly, and written again (pure).

    record   field*, 0
    field    (number - number before) u4 << 4 | kind u4; or 0 u4 | kind u4, number zigzag varint; the value
    flag     none: its kind, 1 or 2, is the value
    whole    zigzag varint
    octets   length varint, bytes
    listing  count u4 << 4 | kind u4; or 15 u4 | kind u4, count varint; then the values

What a shape does not name is passed over and left out. Everything that is read is bounded by the shape, and
takes at least a byte of the source for each value.

Source: Apache Thrift, compact protocol encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from magnetar.base.errors import MagnetarError

Value: TypeAlias = "int | bytes | list[Value] | dict[int, Value]"
Fields: TypeAlias = dict[int, Value]

_DEPTH_MAX: Final = 16
"""Records and listings within each other that are passed over."""
_TRUE, _FALSE, _OCTETS, _LISTING, _SET, _MAP, _RECORD = 1, 2, 8, 9, 10, 11, 12
_FIXED: Final = {3: 1, 7: 8, 13: 16}
"""Bytes of a value, by its kind: a byte, a double, a UUID."""


class ThriftError(MagnetarError):
    """The bytes are not a record of the shape."""


class CompactReader:
    """Bytes that are read from front to back."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        """The next byte. Raises ThriftError behind the end."""
        at = self.at
        if at >= len(self.data):
            raise ThriftError("it is cut off")
        self.at = at + 1
        return self.data[at]

    def varint(self) -> int:
        """An unsigned number of at most 64 bits. Raises ThriftError."""
        first = self.byte()
        if first < 0x80:
            return first
        number, shift = first & 0x7F, 7
        while shift < 70:
            following = self.byte()
            number |= (following & 0x7F) << shift
            if following < 0x80:
                return number
            shift += 7
        raise ThriftError("a number has more than 64 bits")

    def zigzag(self) -> int:
        """A signed number. Raises ThriftError."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def octets(self, length: int) -> bytes:
        """The next `length` >= 0 bytes. Raises ThriftError when there are fewer."""
        start = self.at
        if length > len(self.data) - start:
            raise ThriftError("it is cut off")
        self.at = start + length
        return self.data[start : self.at]

    def list_head(self) -> tuple[int, int]:
        """Count and kind of the values of a listing, each of at least a byte. Raises ThriftError."""
        head = self.byte()
        count = head >> 4
        if count == 15:
            count = self.varint()
        if count > len(self.data) - self.at:
            raise ThriftError("a list is longer than what holds it")
        return count, head & 15

    def skip(self, kind: int, depth: int = 0) -> None:
        """Passes over a value of a field. Raises ThriftError."""
        if depth > _DEPTH_MAX:
            raise ThriftError("it is nested too deeply")
        if kind in (_TRUE, _FALSE):
            return
        if kind in (4, 5, 6):
            self.varint()
        elif kind in _FIXED:
            self.octets(_FIXED[kind])
        elif kind == _OCTETS:
            self.octets(self.varint())
        elif kind in (_LISTING, _SET):
            count, inner = self.list_head()
            for _ in range(count):
                self._skip_element(inner, depth)
        elif kind == _MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            if 2 * count > len(self.data) - self.at:
                raise ThriftError("a map is longer than what holds it")
            for _ in range(count):
                self._skip_element(kinds >> 4, depth)
                self._skip_element(kinds & 15, depth)
        elif kind == _RECORD:
            number = 0
            while (head := self.byte()) != 0:
                number = self.field_number(head, number)
                self.skip(head & 15, depth + 1)
        else:
            raise ThriftError(f"a value of the kind {kind}")

    def _skip_element(self, kind: int, depth: int) -> None:
        # Flags within a listing take a byte each.
        self.skip(3 if kind in (_TRUE, _FALSE) else kind, depth + 1)

    def field_number(self, head: int, before: int) -> int:
        """The number of the field with this first byte. Raises ThriftError."""
        return before + (head >> 4) if head & 0xF0 else self.zigzag()


class Shape(Protocol):
    """What a value must be."""

    @property
    def kind(self) -> int:
        """The protocol's number of it; for a flag, that of true."""

    def read(self, source: CompactReader) -> Value:
        """The value that follows. Raises ThriftError when it is out of bounds."""

    def write(self, value: Value, out: bytearray) -> None:
        """The inverse of `read`."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    kind: int
    """4, 5 or 6: of 16, 32 or 64 bits."""
    least: int
    most: int

    def read(self, source: CompactReader) -> Value:
        """See `Shape`."""
        number = source.zigzag()
        if not self.least <= number <= self.most:
            raise ThriftError(f"{number} is not between {self.least} and {self.most}")
        return number

    def write(self, value: Value, out: bytearray) -> None:
        """See `Shape`."""
        assert isinstance(value, int)
        _varint((value << 1) ^ (value >> 63), out)


@dataclass(frozen=True, slots=True)
class Octet:
    """A number of one byte, 0 to 127."""

    kind: int = 3

    def read(self, source: CompactReader) -> Value:
        """See `Shape`."""
        number = source.byte()
        if number > 127:
            raise ThriftError(f"{number} is not between 0 and 127")
        return number

    def write(self, value: Value, out: bytearray) -> None:
        """See `Shape`."""
        assert isinstance(value, int)
        out.append(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false. Only as a field of a record, which reads it."""

    kind: int = _TRUE

    def read(self, source: CompactReader) -> Value:
        """See `Shape`."""
        raise AssertionError("a flag has no bytes")

    def write(self, value: Value, out: bytearray) -> None:
        """See `Shape`."""


@dataclass(frozen=True, slots=True)
class Octets:
    """Bytes, at most so many."""

    most: int
    text: bool = False
    """Whether they must be UTF-8."""
    kind: int = _OCTETS

    def read(self, source: CompactReader) -> Value:
        """See `Shape`."""
        length = source.varint()
        if length > self.most:
            raise ThriftError(f"{length} bytes where {self.most} are allowed")
        found = source.octets(length)
        if self.text:
            try:
                found.decode()
            except UnicodeDecodeError as error:
                raise ThriftError(f"a text is not UTF-8: {error.reason}") from error
        return found

    def write(self, value: Value, out: bytearray) -> None:
        """See `Shape`."""
        assert isinstance(value, bytes)
        _varint(len(value), out)
        out += value


@dataclass(frozen=True, slots=True)
class Listing:
    """Values of one shape, at most so many."""

    of: Shape
    most: int
    kind: int = _LISTING

    def read(self, source: CompactReader) -> Value:
        """See `Shape`."""
        count, kind = source.list_head()
        if count > self.most or (count and kind != self.of.kind):
            raise ThriftError(f"a list of {count} values of the kind {kind}")
        read = self.of.read
        return [read(source) for _ in range(count)]

    def write(self, value: Value, out: bytearray) -> None:
        """See `Shape`."""
        assert isinstance(value, list)
        if len(value) < 15:
            out.append(len(value) << 4 | self.of.kind)
        else:
            out.append(0xF0 | self.of.kind)
            _varint(len(value), out)
        for each in value:
            self.of.write(each, out)


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields by their numbers."""

    fields: Mapping[int, Shape]
    needed: frozenset[int] = frozenset()
    """Fields that must be there."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Fields that must not be there, and what they would say."""
    kind: int = _RECORD

    def read(self, source: CompactReader) -> Value:
        """See `Shape`."""
        return self.read_fields(source)

    def read_fields(self, source: CompactReader) -> Fields:
        """As `read`."""
        found: Fields = {}
        number = 0
        while (head := source.byte()) != 0:
            number = number + (head >> 4) if head & 0xF0 else source.zigzag()
            kind = head & 15
            shape = self.fields.get(number)
            if shape is None:
                if number in self.refused:
                    raise ThriftError(self.refused[number])
                source.skip(kind)
                continue
            if number in found:
                raise ThriftError(f"field {number} comes twice")
            if kind == shape.kind and kind != _TRUE:
                found[number] = shape.read(source)
            elif shape.kind == _TRUE and kind in (_TRUE, _FALSE):
                found[number] = int(kind == _TRUE)
            else:
                raise ThriftError(f"field {number} has the kind {kind}")
        if not self.needed <= found.keys():
            raise ThriftError(f"without the fields {sorted(self.needed - found.keys())}")
        return found

    def write(self, value: Value, out: bytearray) -> None:
        """See `Shape`."""
        assert isinstance(value, dict)
        before = 0
        for number in sorted(value):
            shape, each = self.fields[number], value[number]
            kind = shape.kind if shape.kind != _TRUE or each else _FALSE
            assert 0 < number - before < 16, "fields of known records are close to each other"
            out.append((number - before) << 4 | kind)
            shape.write(each, out)
            before = number
        out.append(0)


def _varint(number: int, out: bytearray) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
