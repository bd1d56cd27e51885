"""Payload compression in the formats of Pulsar's clients. The library is loaded on first use.

| Type | Format |
|---|---|
| LZ4 | raw block, without a size before it |
| ZLIB | zlib stream |
| ZSTD | one frame |
| SNAPPY | raw block |

Source: Pulsar binary protocol, CompressionType; the codecs of its clients.
"""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Final

from magnetar.base.large_bytes import LARGE_BYTES, LargeBuffer, as_bytes
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

_ZLIB_INPUT_BYTES: Final = 64 << 10
_ZLIB_OUTPUT_BYTES: Final = 256 << 10
"""A step of so many bytes takes a millisecond at most."""


class UnknownCompressionError(PayloadError):
    """The compression is unknown, or its library is missing."""


def compression_type(name: str) -> pb.CompressionType:
    """The protocol's number for none, lz4, zlib, zstd or snappy. Raises UnknownCompressionError."""
    try:
        return _TYPES[name.lower()]
    except KeyError:
        raise UnknownCompressionError(f"no compression {name!r}; known are {', '.join(_TYPES)}") from None


def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise UnknownCompressionError(
            "compressed payloads need the package cramjam: pip install '.[spark]' in a clone"
        ) from error
    return cramjam


def decompress(kind: int, payload: bytes | memoryview, size: int, topic: TopicName) -> bytes:
    """The plain payload of `size` bytes. `kind`: a CompressionType. Raises PayloadError."""
    try:
        return decompress_within(kind, bytes(payload), size)
    except UnknownCompressionError:
        raise
    except PayloadError as error:
        raise PayloadError(f"a message of {topic}: {error}") from error


def decompress_within(kind: int, payload: bytes, size: int, bytes_max: int | None = None) -> bytes:
    """The plain payload of exactly `size` bytes, which the producer claims; never takes more memory than
    twice that.

    `bytes_max`: the largest size that is decompressed; None: no bound. Shared processes must set it. Raises
    PayloadError, also when `size` is larger.
    """
    plain = plain_within(kind, payload, size, bytes_max)
    return plain if isinstance(plain, bytes) else as_bytes(plain)


def plain_within(kind: int, payload: bytes, size: int, bytes_max: int | None = None) -> bytes | memoryview:
    """The same without a copy: a large payload is a view of a LargeBuffer, and keeps no other client of the
    process waiting."""
    if kind == pb.CompressionType.NONE:
        return payload
    if bytes_max is not None and size > bytes_max:
        raise PayloadError(f"the payload claims to have {size} bytes, {bytes_max} are opened here")
    if kind == pb.CompressionType.ZLIB:
        plain = _inflated_large(payload, size) if size >= LARGE_BYTES else _inflated(payload, size)
    else:
        plain = _decompressed_by_cramjam(kind, payload, size)
    if plain is None:
        raise PayloadError(f"the payload does not have the {size} bytes that its metadata says")
    return plain


def _inflated(payload: bytes, size: int) -> bytes | None:
    """The decompressed bytes; None when they are not `size`, or the stream does not end with the payload."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(payload, size + 1)
    except zlib.error as error:
        raise PayloadError(f"the payload cannot be decompressed: {error}") from error
    return plain if len(plain) == size and stream.eof and not stream.unused_data else None


def _inflated_large(payload: bytes, size: int) -> memoryview | None:
    """The same, a piece at a time."""
    stream = zlib.decompressobj()
    plain, at = LargeBuffer(size), 0
    try:
        for taken in range(0, len(payload), _ZLIB_INPUT_BYTES):
            rest = payload[taken : taken + _ZLIB_INPUT_BYTES]
            if stream.eof:
                return None
            while True:
                piece = stream.decompress(rest, min(_ZLIB_OUTPUT_BYTES, size + 1 - at))
                rest = stream.unconsumed_tail
                if len(piece) > size - at:
                    return None
                plain[at : at + len(piece)] = piece
                at += len(piece)
                if not rest and len(piece) < _ZLIB_OUTPUT_BYTES:
                    break
    except zlib.error as error:
        raise PayloadError(f"the payload cannot be decompressed: {error}") from error
    return memoryview(plain) if at == size and stream.eof and not stream.unused_data else None


def _decompressed_by_cramjam(kind: int, payload: bytes, size: int) -> bytes | memoryview | None:
    """The decompressed bytes; None when they are not `size`."""
    cramjam = _cramjam()
    try:
        plain: bytearray | LargeBuffer = LargeBuffer(size) if size >= LARGE_BYTES else bytearray(size)
        if kind == pb.CompressionType.LZ4:
            done = cramjam.lz4.decompress_block_into(payload, plain, output_len=size)
        elif kind == pb.CompressionType.ZSTD:
            done = cramjam.zstd.decompress_into(payload, plain)
        elif kind == pb.CompressionType.SNAPPY:
            # The payload names its own size, and the library would allocate as much.
            if cramjam.snappy.decompress_raw_len(payload) != size:
                return None
            done = cramjam.snappy.decompress_raw_into(payload, plain)
        else:
            raise UnknownCompressionError(f"a message has the unknown compression {kind}")
    except (cramjam.DecompressionError, ValueError, OSError, MemoryError) as error:
        raise PayloadError(f"the payload cannot be decompressed: {error}") from error
    if done != size:
        return None
    return memoryview(plain) if isinstance(plain, LargeBuffer) else bytes(plain)


def compress(kind: int, payload: bytes | memoryview) -> bytes:
    """`payload` compressed with the CompressionType `kind`."""
    if kind == pb.CompressionType.NONE:
        return payload if isinstance(payload, bytes) else as_bytes(payload)
    if kind == pb.CompressionType.ZLIB:
        return zlib.compress(payload)
    if kind == pb.CompressionType.LZ4:
        return bytes(_cramjam().lz4.compress_block(payload, store_size=False))
    if kind == pb.CompressionType.ZSTD:
        return bytes(_cramjam().zstd.compress(payload))
    if kind == pb.CompressionType.SNAPPY:
        return bytes(_cramjam().snappy.compress_raw(payload))
    raise UnknownCompressionError(f"unknown compression {kind}")
