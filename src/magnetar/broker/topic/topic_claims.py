"""Checks a producer's claims about a batch or a chunk against its bytes. Pure.

The number of messages decides permits, acknowledgements and indexes, and all readers rely on it. So it is
checked on arrival; readers of entries stored before must still tolerate anything.

An entry of one message makes no claim that is relied on. A batch costs one search in its metadata for the
number that the command names, and the metadata of a chunk, which is a large entry, is decoded.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.broker.errors import NotAllowedError, RefusedError
from magnetar.broker.topic.entry import metadata_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SEQUENCE_IDS_END, SendRun
from magnetar.wire.frames import MAGIC_CHECKSUM, varint
from magnetar.wire.payload import EntryError, entry_layout

_MESSAGE_BYTES_MIN: Final = 6
"""Least bytes of a message in a batch: the size of its metadata, 4, and `payload_size`, which it must
have."""
_METADATA_AT: Final = 10
_HEAD: Final = struct.Struct(">H4xI").unpack_from
"""Magic and metadata size of an entry with a checksum."""


def doubtful(run: SendRun) -> bool:
    """Whether `refusals` may find a fault in a run of batches or chunks; False is certain enough: the entries
    are large enough for as many messages as their commands name, and the metadata seems to name as many, too
    (`num_messages_in_batch` has the tag 0x58)."""
    if run.chunked or run.out_of_range is not None or run.counts is None:
        return True
    seen, claim, bytes_min = 1, b"", 0
    try:
        for count, entry in zip(run.counts, run.entries, strict=True):
            if count == 1:
                continue
            if count != seen:
                seen, claim, bytes_min = count, b"\x58" + varint(count), count * _MESSAGE_BYTES_MIN
            magic, metadata_bytes = _HEAD(entry)
            if (
                entry.find(claim, _METADATA_AT, _METADATA_AT + metadata_bytes) < 0
                or magic != MAGIC_CHECKSUM
                or bytes_min > len(entry)
            ):
                return True
    except struct.error:
        return True  # shorter than a head: left to the full decoder
    return False


def refusals(run: SendRun) -> dict[int, RefusedError]:
    """Rows with false claims, and the reasons of their refusal."""
    found: dict[int, RefusedError] = {}
    for row, entry in enumerate(run.entries):
        count = 1 if run.counts is None else run.counts[row]
        if run.chunked or count != 1:
            text = _contradiction(entry, count)
            if text:
                found[row] = NotAllowedError(f"the message contradicts itself: {text}")
    for row in run.out_of_range or ():
        number = max(run.sequence_ids[row], run.highest_id(row))
        found[row] = NotAllowedError(
            f"sequence id {number} is out of range: it and those of its batch must be below"
            f" 2^63 = {SEQUENCE_IDS_END}"
        )
    return found


def _contradiction(entry: bytes, count: int) -> str:
    """The fault of a batch or a chunk; empty when there is none."""
    try:
        metadata = metadata_of(entry)
        payload_bytes = len(entry) - entry_layout(entry)[2]
    except EntryError as error:
        return str(error)
    named = metadata.num_messages_in_batch
    if named != count:
        return f"SEND names {count} messages, its metadata {named}"
    plain_bytes = payload_bytes
    if metadata.compression != pb.NONE:
        plain_bytes = metadata.uncompressed_size
    if count > 1 and count * _MESSAGE_BYTES_MIN > plain_bytes:
        return f"{count} messages do not fit into {plain_bytes} bytes"
    return _piece_contradiction(metadata, payload_bytes)


def _piece_contradiction(metadata: pb.MessageMetadata, payload_bytes: int) -> str:
    if not (metadata.HasField("chunk_id") or metadata.HasField("num_chunks_from_msg")):
        return ""
    piece, pieces, total = metadata.chunk_id, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size
    if pieces < 1 or not 0 <= piece < pieces:
        return f"it is piece {piece} of {pieces}, counted from 0"
    # Encrypted pieces are a little larger than what they are pieces of.
    if total < 0 or (payload_bytes > total and not metadata.encryption_keys):
        return f"a piece of {payload_bytes} bytes belongs to a message of {total} bytes"
    return ""
