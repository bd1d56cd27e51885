"""Avro's numbers and sized bytes, as they are written.

Source: Apache Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1 << 14)
def long_bytes(value: int) -> bytes:
    """`value`, of 64 bits with sign: zigzag, then seven bits a byte, the low ones first."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def sized(raw: bytes) -> bytes:
    """Bytes or the UTF-8 of a string, behind their number."""
    return long_bytes(len(raw)) + raw
