"""Just enough of protobuf's wire format for a load generator.

The encoder and the decoder are the bench's own and share no code with the broker, so that a fault in the
broker's codecs cannot hide behind the same fault here. The unit tests hold them against a real protobuf
library.
"""

from __future__ import annotations

from collections.abc import Iterator

Fields = dict[int, list[int | bytes]]
"""Field number -> the values in the order they came; length-delimited values as bytes, all others as int."""


def varint(value: int) -> bytes:
    """The shortest varint of `value` (0 <= value < 2**64)."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"not an unsigned 64-bit number: {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes | str) -> bytes:
    """One field: an int as varint (negative: 64-bit two's complement), text and bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(value, index after it); raises IndexError when the data ends early, ValueError after ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("varint longer than ten bytes")


def iterate_fields(data: bytes | memoryview) -> Iterator[tuple[int, int | bytes, int]]:
    """(field number, value, index of the value's first byte) of each field of one message.

    Raises ValueError for a wire type that the protocol does not use or a length beyond the end.
    """
    at = 0
    end = len(data)
    while at < end:
        key, at = read_varint(data, at)
        start = at
        match key & 7:
            case 0:
                value, at = read_varint(data, at)
                yield key >> 3, value, start
            case 2:
                length, start = read_varint(data, at)
                at = start + length
                if at > end:
                    raise ValueError(f"field {key >> 3} ends {at - end} bytes beyond its message")
                yield key >> 3, bytes(data[start:at]), start
            case 1:
                at += 8
                yield key >> 3, int.from_bytes(data[start:at], "little"), start
            case wire_type:
                raise ValueError(f"wire type {wire_type} of field {key >> 3} is not used by the protocol")


def decode(data: bytes | memoryview) -> Fields:
    """All fields of one message."""
    fields: Fields = {}
    for number, value, _ in iterate_fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def number(fields: Fields, key: int, default: int = 0) -> int:
    """The last value of an integer field."""
    values = fields.get(key)
    if not values:
        return default
    value = values[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {key} is not a number")
    return value


def data(fields: Fields, key: int, default: bytes = b"") -> bytes:
    """The last value of a length-delimited field."""
    values = fields.get(key)
    if not values:
        return default
    value = values[-1]
    if isinstance(value, int):
        raise ValueError(f"field {key} is a number")
    return value


def text(fields: Fields, key: int) -> str:
    """The last value of a string field, empty when absent."""
    return data(fields, key).decode()
