"""SEND frames in bulk: encoded once, renumbered in place.

A load generator that encodes one frame at a time in Python measures itself. Here a block of equal frames lies
in one array; before it is sent again only the columns that differ are rewritten, for all frames at once: the
sequence ids in command and metadata, the publish time, and the checksum over them.

Layout of a SEND frame (big-endian; source: Pulsar binary protocol, framing of payload commands):

    totalSize    4  bytes after this field
    commandSize  4
    BaseCommand     type=6, field 6: CommandSend, whose fields are
                    producer_id=1, sequence_id=2, num_messages=3, highest_sequence_id=6
    magic        2  0x0e01
    checksum     4  CRC32C of everything after it
    metadataSize 4
    MessageMetadata producer_name=1, sequence_id=2, publish_time=3, num_messages_in_batch=11,
                    highest_sequence_id=24
    payload         one message; in a batch for each: size 4, SingleMessageMetadata {payload_size}, bytes

Two tricks make it exact and cheap:
- Sequence ids start at 2**21, so that their shortest varint is four bytes up to 2**28: all frames of a
  producer have one length without any unusual encoding. The publish time in milliseconds needs six bytes
  until the year 2109.
- CRC32C is linear: the checksum of a changed message is the old one XOR a value that depends only on the
  position and the new byte. A table per changed byte gives the checksums of a whole block in a few array
  operations.
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from bench.driver import Template
from bench.protobuf import field, varint

Bytes2D = npt.NDArray[np.uint8]

FIRST_SEQUENCE_ID: Final = 1 << 21
"""Smallest number whose varint has four bytes."""
SEQUENCE_ID_END: Final = 1 << 28
"""First number whose varint has five bytes."""
SEQUENCE_WIDTH: Final = 4
TIME_WIDTH: Final = 6
MAGIC_CRC32C: Final = b"\x0e\x01"

CONNECT: Final = 2
CONNECTED: Final = 3
SUBSCRIBE: Final = 4
PRODUCER: Final = 5
SEND: Final = 6
SEND_RECEIPT: Final = 7
SEND_ERROR: Final = 8
MESSAGE: Final = 9
ACK: Final = 10
FLOW: Final = 11
SUCCESS: Final = 13
ERROR: Final = 14
CLOSE_PRODUCER: Final = 15
CLOSE_CONSUMER: Final = 16
PRODUCER_SUCCESS: Final = 17
PARTITIONED_METADATA: Final = 21
PARTITIONED_METADATA_RESPONSE: Final = 22
PING: Final = 18
PONG: Final = 19
LOOKUP: Final = 23
LOOKUP_RESPONSE: Final = 24
ACTIVE_CONSUMER_CHANGE: Final = 31


def crc32c(data: bytes | memoryview) -> int:
    """CRC32C (Castagnoli) of `data`."""
    return int(google_crc32c.value(bytes(data)))


def command_frame(kind: int, body: bytes) -> bytes:
    """A frame without payload. In BaseCommand the number of a command's field equals its type."""
    command = field(1, kind) + field(kind, body)
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def batch_payload(message: bytes, messages: int) -> bytes:
    """A producer's batch of `messages` equal messages, not compressed."""
    single = field(3, len(message))
    return (len(single).to_bytes(4, "big") + single + message) * messages


