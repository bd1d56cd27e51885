"""Staged entries: complete except for the fields that the commit decides.

A task packs rows into entries before the driver knows which tasks count. The producer's name, the sequence
number and the publish time are missing; they are the first fields of an entry's metadata:

    Staged entry    partition i32 | messages u32 | tailSize u32 | payloadSize u32 | tail | payload

    partition       of the target; -1 when it is not partitioned
    messages        >= 1; 0 marks a change of the target
    tail            the other fields of the MessageMetadata; in a mark the name of the topic

A block is a series of them. A sink with one target has no marks; in that of many each block begins with one,
and what follows a mark goes to the topic that it names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import MAGIC_CHECKSUM, varint

_HEAD: Final = struct.Struct(">iIII")
_CHECKSUM: Final = struct.Struct(">HI")
_U32: Final = struct.Struct(">I")

HEAD_BYTES: Final = _HEAD.size

BLOCK_BYTES: Final = 512 << 10
"""Bytes of staged entries in one message of the staging topic, about."""


class StagedEntry(NamedTuple):
    """One entry without a producer."""

    partition: int
    messages: int
    """>= 1."""
    tail: bytes
    payload: bytes
    topic: str = ""
    """Full name of the target without its partition; empty in a sink with one target."""

    def encode(self) -> bytes:
        """The bytes in the form of the module's text. They do not hold the topic, which the mark before them
        names."""
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


def blocks(entries: Iterable[StagedEntry]) -> Iterator[bytes]:
    """Joins staged entries to blocks of about BLOCK_BYTES."""
    parts: list[bytes] = []
    size = 0
    topic = ""
    for staged in entries:
        part = staged.encode()
        if parts and size + len(part) > BLOCK_BYTES:
            yield b"".join(parts)
            parts, size, topic = [], 0, ""
        if staged.topic != topic:
            topic = staged.topic
            part = _mark(topic) + part
        parts.append(part)
        size += len(part)
    if parts:
        yield b"".join(parts)


def _mark(topic: str) -> bytes:
    name = topic.encode()
    return _HEAD.pack(-1, 0, len(name), 0) + name


def decode_block(block: bytes) -> Iterator[StagedEntry]:
    """Yields the entries of a block. Raises ValueError when the block is cut off."""
    at = 0
    topic = ""
    while at < len(block):
        if len(block) - at < HEAD_BYTES:
            raise ValueError("a staged block is cut off")
        partition, messages, tail_bytes, payload_bytes = _HEAD.unpack_from(block, at)
        tail_at = at + HEAD_BYTES
        payload_at = tail_at + tail_bytes
        at = payload_at + payload_bytes
        if at > len(block):
            raise ValueError("a staged block is cut off")
        if not messages:
            topic = block[tail_at:payload_at].decode()
            continue
        yield StagedEntry(partition, messages, block[tail_at:payload_at], block[payload_at:at], topic)
