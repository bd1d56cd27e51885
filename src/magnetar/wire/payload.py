"""The layout of an entry, and of a batch in its payload.

    Entry   [0x0e01 u16 | CRC32C u32] | metadataSize u32 | MessageMetadata | payload
    Batch   (size u32 | SingleMessageMetadata | payload of `payload_size` bytes)*

The checksum covers all bytes after itself. A batch is compressed and encrypted as a whole; this module
handles it in plain form. Integers are big-endian.

Source: Pulsar binary protocol, payload commands and batch messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.base.errors import ProtocolError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import CHECKSUM_HEAD, MAGIC_BROKER_METADATA, MAGIC_CHECKSUM

_U32: Final = struct.Struct(">I")
_BROKER_METADATA_HEAD: Final = struct.Struct(">HI")


class EntryError(ProtocolError):
    """The bytes are not an entry, metadata or a batch."""


class EntryParts(NamedTuple):
    """The parts of an entry."""

    checksum: int | None
    """CRC32C from the producer, not verified; None when the entry has none."""
    metadata: bytes
    """The bytes of a MessageMetadata."""
    payload: memoryview
    """The bytes after the metadata, not copied."""


def entry_layout(entry: bytes) -> tuple[int | None, int, int]:
    """Checksum (None without one), offset of the metadata, offset of the payload.

    Raises EntryError when the sizes do not fit. The checksum is not verified.
    """
    size = len(entry)
    checksum: int | None = None
    metadata_at = 4
    if size >= 10 and entry[0] == 0x0E and entry[1] == MAGIC_CHECKSUM & 0xFF:
        _, checksum, metadata_bytes = CHECKSUM_HEAD.unpack_from(entry)
        metadata_at = 10
    elif size >= 4:
        metadata_bytes = _U32.unpack_from(entry)[0]
    else:
        raise EntryError(f"entry of {size} bytes")
    payload_at = metadata_at + metadata_bytes
    if payload_at > size:
        raise EntryError(f"metadata of {metadata_bytes} bytes in an entry of {size}")
    return checksum, metadata_at, payload_at


def split_entry(entry: bytes) -> EntryParts:
    """Checksum, metadata and payload of an entry. Raises EntryError."""
    checksum, metadata_at, payload_at = entry_layout(entry)
    return EntryParts(checksum, entry[metadata_at:payload_at], memoryview(entry)[payload_at:])


def checksum_matches(entry: bytes) -> bool:
    """Whether the entry's checksum is right, or missing. Raises EntryError below four bytes."""
    if len(entry) < 4:
        raise EntryError(f"entry of {len(entry)} bytes")
    if len(entry) < 10 or entry[0] != 0x0E or entry[1] != MAGIC_CHECKSUM & 0xFF:
        return True
    return crc32c(entry[6:]) == int.from_bytes(entry[2:6], "big")


def split_broker_metadata(data: bytes) -> tuple[pb.BrokerEntryMetadata | None, int]:
    """The 0x0e02 block before an entry, if any, and the offset of the entry. Raises EntryError."""
    if len(data) < 2 or data[0] != 0x0E or data[1] != MAGIC_BROKER_METADATA & 0xFF:
        return None, 0
    if len(data) < 6:
        raise EntryError("broker metadata is cut off")
    stop = 6 + _BROKER_METADATA_HEAD.unpack_from(data)[1]
    if stop > len(data):
        raise EntryError("broker metadata is cut off")
    try:
        return pb.BrokerEntryMetadata.FromString(data[6:stop]), stop
    except DecodeError as error:
        raise EntryError("broker metadata cannot be decoded") from error


def parse_metadata(metadata: bytes) -> pb.MessageMetadata:
    """Decodes a MessageMetadata with its required fields. Raises EntryError."""
    try:
        parsed = pb.MessageMetadata.FromString(metadata)
    except DecodeError as error:
        raise EntryError(f"metadata of {len(metadata)} bytes cannot be decoded") from error
    if not parsed.IsInitialized():
        raise EntryError("metadata without required fields")
    return parsed


def build_entry(metadata: pb.MessageMetadata, payload: bytes | memoryview) -> bytes:
    """Encodes an entry with its checksum. Raises google.protobuf.message.EncodeError without required
    fields."""
    head = metadata.SerializeToString()
    rest = b"".join((_U32.pack(len(head)), head, payload))
    return b"".join((_CHECKSUM.pack(MAGIC_CHECKSUM, crc32c(rest)), rest))


_CHECKSUM: Final = struct.Struct(">HI")


def is_batch(metadata: pb.MessageMetadata) -> bool:
    """Whether the payload is a batch. The presence of the field decides, because a batch of one is legal."""
    return metadata.HasField("num_messages_in_batch")


def split_batch(
    payload: bytes | memoryview, count: int, metadata_bytes_max: int = 1 << 32
) -> Iterator[tuple[pb.SingleMessageMetadata, memoryview]]:
    """The first `count` messages of a batch's plain payload; payloads are views.

    Raises EntryError, also when `count`, a claim of the producer, is below 1: a batch must not pass for an
    empty one and be skipped; and when a message has more than `metadata_bytes_max` bytes of metadata.
    """
    if count < 1:
        raise EntryError(f"a batch of {count} messages")
    view = memoryview(payload)
    size = len(view)
    at = 0
    for index in range(count):
        if size - at < 4:
            raise EntryError(f"batch ends before message {index} of {count}")
        metadata_bytes: int = _U32.unpack_from(view, at)[0]
        at += 4
        if metadata_bytes > size - at:
            raise EntryError(f"batch ends in the metadata of message {index} of {count}")
        if metadata_bytes > metadata_bytes_max:
            raise EntryError(f"message {index} of a batch has {metadata_bytes} bytes of metadata")
        try:
            # bytes: the decoder does not accept all kinds of views.
            single = pb.SingleMessageMetadata.FromString(bytes(view[at : at + metadata_bytes]))
        except DecodeError as error:
            raise EntryError(f"metadata of message {index} cannot be decoded") from error
        at += metadata_bytes
        payload_bytes = single.payload_size
        # upb itself does not check required fields; without them the metadata could not be encoded again.
        if not single.IsInitialized() or not 0 <= payload_bytes <= size - at:
            raise EntryError(f"payload of message {index} has {payload_bytes} of {size - at} bytes")
        yield single, view[at : at + payload_bytes]
        at += payload_bytes


def build_batch(messages: Iterable[tuple[pb.SingleMessageMetadata, bytes | memoryview]]) -> bytes:
    """The plain payload of a batch. Sets `payload_size` in each metadata."""
    return b"".join(batch_parts(messages))


def batch_parts(
    messages: Iterable[tuple[pb.SingleMessageMetadata, bytes | memoryview]],
) -> list[bytes | memoryview]:
    """The same in its parts, in their order."""
    parts: list[bytes | memoryview] = []
    for single, payload in messages:
        single.payload_size = len(payload)
        metadata = single.SerializeToString()
        parts += (_U32.pack(len(metadata)), metadata, payload)
    return parts
