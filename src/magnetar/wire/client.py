"""The client's side of the hot path: the mirror image of `server`. Sans-IO.

Receipts and messages in the shape that brokers send are decoded by hand, all others by protobuf. Consecutive
plain ones are cut by their common shape (`shapes`). Consecutive receipts of one producer form one event.

Source: Pulsar binary protocol: framing, SEND, SEND_RECEIPT, MESSAGE.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.base.ids import NO_LEDGER, ConsumerId, LedgerId, Position, ProducerId
from magnetar.wire.acks import encode_ack, encode_flow
from magnetar.wire.checksum import crc32c
from magnetar.wire.events import CommandEvent
from magnetar.wire.frames import FrameError, command_end, parse_command, position_of
from magnetar.wire.messages import Message, MessageEvent, decode_message, event_of_entry
from magnetar.wire.receipts import Receipt, ReceiptRun, decode_receipt, receipt_layout
from magnetar.wire.sends import encode_send
from magnetar.wire.shapes import ENTRY_HEAD_BYTES, KEY_BYTES, SHAPES_MAX, FrameShape

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


ClientEvent = ReceiptRun | MessageEvent | CommandEvent


class ClientParser:
    """Reads a connection to a broker. After a FrameError it must not be used again."""

    __slots__ = ("_events", "_run", "_shapes", "_total_max", "needed")

    needed: int
    """After `parse`: bytes of the incomplete frame at the end, header included; 0 while not known."""

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max`: largest frame accepted, in bytes; see the function in `frames`."""
        self.needed = 0
        self._total_max = frame_bytes_max - 4
        self._events: list[ClientEvent] = []
        self._run: ReceiptRun | None = None
        self._shapes: dict[bytes, tuple[FrameShape, LedgerId, int]] = {}

    def parse(self, buffer: bytearray | memoryview | bytes, size: int) -> tuple[list[ClientEvent], int]:
        """Like `ServerParser.parse`. Copies each entry twice, which a client can afford."""
        events = self._events = []
        self._run = None
        self.needed = 0
        with memoryview(buffer) as view:
            data = bytes(view[:size])
        shapes = self._shapes
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
                shape = shapes.get(data[at + 4 : at + 4 + KEY_BYTES])
                if shape is not None:
                    stop = self._plain_messages(*shape, data, at)
                    if stop != at:
                        at = stop
                        continue
                at = self._command(data, at, command_end(data, at, end), end)
        except FrameError as error:
            error.events = list(events)
            raise
        finally:
            self._events = []
        return events, at

    def _plain_messages(
        self, shape: FrameShape, ledger_id: LedgerId, partition: int, data: bytes, at: int
    ) -> int:
        """Takes messages of this shape from `data[at:]`; returns where the first other frame starts."""
        consumer_id = ConsumerId(shape.owner)
        prefix = shape.prefix
        tail = shape.tail
        flag = shape.flag
        high = shape.high
        unpack_from = shape.unpack_from
        entry_at = shape.entry_at
        metadata_max = shape.metadata_max
        total_max = self._total_max
        size = len(data)
        last_start = size - shape.head_bytes
        add = self._events.append
        while at <= last_start:
            total, seen_prefix, low, seen_tail, checksum, metadata_bytes = unpack_from(data, at)
            low ^= flag
            if seen_prefix != prefix or seen_tail != tail or low > 0x7F or total > total_max:
                break
            end = at + 4 + total
            if end > size or metadata_bytes > total + metadata_max:
                break
            entry = data[at + entry_at : end]
            if crc32c(entry[6:]) != checksum:
                break
            event = MessageEvent(
                consumer_id,
                Position(ledger_id, high | low),
                entry,
                ENTRY_HEAD_BYTES,
                ENTRY_HEAD_BYTES + metadata_bytes,
            )
            if partition >= 0:
                event.partition = partition
            add(event)
            at = end
        return at

    def _command(self, data: bytes, frame_at: int, stop: int, end: int) -> int:
        """The frame in `data[frame_at:end]`, its command up to `stop`; returns where the next one starts."""
        at = frame_at + 8
        body = at + 4
        if stop - body >= 4 and data[at] == 0x08 and data[at + 3] < 0x80 and body + data[at + 3] == stop:
            kind = data[at + 1]
            if kind == _RECEIPT and data[at + 2] == 0x3A:
                receipt = decode_receipt(data, body, stop)
                if receipt is not None:
                    return self._receipts(receipt, data, frame_at, end)
            elif kind == _MESSAGE and data[at + 2] == 0x4A:
                message = decode_message(data, body, stop)
                if message is not None:
                    self._add_message(message, data, frame_at, stop, end)
                    return end
        kind, command = parse_command(data[at:stop])
        if kind == _RECEIPT:
            known = command.send_receipt.HasField("message_id")
            position = position_of(command.send_receipt.message_id) if known else Position(NO_LEDGER, -1)
            self._add_receipt(command.send_receipt.producer_id, command.send_receipt.sequence_id, *position)
        elif kind == _MESSAGE:
            body_message = command.message
            event = event_of_entry(
                body_message.consumer_id, position_of(body_message.message_id), data[stop:end]
            )
            event.partition = body_message.message_id.partition
            event.redelivery_count = body_message.redelivery_count
            event.ack_set = tuple(word & _WORD for word in body_message.ack_set) or None
            if body_message.HasField("consumer_epoch"):
                event.consumer_epoch = body_message.consumer_epoch
            self._events.append(event)
        else:
            self._run = None
            self._events.append(CommandEvent(kind, command))
        return end

    def _add_message(self, message: Message, data: bytes, frame_at: int, stop: int, end: int) -> None:
        """A message of the usual shape, its entry in `data[stop:end]`; the next message may be cut by the
        same shape."""
        event = event_of_entry(message.consumer_id, message.position, data[stop:end])
        event.partition = message.partition
        event.redelivery_count = message.redelivery_count
        event.consumer_epoch = message.consumer_epoch
        self._events.append(event)
        if message.plain and event.intact and data[stop : stop + 2] == b"\x0e\x01":
            shapes = self._shapes
            if len(shapes) >= SHAPES_MAX:
                shapes.clear()
            ledger_id, entry_id = message.position
            shape = FrameShape(message.consumer_id, entry_id, data, frame_at, message.low_at, stop)
            shapes[data[frame_at + 4 : frame_at + 4 + KEY_BYTES]] = (shape, ledger_id, message.partition)

    def _receipts(self, receipt: Receipt, data: bytes, at: int, end: int) -> int:
        """The receipt in `data[at:end]` and the following ones of the same shape; returns where they end.

        Receipts of one length mostly differ in the low seven bits of both ids, and are cut by that as
        `shapes` describes for payload frames.
        """
        run = self._add_receipt(receipt.producer_id, receipt.sequence_id, receipt.ledger_id, receipt.entry_id)
        frame_bytes = end - at
        last_start = len(data) - frame_bytes
        if end > last_start or data[end : end + 4] != data[at : at + 4]:
            return end
        sequence_at = receipt.sequence_at - at
        entry_at = receipt.entry_at - at
        layout = receipt_layout(sequence_at, entry_at - sequence_at - 1, frame_bytes - entry_at - 1)
        unpack_from = layout.unpack_from
        front, low_sequence, middle, low_entry, back = unpack_from(data, at)
        sequence_flag = low_sequence & 0x80
        entry_flag = low_entry & 0x80
        sequence_high = receipt.sequence_id & ~0x7F
        entry_high = receipt.entry_id & ~0x7F
        add_sequence_id = run.sequence_ids.append
        entry_ids = run.entry_ids
        before = len(entry_ids)
        at = end
        while at <= last_start:
            seen_front, low_sequence, seen_middle, low_entry, seen_back = unpack_from(data, at)
            low_sequence ^= sequence_flag
            low_entry ^= entry_flag
            if (
                seen_middle != middle
                or seen_front != front
                or seen_back != back
                or low_sequence | low_entry > 0x7F
            ):
                break
            add_sequence_id(sequence_high | low_sequence)
            entry_ids.append(entry_high | low_entry)
            at += frame_bytes
        run.ledger_ids.extend([receipt.ledger_id] * (len(entry_ids) - before))
        return at

    def _add_receipt(
        self, producer_id: ProducerId, sequence_id: int, ledger_id: LedgerId, entry_id: int
    ) -> ReceiptRun:
        run = self._run
        if run is None or run.producer_id != producer_id:
            run = self._run = ReceiptRun(producer_id)
            self._events.append(run)
        run.sequence_ids.append(sequence_id)
        run.ledger_ids.append(ledger_id)
        run.entry_ids.append(entry_id)
        return run
