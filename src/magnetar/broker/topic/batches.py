"""Opens stored batches within bounds: the size in a batch is its producer's claim."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.expressions import no_step
from magnetar.client.compression import plain_within
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, split_batch

Singles = list[tuple[pb.SingleMessageMetadata, bytes | memoryview]]


def open_batch(
    metadata: pb.MessageMetadata,
    payload: memoryview,
    bytes_max: int,
    *,
    metadata_bytes_max: int = 1 << 32,
    step: Callable[[], object] = no_step,
) -> Singles | None:
    """The messages of a batch; None when it is encrypted, larger than `bytes_max` or cannot be opened, or one
    of them has more than `metadata_bytes_max` bytes of metadata. `step` is called before each message."""
    if metadata.encryption_keys:
        return None
    try:
        plain = plain_within(metadata.compression, bytes(payload), metadata.uncompressed_size, bytes_max)
        singles: Singles = []
        step()
        for each in split_batch(plain, metadata.num_messages_in_batch, metadata_bytes_max):
            singles.append(each)
            step()
        return singles
    except (EntryError, PayloadError):
        return None
