"""Entries of input topics to payloads of messages (pure).

The metadata of single messages stay bytes until a function asks for them. In the usual batch they differ in a
sequence id at most, and only the size of the payload is read.

    Batch   (size u32 | SingleMessageMetadata | payload)*
    SingleMessageMetadata   18 payload_size [40 sequence_id], tags in hexadecimal, values varints
"""

from __future__ import annotations

import re
import struct
from typing import Final

from magnetar.base.errors import ClientError
from magnetar.base.names import TopicName
from magnetar.client.compression import decompress_within
from magnetar.functions.errors import UnreadableInputError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, entry_layout, is_batch, parse_metadata, split_batch

_U32: Final = struct.Struct(">I")
_PAYLOAD_SIZE: Final = 0x18
PLAIN_BYTES_MAX: Final = 256 << 20
"""Most bytes that a compressed entry may have in plain form."""

_HAS_PROPERTIES: Final = re.compile(rb"\x0a").match

Said = pb.MessageMetadata | pb.SingleMessageMetadata


class TakenEntry:
    """One entry of an input topic, and what must happen before it is acknowledged."""

    __slots__ = (
        "concluded",
        "entry_id",
        "index",
        "ledger_id",
        "metadata",
        "open_acks",
        "outcome",
        "payloads",
        "plain",
        "said",
        "source",
        "time_ms",
        "waits",
    )

    def __init__(
        self,
        source: int,
        place: tuple[int, int, int, int],
        metadata: pb.MessageMetadata,
        payloads: list[bytes],
    ) -> None:
        """`source`: number of the input it came from. `place`: ledger, entry, index of its last message in
        the topic and time at the broker in Unix milliseconds, both -1 when not known."""
        self.source = source
        self.ledger_id, self.entry_id, self.index, self.time_ms = place
        self.metadata = metadata
        self.payloads = payloads
        self.said: list[bytes] | None = None
        """Metadata of each message of a batch."""
        self.plain = not metadata.properties
        """Whether no message has properties."""
        self.waits = 1
        """Receipts, repeated calls and stored states that are still to come; 1 for the call itself."""
        self.concluded = 0
        """Messages whose first call was concluded, where calls overlap."""
        self.outcome: object = None
        """What its calls have led to, with effectively once."""
        self.open_acks: set[int] | None = None
        """Messages that the function itself has still to acknowledge."""

    def said_of(self, row: int) -> Said:
        """The metadata of one message."""
        if self.said is None:
            return self.metadata
        return pb.SingleMessageMetadata.FromString(self.said[row])

    @property
    def position(self) -> str:
        """Ledger and entry, for texts."""
        return f"{self.ledger_id}:{self.entry_id}"


def opened(source: int, entry: bytes, place: tuple[int, int, int, int], topic: TopicName) -> TakenEntry:
    """Opens an entry. Raises UnreadableInputError."""
    try:
        _, metadata_at, payload_at = entry_layout(entry)
        metadata = parse_metadata(entry[metadata_at:payload_at])
        if metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
            kind = "encrypted" if metadata.encryption_keys else "a part of a large message"
            raise UnreadableInputError(f"entry {place[0]}:{place[1]} of {topic} is {kind}")
        payload = entry[payload_at:]
        if metadata.compression:
            payload = decompress_within(
                metadata.compression, payload, metadata.uncompressed_size, PLAIN_BYTES_MAX
            )
        if not is_batch(metadata):
            return TakenEntry(source, place, metadata, [payload])
        said, payloads = split(payload, metadata.num_messages_in_batch)
    except (EntryError, ClientError) as error:
        raise UnreadableInputError(
            f"entry {place[0]}:{place[1]} of {topic} cannot be read: {error}"
        ) from error
    taken = TakenEntry(source, place, metadata, payloads)
    taken.said = said
    # Properties are the first field; the others that are read fast have no field before the size.
    taken.plain = not any(map(_HAS_PROPERTIES, said))
    return taken


def split(payload: bytes, count: int) -> tuple[list[bytes], list[bytes]]:
    """Metadata and payloads of the `count` messages of a batch. Raises EntryError."""
    said: list[bytes] = []
    payloads: list[bytes] = []
    at = 0
    size = len(payload)
    head = b"\xff\xff\xff\xff"
    """Bytes before the previous payload; no size begins as the first value does."""
    length = 0
    while at < size and len(payloads) < count:
        if payload.startswith(head, at):
            start = at + len(head)
        else:
            start = at + 4 + _U32.unpack_from(payload, at)[0] if size - at >= 6 else size + 1
            if start > size:
                return _split_slowly(payload, count)
            length = payload[at + 5]
            if payload[at + 4] != _PAYLOAD_SIZE or start < at + 6:
                return _split_slowly(payload, count)
            if length > 0x7F:
                high = payload[at + 6]
                if high > 0x7F:
                    return _split_slowly(payload, count)
                length = length & 0x7F | high << 7
            head = payload[at:start]
        end = start + length
        said.append(head[4:])
        payloads.append(payload[start:end])
        at = end
    if len(payloads) != count or at != size:
        return _split_slowly(payload, count)
    return said, payloads


def _split_slowly(payload: bytes, count: int) -> tuple[list[bytes], list[bytes]]:
    """The same for metadata of any shape, by protobuf."""
    found = list(split_batch(payload, count))
    return [single.SerializeToString() for single, _ in found], [bytes(view) for _, view in found]
