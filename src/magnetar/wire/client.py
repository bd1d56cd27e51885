"""What a client reads and writes on the hot path: the mirror image of `server`. Sans-IO.

Receipts and messages are decoded by hand when they have the shape that brokers send, else by protobuf.
Receipts of one producer that follow each other are one event.

Source: Pulsar binary protocol: framing, SEND, SEND_RECEIPT, MESSAGE.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from magnetar.wire.events import CommandEvent
from magnetar.wire.frames import (
    FRAME_HEAD,
    FrameError,
    parse_command,
    position_of,
    read_varint,
    signed,
    varint,
)
from magnetar.wire.payload import EntryError, checksum_matches, entry_layout, split_broker_metadata

__all__ = [
    "ClientEvent",
    "ClientParser",
    "CommandEvent",
    "MessageEvent",
    "ReceiptRun",
    "encode_ack",
    "encode_flow",
    "encode_send",
]

_RECEIPT: Final = 7
_MESSAGE: Final = 9
_WORD: Final = (1 << 64) - 1
_U32: Final = struct.Struct(">I")


class ReceiptRun:
    """Receipts of one producer, in order; the lists are parallel."""

    __slots__ = ("entry_ids", "ledger_ids", "producer_id", "sequence_ids")

    producer_id: int
    sequence_ids: list[int]
    ledger_ids: list[int]
    """-1 for a message that was a duplicate, or when the broker named no position."""
    entry_ids: list[int]

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sequence_ids = []
        self.ledger_ids = []
        self.entry_ids = []

    def __repr__(self) -> str:
        return f"ReceiptRun(producer={self.producer_id}, receipts={len(self.sequence_ids)})"


class MessageEvent:
    """One entry for one consumer."""

    __slots__ = (
        "ack_set",
        "broker_index",
        "broker_time_ms",
        "consumer_epoch",
        "consumer_id",
        "entry",
        "intact",
        "metadata_at",
        "partition",
        "payload_at",
        "position",
        "redelivery_count",
    )

    consumer_id: int
    position: Position
    partition: int
    """-1 when the broker did not say."""
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    """Unsigned words, least significant first; a set bit is a message to take. None: all of them."""
    consumer_epoch: int | None
    broker_time_ms: int | None
    """Unix milliseconds when the broker appended the entry; None when it did not say."""
    broker_index: int | None
    """Index of the entry's last message in the log; None when the broker did not say."""
    entry: bytes
    metadata_at: int
    """`entry[metadata_at:payload_at]` is the MessageMetadata, the payload follows."""
    payload_at: int
    intact: bool
    """False when the checksum does not match, or the sizes do not fit (then both offsets are 0)."""

    def __init__(
        self,
        consumer_id: int,
        position: Position,
        partition: int,
        redelivery_count: int,
        ack_set: tuple[int, ...] | None,
        consumer_epoch: int | None,
    ) -> None:
        self.consumer_id = consumer_id
        self.position = position
        self.partition = partition
        self.redelivery_count = redelivery_count
        self.ack_set = ack_set
        self.consumer_epoch = consumer_epoch
        self.broker_time_ms = None
        self.broker_index = None
        self.entry = b""
        self.metadata_at = 0
        self.payload_at = 0
        self.intact = False

    def __repr__(self) -> str:
        return f"MessageEvent(consumer={self.consumer_id}, {self.position}, bytes={len(self.entry)})"

    def take(self, data: bytes) -> None:
        """Cuts what followed the command. Raises FrameError when its broker metadata is no such thing."""
        try:
            broker, at = split_broker_metadata(data)
            if broker is not None:
                data = data[at:]
                self.broker_time_ms = broker.broker_timestamp if broker.HasField("broker_timestamp") else None
                self.broker_index = broker.index if broker.HasField("index") else None
        except EntryError as error:
            raise FrameError(str(error)) from error
        self.entry = data
        try:
            if checksum_matches(data):
                _, self.metadata_at, self.payload_at = entry_layout(data)
                self.intact = True
        except EntryError:
            # Told to the broker with a validation error in the ack; the connection itself is sound.
            self.intact = False


ClientEvent = ReceiptRun | MessageEvent | CommandEvent


