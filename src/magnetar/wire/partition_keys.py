"""The partition key of an entry, found without decoding its metadata.

The layout of most keyed messages, up to the fields that do not affect the key:

    0a size producer_name | 10 sequence_id | 18 publish_time | 32 size partition_key
    | (40 compression | 48 uncompressed_size | 58 num_messages_in_batch | 60 event_time)*

Tags in hexadecimal, values are varints. Metadata of another layout is left to protobuf: with properties, with
a key in base64 or an ordering key, or from clients that write fields in another order.

Source: Pulsar binary protocol, MessageMetadata.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from magnetar.wire.frames import MAGIC_CHECKSUM

_HEAD: Final = struct.Struct(">H4xIBB")
"""Magic, metadata size, first tag, bytes of the producer's name."""
_NAME_AT: Final = _HEAD.size

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_UP_TO_KEY: Final = re.compile(rb"\x10" + _VARINT + rb"\x18" + _VARINT + rb"\x32[\x00-\x7f]")
_BEHIND_KEY: Final = re.compile(rb"(?:[\x40\x48\x58\x60]" + _VARINT + rb")*")


def plain_partition_key(entry: bytes) -> bytes | None:
    """The key that chooses the entry's consumer; None when the metadata must be decoded to find it."""
    if len(entry) < _NAME_AT:
        return None
    magic, metadata_bytes, tag, name_bytes = _HEAD.unpack_from(entry)
    if magic != MAGIC_CHECKSUM or tag != 0x0A or name_bytes > 0x7F:
        return None
    stop = _NAME_AT - 2 + metadata_bytes
    found = _UP_TO_KEY.match(entry, _NAME_AT + name_bytes, stop)
    if found is None or stop > len(entry):
        return None
    key_at = found.end()
    key_stop = key_at + entry[key_at - 1]
    if key_stop != stop and (key_stop > stop or _BEHIND_KEY.fullmatch(entry, key_stop, stop) is None):
        return None
    return entry[key_at:key_stop]
