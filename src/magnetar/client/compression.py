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

from magnetar.base.large_bytes import as_bytes
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
    that.

    `bytes_max`: the largest size that is decompressed; None: no bound. Shared processes must set it. Raises
    PayloadError, also when `size` is larger.
    """
    if kind == pb.CompressionType.NONE:
        return payload
    if bytes_max is not None and size > bytes_max:
        raise PayloadError(f"the payload claims to have {size} bytes, {bytes_max} are opened here")
    if kind == pb.CompressionType.ZLIB:
        plain, whole = _inflated(payload, size)
    else:
        plain, whole = _decompressed_by_cramjam(kind, payload, size)
    if not whole or len(plain) != size:
        raise PayloadError(f"the payload does not have the {size} bytes that its metadata says")
    return plain


def _inflated(payload: bytes, size: int) -> tuple[bytes, bool]:
    """At most `size` + 1 decompressed bytes, and whether the stream ended with the payload."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(payload, size + 1)
    except zlib.error as error:
        raise PayloadError(f"the payload cannot be decompressed: {error}") from error
    return plain, stream.eof and not stream.unused_data


def _decompressed_by_cramjam(kind: int, payload: bytes, size: int) -> tuple[bytes, bool]:
    """`size` decompressed bytes, and whether they are the whole payload."""
    cramjam = _cramjam()
    try:
        plain = bytearray(size)
        if kind == pb.CompressionType.LZ4:
            done = cramjam.lz4.decompress_block_into(payload, plain, output_len=size)
        elif kind == pb.CompressionType.ZSTD:
            done = cramjam.zstd.decompress_into(payload, plain)
        elif kind == pb.CompressionType.SNAPPY:
            # The payload names its own size, and the library would allocate as much.
            if cramjam.snappy.decompress_raw_len(payload) != size:
                return b"", False
            done = cramjam.snappy.decompress_raw_into(payload, plain)
        else:
            raise UnknownCompressionError(f"a message has the unknown compression {kind}")
    except (cramjam.DecompressionError, ValueError, OSError, MemoryError) as error:
        raise PayloadError(f"the payload cannot be decompressed: {error}") from error
    return as_bytes(plain), done == size


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
