"""SEND: the hand-written codec of the command, and the check of the entry behind it.

    totalSize u32 | commandSize u32 | 08 06 | 32 size | 08 producer_id | 10 sequence_id
    | [18 num_messages] | [20 txnid_least_bits 28 txnid_most_bits] | [30 highest_sequence_id] | [38 is_chunk]
    | entry

Tags in hexadecimal, values are varints. Source: Pulsar binary protocol, CommandSend.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.base.ids import ProducerId
from magnetar.wire.checksum import crc32c
from magnetar.wire.events import SendRun, TxnBits
from magnetar.wire.frames import (
    CHECKSUM_HEAD,
    FRAME_HEAD,
    MAGIC_BROKER_METADATA,
    MAGIC_CHECKSUM,
    FrameError,
    read_varint,
    varint,
)
from magnetar.wire.shapes import ENTRY_HEAD_BYTES, FrameShape

_U32: Final = struct.Struct(">I")


def decode_send(data: bytes, at: int, stop: int) -> tuple[int, int, int, int | None, bool, int] | None:
    """Decodes the CommandSend in `data[at:stop]`: producer id, sequence id, count, highest sequence id,
    whether it is a chunk, and the offset of the sequence id.

    That offset is 0 when a later field of the next command is likely to differ, apart from the count. None
    when the command has fields that are not expected here: then protobuf decides.
    """
    if stop - at < 4 or data[at] != 0x08:
        return None
    # Ids of up to 16383 by hand: a call costs more than two bytes.
    producer_id = data[at + 1]
    if producer_id < 0x80:
        at += 2
    elif data[at + 2] < 0x80:
        producer_id += (data[at + 2] << 7) - 0x80
        at += 3
    else:
        producer_id, at = read_varint(data, at + 1, stop)
    if at >= stop - 1 or data[at] != 0x10:
        return None
    low_at = at + 1
    sequence_id = data[low_at]
    if sequence_id < 0x80:
        at += 2
    else:
        sequence_id, at = read_varint(data, low_at, stop)
    if at == stop:
        return producer_id, sequence_id, 1, None, False, low_at
    count = 1
    highest: int | None = None
    chunked = False
    last = 0x10
    while at < stop:
        tag = data[at]
        value, at = read_varint(data, at + 1, stop)
        if tag <= last:
            return None
        last = tag
        if tag == 0x18 and 0 < value < 1 << 31:
            count = value
        elif tag == 0x30:
            highest = value
        elif tag == 0x38 and value < 2:
            chunked = value == 1
        else:
            return None
    if at != stop:
        return None
    alike = highest is None and not chunked
    return producer_id, sequence_id, count, highest, chunked, low_at if alike else 0


def decode_send_in_txn(
    data: bytes, at: int, stop: int
) -> tuple[ProducerId, int, int, int | None, bool, TxnBits] | None:
    """Decodes the CommandSend of a transaction in `data[at:stop]`: producer id, sequence id, count, highest
    sequence id, whether it is a chunk, and the transaction's most and least significant bits.

    None when it is of none, or has fields that are not expected here: then protobuf decides.
    """
    found: list[int | None] = [None] * 8
    last = 0
    while at < stop:
        tag = data[at]
        value, at = read_varint(data, at + 1, stop)
        if tag <= last or tag > 0x38 or tag & 7:
            return None
        last = tag
        found[tag >> 3] = value
    _, producer_id, sequence_id, count, least, most, highest, chunk = found
    if at != stop or producer_id is None or sequence_id is None or least is None or most is None:
        return None
    if (count is not None and not 0 < count < 1 << 31) or (chunk is not None and chunk > 1):
        return None
    count = 1 if count is None else count
    return ProducerId(producer_id), sequence_id, count, highest, chunk == 1, (most, least)


def check_entry(entry: bytes) -> tuple[bool, bool]:
    """Whether an entry from a client has a checksum, and whether it may be stored.

    Raises FrameError when the bytes are not an entry. Sizes that do not fit are not an error when there is a
    checksum, which then does not match: the bytes were damaged in transit, and only this message is refused.
    """
    if len(entry) >= ENTRY_HEAD_BYTES:
        magic, checksum, metadata_bytes = CHECKSUM_HEAD.unpack_from(entry)
        if magic == MAGIC_CHECKSUM:
            if crc32c(entry[6:]) != checksum:
                return True, False
            if metadata_bytes > len(entry) - ENTRY_HEAD_BYTES:
                raise FrameError(f"metadata of {metadata_bytes} bytes in an entry of {len(entry)}")
            return True, True
        if magic == MAGIC_BROKER_METADATA:
            raise FrameError("client sent broker metadata")
    if len(entry) < 4:
        raise FrameError(f"SEND with an entry of {len(entry)} bytes")
    metadata_bytes = _U32.unpack_from(entry)[0]
    if metadata_bytes > len(entry) - 4:
        raise FrameError(f"metadata of {metadata_bytes} bytes in an entry of {len(entry)}")
    return False, True


def lone_send(shape: FrameShape, frame: bytes) -> SendRun | None:
    """The run of the one SEND that `frame` is, from its first byte to its last; None when it is not of this
    shape, or is not whole.

    A client that waits for each receipt, or sends now and then, brings one SEND with each read.
    """
    size = len(frame)
    if size < shape.head_bytes:
        return None
    total, prefix, low, tail, checksum, metadata_bytes = shape.unpack_from(frame)
    low ^= shape.flag
    if prefix != shape.prefix or tail != shape.tail or low > 0x7F:
        return None
    if total + 4 != size or metadata_bytes > total + shape.metadata_max:
        return None
    entry = frame[shape.entry_at :]
    run = SendRun(ProducerId(shape.owner))
    run.sequence_ids.append(shape.high | low)
    run.entries.append(entry)
    run.size_bytes = len(entry)
    if crc32c(entry[6:]) != checksum:
        run.note_bad(0)
    if shape.count != 1:
        run.counts = [shape.count]
    return run


def encode_send(
    producer_id: ProducerId,
    sequence_id: int,
    num_messages: int,
    entry: bytes,
    highest_sequence_id: int | None = None,
    *,
    is_chunk: bool = False,
    txn: TxnBits | None = None,
) -> bytes:
    """Encodes a SEND frame. `entry` as `payload.build_entry` makes it; `num_messages` >= 1. `txn`: the most
    and the least significant bits of its transaction."""
    parts = [b"\x08", varint(producer_id), b"\x10", varint(sequence_id)]
    if num_messages != 1:
        parts += (b"\x18", varint(num_messages))
    if txn is not None:
        parts += (b"\x20", varint(txn[1]), b"\x28", varint(txn[0]))
    if highest_sequence_id is not None:
        parts += (b"\x30", varint(highest_sequence_id))
    if is_chunk:
        parts.append(b"\x38\x01")
    send = b"".join(parts)
    command_bytes = len(send) + 4
    head = FRAME_HEAD.pack(4 + command_bytes + len(entry), command_bytes)
    return b"".join((head, b"\x08\x06\x32", bytes((len(send),)), send, entry))
