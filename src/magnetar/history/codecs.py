"""Payload compression with a bound: a payload must decompress to exactly the size that it claims.

The formats are those of `magnetar.client.compression`.
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam

from magnetar.client.compression import decompress_within
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb

PLAIN_BYTES_MAX: Final = 64 << 20
"""Bytes. Payloads that claim more stay compressed, because the worker's memory is bounded."""

_ZSTD_LEVEL: Final = 1
_ZLIB_LEVEL: Final = 1
"""The fastest level: consumers do not see the level, and entries are compressed at each read."""

_NONE: Final = int(pb.CompressionType.NONE)
_LZ4: Final = int(pb.CompressionType.LZ4)
_ZLIB: Final = int(pb.CompressionType.ZLIB)
_ZSTD: Final = int(pb.CompressionType.ZSTD)
_SNAPPY: Final = int(pb.CompressionType.SNAPPY)


def decompress(kind: int, payload: bytes, size: int) -> bytes | None:
    """The plain payload of exactly `size` bytes; None when it has another size or `kind` is unknown."""
    if kind == _NONE or size > PLAIN_BYTES_MAX:
        return None
    try:
        return decompress_within(kind, payload, size)
    except PayloadError:
        return None


def compress(kind: int, payload: bytes) -> bytes:
    """`payload` compressed in the format `kind`, which `decompress` must know."""
    if kind == _LZ4:
        return bytes(cramjam.lz4.compress_block(payload, store_size=False))
    if kind == _ZSTD:
        return bytes(cramjam.zstd.compress(payload, _ZSTD_LEVEL))
    if kind == _SNAPPY:
        return bytes(cramjam.snappy.compress_raw(payload))
    assert kind == _ZLIB
    return zlib.compress(payload, _ZLIB_LEVEL)