class SendTemplate:
    """One SEND frame with holes for sequence ids and time, and the tables that correct its checksum."""

    def __init__(
        self, *, producer_id: int, producer_name: str, message: bytes, messages_per_entry: int = 1
    ) -> None:
        """Encode the frame.

        `message`: payload of each message. `messages_per_entry`: 1 sends plain messages, more sends batches.
        """
        if messages_per_entry < 1:
            raise ValueError("an entry holds at least one message")
        batched = messages_per_entry > 1
        sequence_hole = bytes(SEQUENCE_WIDTH)

        command = field(1, producer_id) + varint(2 << 3)
        command_sequence_at = [len(command)]
        command += sequence_hole
        if batched:
            command += field(3, messages_per_entry) + varint(6 << 3)
            command_sequence_at.append(len(command))
            command += sequence_hole
        base_head = field(1, SEND) + varint(SEND << 3 | 2) + varint(len(command))
        command_at = 8 + len(base_head)

        metadata = field(1, producer_name) + varint(2 << 3)
        metadata_sequence_at = [len(metadata)]
        metadata += sequence_hole + varint(3 << 3)
        time_at = len(metadata)
        metadata += bytes(TIME_WIDTH)
        if batched:
            metadata += field(11, messages_per_entry) + varint(24 << 3)
            metadata_sequence_at.append(len(metadata))
            metadata += sequence_hole
        payload = batch_payload(message, messages_per_entry) if batched else message

        base_command = base_head + command
        checked = len(metadata).to_bytes(4, "big") + metadata + payload
        crc_at = 8 + len(base_command) + 2
        checked_at = crc_at + 4
        frame_length = checked_at + len(checked)
        self.frame: Final = (
            (frame_length - 4).to_bytes(4, "big")
            + len(base_command).to_bytes(4, "big")
            + base_command
            + MAGIC_CRC32C
            + bytes(4)
            + checked
        )
        self.messages_per_entry: Final = messages_per_entry
        self.payload_bytes: Final = len(message) * messages_per_entry
        """Payload of the application in one entry; rates in bytes count this and no overhead."""
        self.sequence_from_end: Final = frame_length - (checked_at + 4 + metadata_sequence_at[0])
        """Distance of the metadata's sequence id from the end of the frame, the same in SEND and MESSAGE."""
        self._crc_at = crc_at
        self._first_columns = [command_at + command_sequence_at[0], checked_at + 4 + metadata_sequence_at[0]]
        self._last_columns = (
            [command_at + command_sequence_at[1], checked_at + 4 + metadata_sequence_at[1]] if batched else []
        )
        self._time_column = checked_at + 4 + time_at
        self._checked_length = len(checked)
        self._base_crc = crc32c(checked)
        self._zero_crc = crc32c(bytes(len(checked)))
        self._first_table = self._tables(4 + metadata_sequence_at[0], SEQUENCE_WIDTH)
        self._last_table = self._tables(4 + metadata_sequence_at[1], SEQUENCE_WIDTH) if batched else None
        self._time_table = self._tables(4 + time_at, TIME_WIDTH)

    def _tables(self, at: int, width: int) -> npt.NDArray[np.uint32]:
        """table[i, v]: what byte value v at checked offset `at + i` adds (XOR) to a checksum with 0 there."""
        tables = np.zeros((width, 256), dtype=np.uint32)
        message = bytearray(self._checked_length)
        for i in range(width):
            for bit in range(8):
                message[at + i] = 1 << bit
                effect = np.uint32(crc32c(bytes(message)) ^ self._zero_crc)
                has_bit = (np.arange(256) >> bit & 1).astype(bool)
                tables[i, has_bit] ^= effect
            message[at + i] = 0
        return tables

    def renumber(self, frames: Bytes2D, first_sequence_id: int, publish_time_ms: int) -> None:
        """Give the rows of `frames` (copies of `frame`) consecutive numbers, one time and right checksums.

        Row i gets sequence id `first_sequence_id + i * messages_per_entry`. Raises ValueError outside of the
        range in which all frames have one length.
        """
        count = len(frames)
        step = self.messages_per_entry
        if first_sequence_id < FIRST_SEQUENCE_ID or first_sequence_id + count * step > SEQUENCE_ID_END:
            raise ValueError(f"sequence ids from {first_sequence_id} are outside of the four-byte range")
        first = np.arange(count, dtype=np.uint32) * np.uint32(step) + np.uint32(first_sequence_id)
        crc = np.full(count, self._base_crc, dtype=np.uint32)
        crc ^= self._put(frames, self._first_columns, self._first_table, first, SEQUENCE_WIDTH)
        if self._last_table is not None:
            last = first + np.uint32(step - 1)
            crc ^= self._put(frames, self._last_columns, self._last_table, last, SEQUENCE_WIDTH)
        times = varint(publish_time_ms)
        if len(times) != TIME_WIDTH:
            raise ValueError(f"{publish_time_ms} ms is not a time of this century")
        for i, byte in enumerate(times):
            frames[:, self._time_column + i] = byte
            crc ^= self._time_table[i, byte]
        frames[:, self._crc_at : self._crc_at + 4] = crc.astype(">u4").view(np.uint8).reshape(count, 4)

    @staticmethod
    def _put(
        frames: Bytes2D,
        columns: list[int],
        table: npt.NDArray[np.uint32],
        values: npt.NDArray[np.uint32],
        width: int,
    ) -> npt.NDArray[np.uint32]:
        """Write `values` as varints of `width` bytes at `columns`; return their effect on the checksum."""
        effect = np.zeros(len(values), dtype=np.uint32)
        for i in range(width):
            byte = (values >> np.uint32(7 * i) & np.uint32(0x7F)).astype(np.uint8)
            if i < width - 1:
                byte |= np.uint8(0x80)
            for column in columns:
                frames[:, column + i] = byte
            effect ^= table[i][byte]
        return effect


class SendBlock:
    """`count` frames in one buffer, ready for the socket after `number`."""

    def __init__(self, template: Template, count: int) -> None:
        self.template: Final = template
        self.count: Final = count
        self.frame_length: Final = len(template.frame)
        self.frames: Final[Bytes2D] = np.tile(np.frombuffer(template.frame, dtype=np.uint8), (count, 1))
        self.view: Final = memoryview(self.frames.reshape(-1).data).cast("B")
        """All frames, one after the other."""

    def number(self, first_sequence_id: int, publish_time_ms: int) -> None:
        """Renumber all frames (`Template.renumber`)."""
        self.template.renumber(self.frames, first_sequence_id, publish_time_ms)
