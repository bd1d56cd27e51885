"""The fields of a stored entry that the broker reads, where it must decode it at all."""

from __future__ import annotations

from typing import Final

from magnetar.broker.dispatch.hashing import key_hash, sticky_key
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.partition_keys import plain_partition_key
from magnetar.wire.payload import EntryError, entry_layout, parse_metadata

_NO_KEY: Final = b"NONE_KEY"
"""Replaces the key of damaged entries, as in Pulsar."""


def metadata_of(entry: bytes) -> pb.MessageMetadata:
    """Metadata of an entry. Raises EntryError when it cannot be parsed."""
    _, metadata_at, payload_at = entry_layout(entry)
    return parse_metadata(entry[metadata_at:payload_at])


def entry_hash(entry: bytes) -> int:
    """Sticky hash of an entry (Key_Shared). All entries that cannot be decoded have one hash: their consumer
    will report the damage."""
    key = plain_partition_key(entry)
    if key is None:
        try:
            key = sticky_key(metadata_of(entry))
        except EntryError:
            key = _NO_KEY
    return key_hash(key)


def pieces_to_come(entries: list[bytes]) -> list[bool]:
    """For each entry, whether more pieces of the same chunked message follow it."""
    found = []
    for entry in entries:
        metadata = metadata_of(entry)
        found.append(metadata.HasField("chunk_id") and metadata.chunk_id < metadata.num_chunks_from_msg - 1)
    return found
