"""The broker's side of a connection: a client's bytes become events. Sans-IO.

One call of `ServerParser.parse` per socket read takes all complete frames of the buffer in one pass. SEND,
ACK and FLOW in the layout that clients send (known fields, each once, ascending) are decoded by hand, all
others by protobuf (upb), which decides what is legal.

Consecutive plain SENDs of a producer are cut by their common shape (`shapes`): 0.5 µs for a message of 100 B,
a third of the time of reading its fields. They form one run even with frames of other producers, acks or
permits between them, which the protocol does not order. Acks of one consumer are gathered in the same way.

Source: Pulsar binary protocol: framing, SEND, ACK, FLOW.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.base.ids import ProducerId
from magnetar.wire.acks import ack_of_command, add_acks_alike, decode_ack, decode_flow, txn_of
from magnetar.wire.checksum import crc32c
from magnetar.wire.events import (
    SEQUENCE_IDS_END,
    AckEvent,
    CommandEvent,
    FlowEvent,
    LongList,
    SendRun,
    ServerEvent,
    TxnBits,
)
from magnetar.wire.fields import check_fields
from magnetar.wire.frames import FrameError, command_end, parse_command, read_varint
from magnetar.wire.lengths import ENVELOPE_BYTES, check_command
from magnetar.wire.long_lists import LONG_LIST_BYTES, long_list
from magnetar.wire.sends import check_entry, decode_send, decode_send_in_txn, lone_send
from magnetar.wire.shapes import KEY_BYTES, SHAPES_MAX, FrameShape

__all__ = ["AckEvent", "CommandEvent", "FlowEvent", "SendRun", "ServerEvent", "ServerParser"]

_SEND: Final = 6
_ACK: Final = 10
_FLOW: Final = 11
_ACK_TYPE: Final = bytes((0x08, _ACK))
"""The first bytes of an ACK command."""

_LARGE_BYTES: Final = 16 * 1024
"""Frames from this size on, in bytes, are sliced from the caller's buffer one by one. Smaller ones are sliced
from a `bytes` copy of it, because a slice of `bytes` takes 40 ns and one through a memoryview 110 ns."""

_WINDOW_BYTES: Final = 64 * 1024
"""Bytes copied at a time for small frames; the bytes after a large frame are copied in vain."""
_U32: Final = struct.Struct(">I")
_NO_LIMIT: Final = 1 << 30
_BYTES_OF_ONE_BITS: Final = 9
_IDS_OF_ONE_BITS: Final = 6
"""A command counts once more for each 512 bytes of it, an ACK for each 64 ids, as a shift. A SUBSCRIBE of
38 kB with 512 properties takes 0.8 ms, as long as 50 small ones."""
_SHAPED_IDS_END: Final = 1 << 62
_POSITIONS_PER_ACK_MAX: Final = 4096
"""Positions in one gathered ack event, so that the event stays a bounded piece of work."""


class ServerParser:
    """Parses one client's connection. After a FrameError it must not be used again."""

    __slots__ = (
        "_ack",
        "_commands_max",
        "_events",
        "_large_bytes",
        "_runs",
        "_shapes",
        "_total_max",
        "commands",
        "needed",
        "stopped",
    )

    needed: int
    """After `parse`: bytes of the incomplete frame at the end, header included; 0 while not known."""
    commands: int
    """After `parse`: events of commands other than SEND; a large command counts several times."""
    stopped: bool
    """After `parse`: whether it stopped at its bound on commands, so that complete frames may be left."""

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max`: largest frame accepted, in bytes; see the function in `frames`."""
        self.needed = 0
        self.commands = 0
        self.stopped = False
        self._commands_max = _NO_LIMIT
        self._total_max = frame_bytes_max - 4
        self._large_bytes = min(_LARGE_BYTES, frame_bytes_max - 4)
        self._shapes: dict[bytes, FrameShape] = {}
        self._events: list[ServerEvent] = []
        self._runs: dict[int, SendRun] = {}
        self._ack: AckEvent | None = None

    def parse(
        self, buffer: bytearray | memoryview | bytes, size: int, commands_max: int = _NO_LIMIT
    ) -> tuple[list[ServerEvent], int]:
        """Parses the complete frames in `buffer[:size]`: their events, and the bytes consumed.

        The rest is the beginning of a frame: keep it and append more bytes. It stops after a bounded number
        of commands, see `stopped`. Raises FrameError, which holds the events before the bad frame.
        """
        self._commands_max = commands_max
        self.commands = 0
        self.stopped = False
        self.needed = 0
        if KEY_BYTES + 4 < size < self._large_bytes and _U32.unpack_from(buffer)[0] + 4 == size:
            with memoryview(buffer) as view:
                frame = bytes(view[:size])
            shape = self._shapes.get(frame[4 : 4 + KEY_BYTES])
            if shape is not None and (run := lone_send(shape, frame)) is not None:
                return [run], size
        events = self._events = []
        runs = self._runs = {}
        self._ack = None
        try:
            with memoryview(buffer) as view:
                return events, self._parse(view, size)
        except FrameError as error:
            error.events = list(events)
            raise
        finally:
            for event in events:
                if type(event) is SendRun:
                    event.size_bytes = sum(map(len, event.entries))
            self._events = []
            runs.clear()

    def _parse(self, view: memoryview, size: int) -> int:
        at = 0
        while size - at >= 4:
            if self.commands >= self._commands_max:
                self.stopped = True
                break
            total: int = _U32.unpack_from(view, at)[0]
            if total > self._total_max:
                raise FrameError(f"frame of {total} bytes, {self._total_max} are allowed")
            end = at + 4 + total
            if end > size:
                self.needed = 4 + total
                if total >= self._large_bytes:
                    check_command(bytes(view[at + 4 : min(size, at + 4 + ENVELOPE_BYTES)]))
                break
            if total >= self._large_bytes:
                self._large_frame(view, at, end)
                at = end
            else:
                at += self._small_frames(bytes(view[at : min(size, at + _WINDOW_BYTES)]))
        return at

    def _small_frames(self, data: bytes) -> int:
        """Takes frames from the front of `data` until one is incomplete or large; returns where it starts."""
        at = 0
        size = len(data)
        large_bytes = self._large_bytes
        shapes = self._shapes
        while size - at >= 4:
            total: int = _U32.unpack_from(data, at)[0]
            end = at + 4 + total
            if total >= large_bytes or end > size:
                break
            shape = shapes.get(data[at + 4 : at + 4 + KEY_BYTES])
            if shape is not None:
                stop = self._plain_sends(shape, data, at)
                if stop != at:
                    at = stop
                    continue
            self._frame(data, at, end)
            at = end if data[at + 8 : at + 10] != _ACK_TYPE else self._acks_alike(data, at, end)
            if self.commands >= self._commands_max:
                break
        return at

    def _plain_sends(self, shape: FrameShape, data: bytes, at: int) -> int:
        """Takes SENDs of this shape from `data[at:]`; returns where the first other frame starts."""
        run = self._runs.get(shape.owner)
        is_new = run is None or run.txn is not None
        if run is None or run.txn is not None:
            run = SendRun(ProducerId(shape.owner))
        prefix = shape.prefix
        tail = shape.tail
        flag = shape.flag
        high = shape.high
        unpack_from = shape.unpack_from
        entry_at = shape.entry_at
        metadata_max = shape.metadata_max
        total_max = self._large_bytes
        size = len(data)
        last_start = size - shape.head_bytes
        entries = run.entries
        before = len(entries)
        add_entry = entries.append
        add_sequence_id = run.sequence_ids.append
        while at <= last_start:
            total, seen_prefix, low, seen_tail, checksum, metadata_bytes = unpack_from(data, at)
            low ^= flag
            if seen_prefix != prefix or seen_tail != tail or low > 0x7F or total >= total_max:
                break
            end = at + 4 + total
            if end > size or metadata_bytes > total + metadata_max:
                break
            entry = data[at + entry_at : end]
            if crc32c(entry[6:]) != checksum:
                run.note_bad(len(entries))
            add_sequence_id(high | low)
            add_entry(entry)
            at = end
        added = len(entries) - before
        if not added:
            return at
        if is_new:
            self._runs[shape.owner] = run
            self._events.append(run)
        count = shape.count
        if run.counts is not None:
            run.counts.extend([count] * added)
        elif count != 1:
            run.counts = [1] * before
            run.counts.extend([count] * added)
        if run.highest_sequence_ids is not None:
            run.highest_sequence_ids.extend(run.sequence_ids[-added:])
        return at

    def _acks_alike(self, data: bytes, at: int, end: int) -> int:
        """Takes the frames from `end` on that equal the ACK in `data[at:end]` except for the entry id."""
        if self._ack is None:
            return end
        return add_acks_alike(self._ack, data, at, end, _POSITIONS_PER_ACK_MAX)

    def _large_frame(self, view: memoryview, at: int, end: int) -> None:
        """One frame straight from the caller's buffer."""
        stop = command_end(view, at, end)
        check_command(bytes(view[at + 4 : min(end, at + 4 + ENVELOPE_BYTES)]))
        head = bytes(view[at:stop])
        self._command(head, 0, len(head), bytes(view[stop:end]))

    def _frame(self, data: bytes, at: int, end: int) -> None:
        """The frame in `data[at:end]`, of any kind."""
        stop = command_end(data, at, end)
        self._command(data, at, stop, data[stop:end])

    def _command(self, data: bytes, at: int, stop: int, rest: bytes) -> None:
        """Decodes the command in `data[at + 8:stop]` with the rest of its frame."""
        if stop - at >= LONG_LIST_BYTES and (long := long_list(data, at + 8, stop)) is not None:
            self.commands += 1
            self._add_unordered(long)
            return
        # Type and field both have tags of one byte, and the field fills the command: the usual layout.
        body = at + 12
        if (
            stop - body >= 4
            and data[at + 8] == 0x08
            and data[at + 11] < 0x80
            and body + data[at + 11] == stop
        ):
            kind = data[at + 9]
            tag = data[at + 10]
            if kind == _SEND and tag == 0x32:
                self._send(data, at, stop, rest)
                return
            if kind == _ACK and tag == 0x52:
                ack = decode_ack(data, body, stop)
                if ack is not None:
                    self._add_ack(ack)
                    return
            elif kind == _FLOW and tag == 0x5A and data[body] == 0x08:
                flow = decode_flow(data, body, stop)
                if flow is not None:
                    self.commands += 1
                    self._events.append(flow)
                    return
        elif stop - body >= 128 and data[at + 8 : at + 11] == b"\x08\x0a\x52":
            size, body = read_varint(data, at + 11, stop)
            ack = decode_ack(data, body, stop) if body + size == stop else None
            if ack is not None:
                self._add_ack(ack)
                return
        self._any_command(data[at + 8 : stop], rest)

    def _send(self, data: bytes, at: int, stop: int, entry: bytes) -> None:
        """A SEND in the usual layout."""
        fields = decode_send(data, at + 12, stop)
        if fields is None:
            if (of_txn := decode_send_in_txn(data, at + 12, stop)) is None:
                self._any_command(data[at + 8 : stop], entry)
            else:
                self.commands += 1
                self._add_send(*of_txn[:5], entry, of_txn[5])
            return
        producer_id, sequence_id, count, highest, chunked, low_at = fields
        has_checksum = self._add_send(ProducerId(producer_id), sequence_id, count, highest, chunked, entry)
        # A large frame is cut alone: `data` ends with its command, and a shape needs the bytes after it. Ids
        # near their end are read one by one: the next frame of a shape may be out of range with its batch.
        if low_at and has_checksum and stop + 2 <= len(data) and sequence_id < _SHAPED_IDS_END:
            shapes = self._shapes
            key = data[at + 4 : at + 4 + KEY_BYTES]
            if len(shapes) >= SHAPES_MAX and key not in shapes:
                if len(self._runs[producer_id].entries) == 1:
                    # Very many producers take turns: this shape would be forgotten before its next frame.
                    return
                shapes.clear()
            shapes[key] = FrameShape(producer_id, sequence_id, data, at, low_at, stop, count)

    def _add_send(
        self,
        producer_id: ProducerId,
        sequence_id: int,
        count: int,
        highest_sequence_id: int | None,
        chunked: bool,
        entry: bytes,
        txn: TxnBits | None = None,
    ) -> bool:
        """Checks the entry and adds the row; True when the entry has a checksum."""
        has_checksum, good = check_entry(entry)
        run = self._runs.get(producer_id)
        if run is None or run.txn != txn:
            # Frames of another transaction form a run of their own, after what the producer sent before.
            run = self._runs[producer_id] = SendRun(producer_id)
            run.txn = txn
            self._events.append(run)
        if (
            count == 1
            and highest_sequence_id is None
            and good
            and run.counts is None
            and run.highest_sequence_ids is None
            and sequence_id < SEQUENCE_IDS_END
        ):
            run.sequence_ids.append(sequence_id)
            run.entries.append(entry)
        else:
            run.add(sequence_id, count, highest_sequence_id, entry, good=good)
        if chunked:
            run.chunked = True
        return has_checksum

    def _add_ack(self, ack: AckEvent) -> None:
        """Joins a plain individual ack to the one before it, when that is of the same consumer."""
        self.commands += len(ack.positions) >> _IDS_OF_ONE_BITS
        before = self._ack
        if ack.cumulative or ack.request_id is not None:
            self._ack = None
        elif (
            before is not None
            and before.consumer_id == ack.consumer_id
            and len(before.positions) < _POSITIONS_PER_ACK_MAX
        ):
            before.positions += ack.positions
            return
        else:
            self._ack = ack
        self.commands += 1
        self._events.append(ack)

    def _any_command(self, command_bytes: bytes, entry: bytes) -> None:
        """Decodes a command by protobuf."""
        check_fields(command_bytes)
        kind, command = parse_command(command_bytes)
        # A SEND that takes this path costs as much as other commands, and a long one costs more.
        self.commands += 1 + (len(command_bytes) >> _BYTES_OF_ONE_BITS)
        if kind == _SEND:
            send = command.send
            if send.num_messages < 1:
                raise FrameError(f"SEND of {send.num_messages} messages")
            if not (send.HasField("message_id") or send.marker):
                highest = send.highest_sequence_id if send.HasField("highest_sequence_id") else None
                ids = ProducerId(send.producer_id), send.sequence_id, send.num_messages
                self._add_send(*ids, highest, send.is_chunk, entry, txn_of(send))
                return
        elif kind == _ACK:
            self._add_unordered(ack_of_command(command.ack))
            return
        elif kind == _FLOW:
            self._events.append(FlowEvent(command.flow.consumer_id, command.flow.messagePermits))
            return
        self._runs.clear()
        self._ack = None
        self._events.append(CommandEvent(kind, command))

    def _add_unordered(self, event: AckEvent | LongList) -> None:
        """Ends the gathering of acks, and no run."""
        self._ack = None
        self._events.append(event)
