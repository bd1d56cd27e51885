"""Entries on their way into a topic: complete but for what the commit decides.

A task packs rows into entries before it is known whether it will be the one that counts. What is missing is
the producer's name, the sequence number and the publish time, which stand first in an entry's metadata:

    Staged entry    partition i32 | messages u32 | tailSize u32 | payloadSize u32 | tail | payload

    partition       of the target; -1 when it is not partitioned
    tail            the other fields of the MessageMetadata

A block is a series of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import MAGIC_CHECKSUM, varint

_HEAD: Final = struct.Struct(">iIII")
_CHECKSUM: Final = struct.Struct(">HI")
_U32: Final = struct.Struct(">I")

HEAD_BYTES: Final = _HEAD.size


class StagedEntry(NamedTuple):
    """One entry without a producer."""

    partition: int
    messages: int
    """>= 1."""
    tail: bytes
    payload: bytes

    def encode(self) -> bytes:
        """The bytes, see the module's text."""
        head = _HEAD.pack(self.partition, self.messages, len(self.tail), len(self.payload))
        return b"".join((head, self.tail, self.payload))

    def entry(self, producer_name: bytes, sequence_id: int, publish_time_ms: int) -> bytes:
        """The finished entry; `sequence_id` is that of its first message."""
        parts = [
            b"\x0a",
            varint(len(producer_name)),
            producer_name,
            b"\x10",
            varint(sequence_id),
            b"\x18",
            varint(publish_time_ms),
            self.tail,
        ]
        if self.messages > 1:
            # highest_sequence_id (24): brokers that load a topic learn from it what is a duplicate.
            parts += (b"\xc0\x01", varint(sequence_id + self.messages - 1))
        metadata = b"".join(parts)
        rest = b"".join((_U32.pack(len(metadata)), metadata, self.payload))
        return b"".join((_CHECKSUM.pack(MAGIC_CHECKSUM, crc32c(rest)), rest))


def decode_block(block: bytes) -> Iterator[StagedEntry]:
    """The entries of a block. Raises ValueError when it is cut off."""
    at = 0
    while at < len(block):
        if len(block) - at < HEAD_BYTES:
            raise ValueError("a staged block is cut off")
        partition, messages, tail_bytes, payload_bytes = _HEAD.unpack_from(block, at)
        tail_at = at + HEAD_BYTES
        payload_at = tail_at + tail_bytes
        at = payload_at + payload_bytes
        if at > len(block):
            raise ValueError("a staged block is cut off")
        yield StagedEntry(partition, messages, block[tail_at:payload_at], block[payload_at:at])
