"""Encodes Avro's numbers and sized bytes.

Source: Apache Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1 << 14)
def long_bytes(value: int) -> bytes:
    """A signed 64-bit number: zigzag, then seven bits per byte, low bits first."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def sized(raw: bytes) -> bytes:
    """Bytes, or a string in UTF-8, after their length."""
    return long_bytes(len(raw)) + raw
