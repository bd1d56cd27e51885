"""MESSAGE frames: stored entries on their way to a consumer.

    totalSize u32 | commandSize u32 | 08 09 | 4a size | 08 consumer_id | 12 size MessageIdData
    | [18 redelivery_count] | (20 ack_set word)* | [28 consumer_epoch]
    | [0x0e02 u16 | size u32 | 08 broker_timestamp | 10 index]
    | entry

    MessageIdData    08 ledgerId | 10 entryId | [18 partition]

The entry is never opened. While the entry id does not cross a multiple of 128, headers differ only in
`totalSize` and one byte.

Source: Pulsar binary protocol, CommandMessage; PIP-70 for broker metadata.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.wire.frames import FRAME_HEAD, varint

_JOIN_BYTES_MAX: Final = 4096
"""Entries up to this size are joined with their neighbours into one buffer. Each buffer of a `writelines`
costs the event loop as much as copying some KiB."""

_BROKER_METADATA_HEAD: Final = struct.Struct(">HI")


class MessageEncoder:
    """Encodes for one consumer; keeps what never changes."""

    __slots__ = ("_consumer", "_partition")

    def __init__(self, consumer_id: int, partition: int = -1) -> None:
        """`partition` is the topic's index; -1, for none, is left out of message ids."""
        self._consumer = b"\x08" + varint(consumer_id) + b"\x12"
        self._partition = b"" if partition < 0 else b"\x18" + varint(partition)

    def encode(
        self,
        run: EntryRun,
        start: int,
        stop: int,
        out: list[bytes],
        *,
        redelivery_counts: list[int] | None = None,
        ack_sets: list[tuple[int, ...] | None] | None = None,
        consumer_epoch: int | None = None,
        with_broker_metadata: bool = False,
    ) -> int:
        """Appends frames for `run.entries[start:stop]` to `out`; returns their bytes.

        `redelivery_counts` and `ack_sets` are parallel to `entries[start:stop]`; words of an ack set are
        unsigned, a set bit is a message that is to be delivered. With broker metadata each entry says
        when it was appended and the index of its last message. Large entries are appended themselves,
        not copied. Costs 0.3 µs per small plain message.
        """
        end = b"" if consumer_epoch is None else b"\x28" + varint(consumer_epoch)
        if redelivery_counts is None and ack_sets is None and not with_broker_metadata:
            return self._encode_plain(run, start, stop, out, end)
        total = 0
        pieces: list[bytes] = []
        index = run.base_index - 1
        if with_broker_metadata:
            index += start if run.counts is None else sum(run.counts[:start])
        for row in range(start, stop):
            fields = end
            if ack_sets is not None:
                words = ack_sets[row - start]
                if words is not None:
                    fields = b"".join([b"\x20" + varint(word) for word in words]) + fields
            if redelivery_counts is not None and redelivery_counts[row - start]:
                fields = b"\x18" + varint(redelivery_counts[row - start]) + fields
            if with_broker_metadata:
                index += run.count_of(row)
                block = b"\x08" + varint(run.broker_time_ms) + b"\x10" + varint(index)
                block = _BROKER_METADATA_HEAD.pack(0x0E02, len(block)) + block
            else:
                block = b""
            command = self._command(run.ledger_id, run.first_entry + row, fields)
            entry = run.entries[row]
            size = 4 + len(command) + len(block) + len(entry)
            pieces += (FRAME_HEAD.pack(size, len(command)), command, block)
            total += 4 + size
            if len(entry) <= _JOIN_BYTES_MAX:
                pieces.append(entry)
            else:
                out += (b"".join(pieces), entry)
                pieces.clear()
        if pieces:
            out.append(b"".join(pieces))
        return total

    def _encode_plain(self, run: EntryRun, start: int, stop: int, out: list[bytes], end: bytes) -> int:
        """Frames that differ only in entry and entry id."""
        total = 0
        entries = run.entries
        first_entry = run.first_entry
        pieces: list[bytes] = []
        row = start
        while row < stop:
            entry_id = first_entry + row
            command = self._command(run.ledger_id, entry_id, end)
            low_at = len(command) - len(end) - len(self._partition) - len(varint(entry_id))
            front = _COMMAND_SIZE.pack(len(command)) + command[:low_at]
            back = command[low_at + 1 :]
            pack = _header_struct(len(front), len(back)).pack
            overhead = 4 + len(command)
            low = command[low_at]
            block_stop = min(stop, row + 128 - (entry_id & 0x7F))
            for entry in entries[row:block_stop]:
                size = overhead + len(entry)
                total += size
                pieces.append(pack(size, front, low, back))
                low += 1
                if size <= _JOIN_BYTES_MAX:
                    pieces.append(entry)
                else:
                    out += (b"".join(pieces), entry)
                    pieces.clear()
            row = block_stop
        if pieces:
            out.append(b"".join(pieces))
        return total + 4 * (stop - start)

    def _command(self, ledger_id: int, entry_id: int, fields: bytes) -> bytes:
        """The BaseCommand; `fields` are those of CommandMessage from number 3 on."""
        message_id = b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id) + self._partition
        message = b"".join((self._consumer, bytes((len(message_id),)), message_id, fields))
        return b"\x08\x09\x4a" + varint(len(message)) + message


_COMMAND_SIZE: Final = struct.Struct(">I")


@lru_cache(maxsize=256)
def _header_struct(front_bytes: int, back_bytes: int) -> struct.Struct:
    return struct.Struct(f">I{front_bytes}sB{back_bytes}s")
