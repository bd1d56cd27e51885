"""An entry of a compacted ledger.

    idSize u32 | MessageIdData | entrySize u32 | entry

The id says where the entry lies in the topic's log. Integers are big-endian. Source: Pulsar's RawMessageImpl.
"""

from __future__ import annotations

import struct
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId, Position
from magnetar.wire import pulsar_pb2 as pb

_U32: Final = struct.Struct(">I")


def encode(position: Position, partition: int, entry: bytes) -> bytes:
    """An entry with its place in the log; `partition` is -1 for a topic that is none."""
    head = pb.MessageIdData(
        ledgerId=position.ledger_id, entryId=position.entry_id, partition=partition, batch_index=-1
    ).SerializeToString()
    return b"".join((_U32.pack(len(head)), head, _U32.pack(len(entry)), entry))


def decode(data: bytes) -> tuple[Position, bytes]:
    """Place and entry. Raises CorruptDataError."""
    try:
        entry_at = 8 + _U32.unpack_from(data)[0]
        head = pb.MessageIdData.FromString(data[4 : entry_at - 4])
        size = _U32.unpack_from(data, entry_at - 4)[0]
    except (struct.error, DecodeError) as error:
        raise CorruptDataError("entry of a compacted ledger", 0, "it has no message id") from error
    if entry_at + size != len(data):
        raise CorruptDataError(
            "entry of a compacted ledger", entry_at, f"it has {len(data) - entry_at} of {size} bytes"
        )
    return Position(LedgerId(head.ledgerId), head.entryId), data[entry_at:]
