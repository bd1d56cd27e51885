"""Results of functions to entries (pure).

    Entry   0e01 u16 | CRC32C u32 | metadataSize u32 | MessageMetadata | payload
    MessageMetadata   0a name | 10 sequence_id | 18 publish_time | 58 num_messages_in_batch

Results without key and properties form one batch. One with a key is an entry of its own, so that each key's
messages keep their consumer with `Key_Shared`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import varint

_U32: Final = struct.Struct(">I")
_CHECKSUM: Final = struct.Struct(">HI")
_MAGIC: Final = 0x0E01
BATCH_MESSAGES_MAX: Final = 4096
"""Most messages of an entry that is made here."""
_HEADS_MAX: Final = 4096


class OutputMessage(NamedTuple):
    """A message to be published with more than a payload."""

    payload: bytes
    key: str | None = None
    properties: Mapping[str, str] = {}
    event_time_ms: int = 0
    deliver_at_ms: int = 0
    """Unix milliseconds before which it is not delivered; 0: at once."""

    @property
    def is_alone(self) -> bool:
        """Whether it must be an entry of its own."""
        return self.key is not None or self.deliver_at_ms > 0


Output = bytes | OutputMessage


class Packed(NamedTuple):
    """One entry without its head."""

    payload: bytes
    messages: int
    """Number of messages."""
    batched: bool
    alone: OutputMessage | None
    """The only message, when it is not a batch."""


_heads: dict[int, bytes] = {}


def _head(size: int) -> bytes:
    """What stands before a payload of `size` bytes in a batch."""
    found = _heads.get(size)
    if found is None:
        said = b"\x18" + varint(size)
        found = _U32.pack(len(said)) + said
        if len(_heads) < _HEADS_MAX:
            _heads[size] = found
    return found


def packed(outputs: Sequence[Output], bytes_max: int) -> list[Packed]:
    """Entries of at most `bytes_max` bytes of payload, in the order of the messages."""
    entries: list[Packed] = []
    parts: list[bytes] = []
    size = count = 0
    known = _heads
    for output in outputs:
        if type(output) is bytes:
            payload = output
            head = known.get(len(payload)) or _head(len(payload))
        else:
            assert isinstance(output, OutputMessage)
            if output.is_alone:
                if count:
                    entries.append(Packed(b"".join(parts), count, True, None))
                    parts, size, count = [], 0, 0
                entries.append(Packed(output.payload, 1, False, output))
                continue
            payload = output.payload
            said = _single(output).SerializeToString()
            head = _U32.pack(len(said)) + said
        added = len(head) + len(payload)
        if count and (size + added > bytes_max or count >= BATCH_MESSAGES_MAX):
            entries.append(Packed(b"".join(parts), count, True, None))
            parts, size, count = [], 0, 0
        parts += (head, payload)
        size += added
        count += 1
    if count:
        entries.append(Packed(b"".join(parts), count, True, None))
    return entries


def _single(output: OutputMessage) -> pb.SingleMessageMetadata:
    said = pb.SingleMessageMetadata(payload_size=len(output.payload))
    for key, value in output.properties.items():
        said.properties.add(key=key, value=value)
    if output.event_time_ms:
        said.event_time = output.event_time_ms
    return said


def entry_of(piece: Packed, producer_name: bytes, sequence_id: int, now_ms: int) -> bytes:
    """The entry as it is sent. `producer_name`: UTF-8, below 128 bytes or any other length."""
    if piece.alone is None:
        metadata = b"".join(
            (
                b"\x0a",
                varint(len(producer_name)),
                producer_name,
                b"\x10",
                varint(sequence_id),
                b"\x18",
                varint(now_ms),
                b"\x58",
                varint(piece.messages),
            )
        )
    else:
        metadata = _alone(piece.alone, producer_name, sequence_id, now_ms)
    rest = b"".join((_U32.pack(len(metadata)), metadata, piece.payload))
    return _CHECKSUM.pack(_MAGIC, crc32c(rest)) + rest


def _alone(output: OutputMessage, producer_name: bytes, sequence_id: int, now_ms: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name=producer_name.decode(), sequence_id=sequence_id, publish_time=now_ms
    )
    for key, value in output.properties.items():
        metadata.properties.add(key=key, value=value)
    if output.key is not None:
        metadata.partition_key = output.key
    if output.event_time_ms:
        metadata.event_time = output.event_time_ms
    if output.deliver_at_ms:
        metadata.deliver_at_time = output.deliver_at_ms
    return metadata.SerializeToString()
