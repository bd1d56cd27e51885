"""Corrects one flipped bit in bytes whose CRC32C is known. Pure.

Each bit changes the sum in a different way, so the wrong sum identifies the flipped bit. Other damage looks
like one flipped bit with a probability of 2^-32 for each bit of the data.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from magnetar.wire.checksum import crc32c

_POLYNOMIAL: Final = 0x82F63B78


@cache
def _table() -> tuple[int, ...]:
    """CRC32C table: the register after one byte, for each value of the byte."""
    rows = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


def put_right(data: bytes, wanted: int) -> bytes | None:
    """`data` with one bit flipped, so that its CRC32C is `wanted`; None when there is no such bit."""
    table = _table()
    # What is left in a register behind a byte that differs in one bit.
    bits = {table[1 << bit]: 1 << bit for bit in range(8)}
    # The byte that goes into a register as a zero is told by its highest byte.
    undone = {row >> 24: (index, row) for index, row in enumerate(table)}
    register = crc32c(data) ^ wanted
    for at in range(len(data) - 1, -1, -1):
        if register in bits:
            changed = bytearray(data)
            changed[at] ^= bits[register]
            assert crc32c(bytes(changed)) == wanted
            return bytes(changed)
        index, row = undone[register >> 24]
        register = (register ^ row) << 8 & 0xFFFFFFFF | index
    return None
