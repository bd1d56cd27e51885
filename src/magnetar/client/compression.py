"""Payload compression, as producers and consumers agree on it. The library is loaded on first use.

| Type | Format |
|---|---|
| LZ4 | raw block, without a size in front |
| ZLIB | zlib stream |
| ZSTD | one frame |
| SNAPPY | raw block |

Source: Pulsar binary protocol, CompressionType; the codecs of its clients.
"""

from __future__ import annotations

import zlib
from typing import Any

from magnetar.base.names import TopicName
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb

_TYPES = {
    "none": pb.CompressionType.NONE,
    "lz4": pb.CompressionType.LZ4,
    "zlib": pb.CompressionType.ZLIB,
    "zstd": pb.CompressionType.ZSTD,
    "snappy": pb.CompressionType.SNAPPY,
}


class UnknownCompressionError(PayloadError):
    """A compression that is not known, or whose library is missing."""


def compression_type(name: str) -> pb.CompressionType:
    """The protocol's number for none, lz4, zlib, zstd or snappy. Raises UnknownCompressionError."""
    try:
        return _TYPES[name.lower()]
    except KeyError:
        raise UnknownCompressionError(f"no compression {name!r}; there are {', '.join(_TYPES)}") from None


def _cramjam() -> Any:
    try:
        import cramjam
    except ImportError as error:
        raise UnknownCompressionError(
            "compressed payloads need the package cramjam: pip install '.[spark]' in a clone"
        ) from error
    return cramjam


def decompress(kind: int, payload: bytes | memoryview, size: int, topic: TopicName) -> bytes:
    """The plain payload of `size` bytes, `kind` being a CompressionType. Raises PayloadError."""
    if kind == pb.CompressionType.NONE:
        return bytes(payload)
    try:
        if kind == pb.CompressionType.ZLIB:
            plain = zlib.decompress(payload, bufsize=max(size, 1))
        else:
            plain = _decompress_by_cramjam(kind, bytes(payload), size)
    except (zlib.error, ValueError) as error:
        raise PayloadError(f"a message of {topic} cannot be decompressed: {error}") from error
    if len(plain) != size:
        raise PayloadError(f"a message of {topic} has {len(plain)} bytes, its metadata says {size}")
    return plain


def decompress_within(kind: int, payload: bytes, size: int) -> bytes:
    """The plain payload, for processes that others share: it never takes more than `size` bytes, which the
    caller has compared with what it can spare. Raises PayloadError."""
    if kind == pb.CompressionType.NONE:
        return payload
    if kind == pb.CompressionType.ZLIB:
        try:
            return zlib.decompressobj().decompress(payload, max(size, 1))
        except zlib.error as error:
            raise PayloadError(f"the payload cannot be decompressed: {error}") from error
    cramjam = _cramjam()
    plain = bytearray(size)
    try:
        if kind == pb.CompressionType.LZ4:
            cramjam.lz4.decompress_block_into(payload, plain)
        elif kind == pb.CompressionType.ZSTD:
            cramjam.zstd.decompress_into(payload, plain)
        else:
            cramjam.snappy.decompress_raw_into(payload, plain)
    except cramjam.DecompressionError as error:
        raise PayloadError(f"the payload cannot be decompressed: {error}") from error
    return bytes(plain)


def _decompress_by_cramjam(kind: int, payload: bytes, size: int) -> bytes:
    cramjam = _cramjam()
    try:
        if kind == pb.CompressionType.LZ4:
            return bytes(cramjam.lz4.decompress_block(payload, output_len=size))
        if kind == pb.CompressionType.ZSTD:
            return bytes(cramjam.zstd.decompress(payload, output_len=size))
        if kind == pb.CompressionType.SNAPPY:
            return bytes(cramjam.snappy.decompress_raw(payload))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error
    raise UnknownCompressionError(f"a message has the unknown compression {kind}")


def compress(kind: int, payload: bytes) -> bytes:
    """`payload` compressed with the CompressionType `kind`."""
    if kind == pb.CompressionType.NONE:
        return payload
    if kind == pb.CompressionType.ZLIB:
        return zlib.compress(payload)
    if kind == pb.CompressionType.LZ4:
        return bytes(_cramjam().lz4.compress_block(payload, store_size=False))
    if kind == pb.CompressionType.ZSTD:
        return bytes(_cramjam().zstd.compress(payload))
    if kind == pb.CompressionType.SNAPPY:
        return bytes(_cramjam().snappy.compress_raw(payload))
    raise UnknownCompressionError(f"unknown compression {kind}")
