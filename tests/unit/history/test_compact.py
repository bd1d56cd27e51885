"""Thrift's compact protocol, read strictly."""

from __future__ import annotations

import pytest

from magnetar.history.compact import CompactReader, Flag, Listing, Octet, Octets, Struct, ThriftError, Whole

PAIR = Struct({1: Whole(5, -8, 8), 2: Octets(4, text=True)}, frozenset((1,)))
SHAPE = Struct(
    {1: Flag(), 2: Octet(), 3: Whole(6, -(1 << 40), 1 << 40), 4: Octets(20), 5: Listing(PAIR, 20), 9: PAIR},
    refused={7: "it is encrypted"},
)


def written(value: dict[int, object]) -> bytes:
    out = bytearray()
    SHAPE.write(value, out)  # type: ignore[arg-type]  # of the values that it takes
    return bytes(out)


def read(data: bytes) -> object:
    source = CompactReader(data)
    found = SHAPE.read(source)
    assert source.at == len(data)
    return found


@pytest.mark.parametrize(
    "value",
    [
        {},
        {1: 1, 2: 127, 3: -(1 << 40), 4: b"\xff", 5: [], 9: {1: -8}},
        {1: 0, 3: 300, 5: [{1: 1, 2: b"ab"}] * 14},
        {5: [{1: each % 8} for each in range(20)]},
    ],
)
def test_what_was_written_is_read(value: dict[int, object]) -> None:
    assert read(written(value)) == value


def test_no_prefix_is_a_record() -> None:
    whole = written({1: 1, 3: 70_000, 4: b"abc", 5: [{1: 1, 2: b"ab"}] * 16, 9: {1: 2}})
    for size in range(len(whole)):
        with pytest.raises(ThriftError):
            read(whole[:size])


UNKNOWN = {
    "flag": b"\xf1",
    "byte": b"\xf3\x07",
    "whole": b"\xf6\xff\x01",
    "double": b"\xf7" + bytes(8),
    "octets": b"\xf8\x03abc",
    "listing of flags": b"\xf9\x21\x01\x02",
    "long set": b"\xfa\xf5\x10" + bytes(16),
    "map": b"\xfb\x01\x58\x02\x01z",
    "empty map": b"\xfb\x00",
    "record": b"\xfc\x15\x02\x1c\x00\x00",
    "UUID": b"\xfd" + bytes(16),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_is_not_named_is_passed_over(kind: str) -> None:
    assert read(UNKNOWN[kind] + b"\x00") == {}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x75\x00\x00", "encrypted"),
        (b"\x13\x01\x00", "has the kind"),
        (b"\x21\x00", "has the kind"),
        (b"\x23\xff\x00", "between 0 and 127"),
        (b"\x36" + b"\x80" * 9 + b"\x7f\x00", "not between"),
        (b"\x36" + b"\xff" * 10 + b"\x00", "more than 64 bits"),
        (b"\x48\x15" + bytes(22), "20 are allowed"),
        (b"\x48\x0fab", "cut off"),
        (b"\x33\x01\x00", "has the kind"),
        (b"\x36\x02\x06\x06\x02\x00", "comes twice"),
        (b"\x59\xfc\xff\xff\xff\xff\x0f", "longer than what holds it"),
        (b"\x59\x15\x02\x00", "of the kind 5"),
        (b"\x59\xfc\x15" + b"\x15\x02\x00" * 21 + b"\x00", "a list of 21"),
        (b"\x9c\x00\x00", r"without the fields \[1\]"),
        (b"\x9c\x15\x02\x18\x01\xff\x00\x00", "not UTF-8"),
        (b"\x9c\x15\x12\x00\x00", "9 is not between"),
        (b"\xf4\x80", "cut off"),
        (b"\xfe\x00", "of the kind 14"),
        (b"\xfb\xff\xff\x03\x11\x00", "a map is longer"),
        (b"\xfc" + b"\x1c" * 40 + bytes(41), "nested too deeply"),
        (b"\xf9" + b"\x19" * 40 + b"\x15\x02\x00", "nested too deeply"),
    ],
)
def test_everything_else_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ThriftError, match=reason):
        read(data)
