"""What the broker reads from a stored entry, where it must look inside at all."""

from __future__ import annotations

from magnetar.broker.dispatch.hashing import key_hash, sticky_key
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import entry_layout, parse_metadata


def metadata_of(entry: bytes) -> pb.MessageMetadata:
    """Metadata of an entry. Raises EntryError when it cannot be parsed."""
    _, metadata_at, payload_at = entry_layout(entry)
    return parse_metadata(entry[metadata_at:payload_at])


def entry_hash(entry: bytes) -> int:
    """Sticky hash of an entry (Key_Shared)."""
    return key_hash(sticky_key(metadata_of(entry)))


def pieces_to_come(entries: list[bytes]) -> list[bool]:
    """For each entry, whether more pieces of the same chunked message follow it."""
    found = []
    for entry in entries:
        metadata = metadata_of(entry)
        found.append(metadata.HasField("chunk_id") and metadata.chunk_id < metadata.num_chunks_from_msg - 1)
    return found
