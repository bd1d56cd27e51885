"""Payload compression with a bound: what claims to have n bytes must have n bytes and gets no more memory.

The formats are those of `magnetar.client.compression`.
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam

from magnetar.wire import pulsar_pb2 as pb

PLAIN_BYTES_MAX: Final = 64 << 20
"""Payloads that claim more are kept as they are: the worker's memory is bounded."""

_ZSTD_LEVEL: Final = 1
_ZLIB_LEVEL: Final = 1
"""Consumers cannot tell the level, and entries are compressed again each time they are read."""

_LZ4: Final = int(pb.CompressionType.LZ4)
_ZLIB: Final = int(pb.CompressionType.ZLIB)
_ZSTD: Final = int(pb.CompressionType.ZSTD)
_SNAPPY: Final = int(pb.CompressionType.SNAPPY)


def decompress(kind: int, payload: bytes, size: int) -> bytes | None:
    """The plain payload of exactly `size` bytes; None when `payload` is anything else, or `kind` unknown."""
    if not 0 <= size <= PLAIN_BYTES_MAX:
        return None
    room = bytearray(size)
    try:
        if kind == _LZ4:
            done = cramjam.lz4.decompress_block_into(payload, room, output_len=size)
        elif kind == _ZSTD:
            done = cramjam.zstd.decompress_into(payload, room)
        elif kind == _SNAPPY:
            if cramjam.snappy.decompress_raw_len(payload) != size:
                return None
            done = cramjam.snappy.decompress_raw_into(payload, room)
        elif kind == _ZLIB:
            stream = zlib.decompressobj()
            # One byte more than allowed, to see whether there is more.
            plain = stream.decompress(payload, size + 1)
            return plain if stream.eof and not stream.unused_data and len(plain) == size else None
        else:
            return None
    except (cramjam.DecompressionError, zlib.error, ValueError, OSError):
        return None
    return bytes(room) if done == size else None


def compress(kind: int, payload: bytes) -> bytes:
    """`payload` in the format `kind`, one that `decompress` knows."""
    if kind == _LZ4:
        return bytes(cramjam.lz4.compress_block(payload, store_size=False))
    if kind == _ZSTD:
        return bytes(cramjam.zstd.compress(payload, _ZSTD_LEVEL))
    if kind == _SNAPPY:
        return bytes(cramjam.snappy.compress_raw(payload))
    assert kind == _ZLIB
    return zlib.compress(payload, _ZLIB_LEVEL)
