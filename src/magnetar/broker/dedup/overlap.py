"""A batch of which a part is a duplicate: the new part is kept, the known part is dropped.

Clients resend a batch unchanged. An application that resumes on its own may pack the same messages
differently: 3 to 7 in one batch, after 3 to 5 were stored. If it were refused as a duplicate, 6 and 7 would
be acknowledged and lost; if it were stored whole, 3 to 5 would be there twice.
"""

from __future__ import annotations

import logging

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import (
    EntryError,
    build_batch,
    build_entry,
    is_batch,
    parse_metadata,
    split_batch,
    split_entry,
)

_log = logging.getLogger("magnetar.broker.topic")


def new_part(
    entries: list[bytes], counts: list[int] | None, known: int, topic: object
) -> tuple[list[bytes], list[int] | None]:
    """The new part of a batch that is known up to a number; the whole batch when it cannot be opened."""
    found = without_known(entries[0], known)
    if found is None or not found[1]:
        _log.warning("%s: a batch that is partly known, up to %d, is stored as a whole", topic, known)
        return entries, counts
    return [found[0]], [found[1]]


def without_known(entry: bytes, known: int) -> tuple[bytes, int] | None:
    """The entry without its messages up to number `known`, and how many are left, perhaps none.

    None when the batch cannot be opened here: it is compressed or encrypted, its messages carry no
    numbers, or it is not a batch.
    """
    try:
        parts = split_entry(entry)
        metadata = parse_metadata(parts.metadata)
        if not is_batch(metadata) or metadata.encryption_keys or metadata.compression != pb.NONE:
            return None
        messages = [
            (single, bytes(payload))
            for single, payload in split_batch(parts.payload, metadata.num_messages_in_batch)
        ]
    except EntryError:
        return None
    if not all(single.HasField("sequence_id") for single, _ in messages):
        return None
    new = [(single, payload) for single, payload in messages if single.sequence_id > known]
    if not new:
        return entry, 0
    metadata.sequence_id = new[0][0].sequence_id
    metadata.num_messages_in_batch = len(new)
    plain = build_batch(new)
    if metadata.HasField("uncompressed_size"):
        metadata.uncompressed_size = len(plain)
    return build_entry(metadata, plain), len(new)
