"""Receipts and messages in bulk: every frame is counted and its sequence id compared with the expected one.

Frames of one kind that follow each other have the same length for long stretches (it changes only when an
entry or ledger id needs one more byte), so a stretch is checked as rows of an array; anything else is parsed
by hand. Pure: bytes in, counts out; the drivers own the sockets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bench import frames as f
from bench import protobuf as pb

STRETCH_MIN: Final = 12
"""From this many equal frames on, the array way is the faster one (measured: about 25 us a stretch)."""


class BrokerAnswerError(Exception):
    """The broker sent what ends a measurement: an error, a close, or receipts out of order."""


@dataclass(frozen=True, slots=True)
class Command:
    """A frame that is neither a receipt nor a message, for the driver to handle."""

    kind: int
    fields: pb.Fields


def split_command(frame: memoryview) -> tuple[int, pb.Fields, memoryview]:
    """(type, fields of the command, what follows the command) of a frame from its totalSize on."""
    command_size = int.from_bytes(frame[4:8], "big")
    if command_size + 8 > len(frame):
        raise BrokerAnswerError(f"command of {command_size} bytes in a frame of {len(frame)}")
    base = pb.decode(frame[8 : 8 + command_size])
    kind = pb.number(base, 1)
    return kind, pb.decode(pb.data(base, kind)), frame[8 + command_size :]


def refuse(command: Command) -> None:
    """Raise BrokerAnswerError for a command that must not come during a measurement."""
    if command.kind == f.SEND_ERROR:
        raise BrokerAnswerError(f"SEND_ERROR {pb.number(command.fields, 3)}: {pb.text(command.fields, 4)}")
    if command.kind == f.ERROR:
        raise BrokerAnswerError(f"ERROR {pb.number(command.fields, 2)}: {pb.text(command.fields, 3)}")
    if command.kind not in (f.PING, f.PONG, f.SUCCESS, f.ACTIVE_CONSUMER_CHANGE):
        raise BrokerAnswerError(f"unexpected command of type {command.kind}")


class ReceiptScanner:
    """Checks that the receipts of one producer come complete and in order."""

    def __init__(self, *, producer_id: int, messages_per_entry: int) -> None:
        self._producer_id = producer_id
        self._step = messages_per_entry
        self.expected: int = f.FIRST_SEQUENCE_ID
        """Sequence id of the next receipt."""
        self.commands: list[Command] = []
        """Other commands, in order; the driver takes them out."""

    @property
    def received(self) -> int:
        """Entries acknowledged so far."""
        return (self.expected - f.FIRST_SEQUENCE_ID) // self._step

    def feed(self, data: memoryview) -> int:
        """Check all complete frames at the start of `data`; return how many bytes they were.

        Raises BrokerAnswerError when a receipt is missing, twice or out of order.
        """
        at = 0
        end = len(data)
        while end - at >= 8:
            length = int.from_bytes(data[at : at + 4], "big") + 4
            if end - at < length:
                break
            sequence_at = self._one(data[at : at + length])
            at += length
            rows = (end - at) // length
            if sequence_at and rows >= STRETCH_MIN:
                at += self._stretch(data[at - length : at + rows * length], length, sequence_at)
        return at

    def _one(self, frame: memoryview) -> int:
        """Check one frame; return where the sequence id of a receipt lies in it, 0 for anything else."""
        kind, fields, _ = split_command(frame)
        if kind != f.SEND_RECEIPT:
            self.commands.append(Command(kind, fields))
            return 0
        if pb.number(fields, 1, -1) != self._producer_id:
            raise BrokerAnswerError(
                f"receipt for producer {pb.number(fields, 1, -1)}, asked {self._producer_id}"
            )
        sequence_id = pb.number(fields, 2, -1)
        if sequence_id != self.expected:
            raise BrokerAnswerError(f"receipt {sequence_id} where {self.expected} was due")
        position = pb.decode(pb.data(fields, 3))
        if pb.number(position, 1) >= 1 << 63:
            raise BrokerAnswerError(f"entry {sequence_id} was taken for a duplicate")
        self.expected += self._step
        # The fields may come in any order, so the place is looked up, not assumed.
        at = bytes(frame).find(pb.field(2, sequence_id))
        return at + 1

    def _stretch(self, data: memoryview, length: int, sequence_at: int) -> int:
        """Check rows that look like the first one (already checked); return the bytes of those."""
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, length)
        width = f.SEQUENCE_WIDTH
        same = (rows[:, :sequence_at] == rows[0, :sequence_at]).all(axis=1)
        count = len(rows) if same.all() else int(np.argmin(same))
        columns = rows[:count, sequence_at : sequence_at + width].astype(np.uint32)
        if not ((columns[:, : width - 1] >= 0x80).all() and (columns[:, width - 1] < 0x80).all()):
            raise BrokerAnswerError("a sequence id came back in another width")
        ids = np.zeros(count, dtype=np.uint32)
        for i in range(width):
            ids |= (columns[:, i] & np.uint32(0x7F)) << np.uint32(7 * i)
        due = np.arange(count, dtype=np.uint32) * np.uint32(self._step) + np.uint32(
            self.expected - self._step
        )
        wrong = ids != due
        if wrong.any():
            row = int(np.argmax(wrong))
            raise BrokerAnswerError(f"receipt {ids[row]} where {due[row]} was due")
        self.expected += (count - 1) * self._step
        return (count - 1) * length


class MessageScanner:
    """Checks that the entries of one producer are delivered complete and in order."""

    def __init__(self, template: f.SendTemplate, *, first_sequence_id: int = f.FIRST_SEQUENCE_ID) -> None:
        self._first = first_sequence_id
        self._step = template.messages_per_entry
        self._sequence_from_end = template.sequence_from_end
        self.expected: int = first_sequence_id
        """Sequence id of the next entry."""
        self.last_message_id: bytes = b""
        """MessageIdData of the newest entry, as the broker encoded it."""
        self.checksums_verified: int = 0
        self.commands: list[Command] = []
        """Other commands, in order; the driver takes them out."""

    @property
    def received(self) -> int:
        """Entries delivered so far."""
        return (self.expected - self._first) // self._step

    def feed(self, data: memoryview) -> int:
        """Check all complete frames at the start of `data`; return how many bytes they were.

        Every entry's sequence id is compared; the whole frame of the first and the last entry of the data is
        decoded and its checksum verified. Raises BrokerAnswerError when an entry is missing, twice, out of
        order or damaged.
        """
        at = 0
        end = len(data)
        last: memoryview | None = None
        while end - at >= 8:
            length = int.from_bytes(data[at : at + 4], "big") + 4
            if end - at < length:
                break
            frame = data[at : at + length]
            at += length
            if last is None or length < self._sequence_from_end:
                if not self._whole(frame):
                    continue
            else:
                sequence_at = length - self._sequence_from_end
                sequence_id, _ = pb.read_varint(frame[sequence_at : sequence_at + f.SEQUENCE_WIDTH], 0)
                if sequence_id != self.expected:
                    if self._whole(frame):
                        raise AssertionError("an entry was right in whole and wrong in part")
                    continue
            self.expected += self._step
            last = frame
        if last is not None:
            self.expected -= self._step
            self._whole(last)
            self.expected += self._step
        return at

    def _whole(self, frame: memoryview) -> bool:
        """Decode one frame; False for another command; raises BrokerAnswerError when the entry is wrong."""
        kind, fields, rest = split_command(frame)
        if kind != f.MESSAGE:
            self.commands.append(Command(kind, fields))
            return False
        if bytes(rest[:2]) != f.MAGIC_CRC32C:
            raise BrokerAnswerError("an entry came without its checksum")
        if f.crc32c(rest[6:]) != int.from_bytes(rest[2:6], "big"):
            raise BrokerAnswerError(f"the checksum of entry {self.expected} does not match")
        size = int.from_bytes(rest[6:10], "big")
        sequence_id = pb.number(pb.decode(rest[10 : 10 + size]), 2, -1)
        if sequence_id != self.expected:
            raise BrokerAnswerError(f"entry {sequence_id} where {self.expected} was due")
        self.last_message_id = pb.data(fields, 2)
        self.checksums_verified += 1
        return True
