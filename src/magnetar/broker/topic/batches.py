"""Opens stored batches within bounds: the size in a batch is its producer's claim."""

from __future__ import annotations

from magnetar.client.compression import plain_within
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, split_batch

Singles = list[tuple[pb.SingleMessageMetadata, bytes | memoryview]]


def open_batch(metadata: pb.MessageMetadata, payload: memoryview, bytes_max: int) -> Singles | None:
    """The messages of a batch; None when it is encrypted, larger than `bytes_max` or cannot be opened."""
    if metadata.encryption_keys:
        return None
    try:
        plain = plain_within(metadata.compression, bytes(payload), metadata.uncompressed_size, bytes_max)
        return list(split_batch(plain, metadata.num_messages_in_batch))
    except (EntryError, PayloadError):
        return None
