"""Compressed values of logs and cursors in the metadata store, as Pulsar writes them when told to (pure).

    0x4778 u16 | size i32 | CompressedValueInfo of that size | compressed value

Values are written without compression, which Pulsar reads with any setting. Source: Pulsar's MetaStoreImpl
(`managedLedgerInfoCompressionType`, `managedCursorInfoCompressionType`).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.errors import InvalidLogDataError

_HEAD: Final = struct.Struct(">Hi")
_MAGIC: Final = 0x4778
_PLAIN_BYTES_MAX: Final = 64 << 20
"""A value that claims more is damaged: ZooKeeper takes values of 1 MiB."""
_NONE, _LZ4, _ZLIB, _ZSTD, _SNAPPY = range(5)


def plain(data: bytes, where: str) -> bytes:
    """The value without compression; `where` names it in InvalidLogDataError."""
    if len(data) < _HEAD.size or data[:2] != b"\x47\x78":
        return data
    _, size = _HEAD.unpack_from(data)
    start = _HEAD.size + size
    if not 0 <= size <= len(data) - _HEAD.size:
        raise InvalidLogDataError(where, "the head of a compressed value is damaged")
    try:
        info = pb.CompressedValueInfo.FromString(data[_HEAD.size : start])
        if not 0 <= info.uncompressedSize <= _PLAIN_BYTES_MAX:
            raise ValueError(f"it claims to have {info.uncompressedSize} bytes")
        found = _decompressed(info.compressionType, data[start:], info.uncompressedSize)
    except (DecodeError, ValueError, OSError, zlib.error) as error:
        raise InvalidLogDataError(where, f"a compressed value cannot be read: {error}") from error
    if len(found) != info.uncompressedSize:
        raise InvalidLogDataError(where, "a compressed value has another size than it says")
    return found


def _decompressed(kind: int, data: bytes, size: int) -> bytes:
    if kind == _NONE:
        return data
    if kind == _ZLIB:
        return zlib.decompressobj().decompress(data, size + 1)
    try:
        import cramjam
    except ImportError as error:
        raise ValueError(
            "its compression needs the package cramjam: pip install '.[spark]' in a clone"
        ) from error
    buffer = bytearray(size)
    try:
        if kind == _LZ4:
            done = cramjam.lz4.decompress_block_into(data, buffer, output_len=size)
        elif kind == _ZSTD:
            done = cramjam.zstd.decompress_into(data, buffer)
        elif kind == _SNAPPY:
            # The value names its own size, and the library would allocate as much.
            if cramjam.snappy.decompress_raw_len(data) != size:
                return b""
            done = cramjam.snappy.decompress_raw_into(data, buffer)
        else:
            raise ValueError(f"its compression {kind} is unknown")
    except (cramjam.DecompressionError, MemoryError) as error:
        raise ValueError(str(error)) from error
    return bytes(buffer[:done])