class ClientParser:
    """Reads a connection to a broker. After a FrameError it must not be used again."""

    __slots__ = ("_events", "_run", "_total_max", "needed")

    needed: int
    """After `parse`: bytes of the incomplete frame at the end, header included; 0 while not known."""

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max`: largest frame that is accepted, see the function in `frames`."""
        self.needed = 0
        self._total_max = frame_bytes_max - 4
        self._events: list[ClientEvent] = []
        self._run: ReceiptRun | None = None

    def parse(self, buffer: bytearray | memoryview | bytes, size: int) -> tuple[list[ClientEvent], int]:
        """Like `ServerParser.parse`. Entries are copied twice, which a client can afford."""
        events = self._events = []
        self._run = None
        self.needed = 0
        with memoryview(buffer) as view:
            data = bytes(view[:size])
        at = 0
        try:
            while size - at >= 4:
                total: int = _U32.unpack_from(data, at)[0]
                if total > self._total_max:
                    raise FrameError(f"frame of {total} bytes, {self._total_max} are allowed")
                end = at + 4 + total
                if end > size:
                    self.needed = 4 + total
                    break
                if total < 4:
                    raise FrameError(f"frame of {total} bytes has no room for a command")
                stop = at + 8 + _U32.unpack_from(data, at + 4)[0]
                if stop > end:
                    raise FrameError(f"command of {stop - at - 8} bytes in a frame of {total}")
                self._command(data, at + 8, stop, end)
                at = end
        except FrameError as error:
            error.events = list(events)
            raise
        finally:
            self._events = []
        return events, at

    def _command(self, data: bytes, at: int, stop: int, end: int) -> None:
        """The command in `data[at:stop]`; the rest of its frame ends at `end`."""
        body = at + 4
        if stop - body >= 4 and data[at] == 0x08 and data[at + 3] < 0x80 and body + data[at + 3] == stop:
            kind = data[at + 1]
            if kind == _RECEIPT and data[at + 2] == 0x3A:
                receipt = _decode_receipt(data, body, stop)
                if receipt is not None:
                    self._add_receipt(*receipt)
                    return
            elif kind == _MESSAGE and data[at + 2] == 0x4A:
                message = _decode_message(data, body, stop)
                if message is not None:
                    message.take(data[stop:end])
                    self._events.append(message)
                    return
        kind, command = parse_command(data[at:stop])
        if kind == _RECEIPT:
            receipt_data = command.send_receipt
            known = receipt_data.HasField("message_id")
            position = position_of(receipt_data.message_id) if known else Position(-1, -1)
            self._add_receipt(receipt_data.producer_id, receipt_data.sequence_id, *position)
        elif kind == _MESSAGE:
            message = _message_of_command(command.message)
            message.take(data[stop:end])
            self._events.append(message)
        else:
            self._run = None
            self._events.append(CommandEvent(kind, command))

    def _add_receipt(self, producer_id: int, sequence_id: int, ledger_id: int, entry_id: int) -> None:
        run = self._run
        if run is None or run.producer_id != producer_id:
            run = self._run = ReceiptRun(producer_id)
            self._events.append(run)
        run.sequence_ids.append(sequence_id)
        run.ledger_ids.append(ledger_id)
        run.entry_ids.append(entry_id)


def _decode_receipt(data: bytes, at: int, stop: int) -> tuple[int, int, int, int] | None:
    """Producer, sequence, ledger and entry id of a CommandSendReceipt as `receipts` writes it; else None."""
    if data[at] != 0x08:
        return None
    producer_id, at = read_varint(data, at + 1, stop)
    if at >= stop or data[at] != 0x10:
        return None
    sequence_id, at = read_varint(data, at + 1, stop)
    if at > stop - 2 or data[at] != 0x1A or data[at + 1] > 0x7F:
        return None
    id_stop = at + 2 + data[at + 1]
    if id_stop > stop or id_stop - at < 4 or data[at + 2] != 0x08:
        return None
    ledger_id, at = read_varint(data, at + 3, id_stop)
    if at >= id_stop or data[at] != 0x10:
        return None
    entry_id, at = read_varint(data, at + 1, id_stop)
    if at < id_stop and data[at] == 0x18:
        _, at = read_varint(data, at + 1, id_stop)
    if at != id_stop:
        return None
    if at < stop and data[at] == 0x20:
        _, at = read_varint(data, at + 1, stop)
    return None if at != stop else (producer_id, sequence_id, ledger_id, entry_id)


def _decode_message(data: bytes, at: int, stop: int) -> MessageEvent | None:
    """A CommandMessage as `messages` writes it without an ack set; else None."""
    if data[at] != 0x08:
        return None
    consumer_id, at = read_varint(data, at + 1, stop)
    if at > stop - 2 or data[at] != 0x12 or data[at + 1] > 0x7F:
        return None
    id_stop = at + 2 + data[at + 1]
    if id_stop > stop or id_stop - at < 4 or data[at + 2] != 0x08:
        return None
    ledger_id, at = read_varint(data, at + 3, id_stop)
    if at >= id_stop or data[at] != 0x10:
        return None
    entry_id, at = read_varint(data, at + 1, id_stop)
    partition = -1
    if at < id_stop and data[at] == 0x18:
        partition, at = read_varint(data, at + 1, id_stop)
    if at != id_stop or partition >> 31 > 0:
        return None
    redelivery_count = 0
    if at < stop and data[at] == 0x18:
        redelivery_count, at = read_varint(data, at + 1, stop)
    consumer_epoch: int | None = None
    if at < stop and data[at] == 0x28:
        consumer_epoch, at = read_varint(data, at + 1, stop)
    if at != stop or redelivery_count >> 32:
        return None
    return MessageEvent(
        consumer_id, Position(ledger_id, entry_id), partition, redelivery_count, None, consumer_epoch
    )


def _message_of_command(command: pb.CommandMessage) -> MessageEvent:
    message_id = command.message_id
    return MessageEvent(
        command.consumer_id,
        Position(signed(message_id.ledgerId), signed(message_id.entryId)),
        message_id.partition,
        command.redelivery_count,
        tuple(word & _WORD for word in command.ack_set) or None,
        command.consumer_epoch if command.HasField("consumer_epoch") else None,
    )


def encode_send(
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    entry: bytes,
    highest_sequence_id: int | None = None,
    *,
    is_chunk: bool = False,
) -> bytes:
    """A SEND frame. `entry` as `payload.build_entry` makes it; `num_messages` >= 1."""
    parts = [b"\x08", varint(producer_id), b"\x10", varint(sequence_id)]
    if num_messages != 1:
        parts += (b"\x18", varint(num_messages))
    if highest_sequence_id is not None:
        parts += (b"\x30", varint(highest_sequence_id))
    if is_chunk:
        parts.append(b"\x38\x01")
    send = b"".join(parts)
    command_bytes = len(send) + 4
    head = FRAME_HEAD.pack(4 + command_bytes + len(entry), command_bytes)
    return b"".join((head, b"\x08\x06\x32", bytes((len(send),)), send, entry))
