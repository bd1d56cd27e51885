"""Reads MESSAGE frames in bulk from a connection's bytes into columns, without an object per message.
Sans-IO.

    totalSize u32 | commandSize u32 | 08 09 | 4a size | 08 consumer_id | 12 size 08 ledgerId | 10 entryId
    [18 partition] | [18 redelivery_count] ...
    [0x0e02 u16 | size u32 | 08 broker_timestamp | 10 index]
    entry

Consecutive frames of one consumer differ only in the entry id and the entry. After one frame was read field
by field, the bytes before and after its entry id are remembered, and the next frames are only compared with
them.

Source: Pulsar binary protocol, CommandMessage; PIP-70 for broker metadata.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.ids import LedgerId, Position
from magnetar.client.errors import PayloadError
from magnetar.wire.checksum import crc32c
from magnetar.wire.client import MessageEvent
from magnetar.wire.frames import FRAME_HEAD, read_varint, varint

UNKNOWN: Final = -1
"""Value of an index or a broker time that the broker did not send."""


class EntryColumns:
    """Delivered entries in order; the lists are parallel."""

    __slots__ = ("broker_times_ms", "entries", "entry_ids", "last_indexes", "ledger_ids", "size_bytes")

    ledger_ids: list[LedgerId]
    entry_ids: list[int]
    entries: list[bytes]
    """As stored: [0x0e01 | checksum] | metadata size | metadata | payload. Checksums were verified."""
    last_indexes: list[int]
    """Index in the topic of each entry's last message; UNKNOWN when it was not sent."""
    broker_times_ms: list[int]
    """Time at which the broker appended each entry, Unix milliseconds; UNKNOWN when it was not sent."""
    size_bytes: int

    def __init__(self) -> None:
        self.ledger_ids = []
        self.entry_ids = []
        self.entries = []
        self.last_indexes = []
        self.broker_times_ms = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"EntryColumns(entries={len(self.entries)}, bytes={self.size_bytes})"

    def position(self, row: int) -> Position:
        """Position of entry `row`."""
        return Position(self.ledger_ids[row], self.entry_ids[row])

    def slice(self, start: int, stop: int) -> EntryColumns:
        """The rows `start <= i < stop`; returns itself when these are all rows."""
        if start == 0 and stop >= len(self.entries):
            return self
        part = EntryColumns()
        part.ledger_ids = self.ledger_ids[start:stop]
        part.entry_ids = self.entry_ids[start:stop]
        part.entries = self.entries[start:stop]
        part.last_indexes = self.last_indexes[start:stop]
        part.broker_times_ms = self.broker_times_ms[start:stop]
        part.size_bytes = sum(map(len, part.entries))
        return part

    def add(self, ledger_id: LedgerId, entry_id: int, entry: bytes, last_index: int, time_ms: int) -> None:
        """Appends a row."""
        self.ledger_ids.append(ledger_id)
        self.entry_ids.append(entry_id)
        self.entries.append(entry)
        self.last_indexes.append(last_index)
        self.broker_times_ms.append(time_ms)
        self.size_bytes += len(entry)

    def extend(self, other: EntryColumns) -> None:
        """Appends all rows of `other`."""
        self.ledger_ids += other.ledger_ids
        self.entry_ids += other.entry_ids
        self.entries += other.entries
        self.last_indexes += other.last_indexes
        self.broker_times_ms += other.broker_times_ms
        self.size_bytes += other.size_bytes


class DeliveryReader:
    """Takes the MESSAGE frames of one consumer from the bytes that the connection reads."""

    __slots__ = ("_broker_head", "_broker_time_ms", "_ledger_id", "_prefix", "_suffix", "columns", "where")

    columns: EntryColumns
    """Entries that `fetch` has not returned yet."""

    def __init__(self, where: str) -> None:
        """`where`: name of the topic in errors."""
        self.where = where
        self.columns = EntryColumns()
        self._prefix = b"\xff"
        """Command bytes up to the entry id; no frame starts with the initial value."""
        self._suffix = b""
        self._ledger_id = LedgerId(0)
        self._broker_head = b"\xff"
        self._broker_time_ms = UNKNOWN

    def fetch(self) -> EntryColumns:
        """The entries since the last call."""
        columns = self.columns
        self.columns = EntryColumns()
        return columns

    def learn(self, message: MessageEvent) -> None:
        """Takes a message that the parser decoded, and remembers the form of its frame.

        Raises PayloadError when its checksum is wrong.
        """
        position = message.position
        if not message.intact:
            raise self._damaged(position)
        index = UNKNOWN if message.broker_index is None else message.broker_index
        time_ms = UNKNOWN if message.broker_time_ms is None else message.broker_time_ms
        self.columns.add(position.ledger_id, position.entry_id, message.entry, index, time_ms)
        if message.ack_set or position.ledger_id < 0 or position.entry_id < 0:
            return
        entry_id = varint(position.entry_id)
        partition = b"" if message.partition < 0 else b"\x18" + varint(message.partition)
        consumer = b"\x08" + varint(message.consumer_id)
        message_id = b"\x08" + varint(position.ledger_id) + b"\x10"
        id_bytes = len(message_id) + len(entry_id) + len(partition)
        suffix = partition
        if message.redelivery_count:
            suffix += b"\x18" + varint(message.redelivery_count)
        if message.consumer_epoch is not None:
            suffix += b"\x28" + varint(message.consumer_epoch)
        body_bytes = len(consumer) + 2 + len(message_id) + len(entry_id) + len(suffix)
        if body_bytes < 0x80 and id_bytes < 0x80:
            head = bytes((0x08, 0x09, 0x4A, body_bytes))
            self._prefix = head + consumer + bytes((0x12, id_bytes)) + message_id
            self._suffix = suffix
            self._ledger_id = position.ledger_id

    def take(self, data: bytes, at: int, size: int) -> int:
        """Takes frames of the learned form from `data[at:size]`; returns the offset of the first other frame.

        Raises PayloadError when a checksum is wrong.
        """
        prefix = self._prefix
        prefix_bytes = 8 + len(prefix)
        suffix = self._suffix
        suffix_bytes = len(suffix)
        columns = self.columns
        entry_ids = columns.entry_ids
        entries = columns.entries
        indexes = columns.last_indexes
        times = columns.broker_times_ms
        unpack_from = FRAME_HEAD.unpack_from
        before = len(entries)
        taken_bytes = 0
        while size - at >= prefix_bytes and data.startswith(prefix, at + 8):
            total, command_bytes = unpack_from(data, at)
            end = at + 4 + total
            if end > size:
                break
            stop = at + 8 + command_bytes
            body = at + prefix_bytes
            entry_id = shift = 0
            while True:
                byte = data[body]
                body += 1
                if byte < 0x80:
                    entry_id |= byte << shift
                    break
                entry_id |= (byte & 0x7F) << shift
                shift += 7
            if body + suffix_bytes != stop or data[body:stop] != suffix or stop + 10 > end:
                break
            index = time_ms = UNKNOWN
            if data[stop + 1] == 0x02 and data[stop] == 0x0E:
                stop, index, time_ms = self._broker_metadata(data, stop, end)
            entry = data[stop:end]
            if entry[1] == 0x01 and entry[0] == 0x0E:
                if crc32c(entry[6:]) != int.from_bytes(entry[2:6], "big"):
                    raise self._damaged(Position(self._ledger_id, entry_id))
                metadata_end = 10 + int.from_bytes(entry[6:10], "big")
            else:
                metadata_end = 4 + int.from_bytes(entry[:4], "big")
            if metadata_end > len(entry):
                raise self._damaged(Position(self._ledger_id, entry_id))
            entry_ids.append(entry_id)
            entries.append(entry)
            indexes.append(index)
            times.append(time_ms)
            taken_bytes += end - stop
            at = end
        columns.ledger_ids.extend([self._ledger_id] * (len(entries) - before))
        columns.size_bytes += taken_bytes
        return at

    def _broker_metadata(self, data: bytes, at: int, end: int) -> tuple[int, int, int]:
        """Offset of the entry, its last index and its time, from the 0x0e02 block at `data[at]`."""
        stop = at + 6 + int.from_bytes(data[at + 2 : at + 6], "big")
        head = self._broker_head
        if data.startswith(head, at):
            time_ms = self._broker_time_ms
            body = at + len(head)
        else:
            body = at + 6
            time_ms = UNKNOWN
            if body < stop and data[body] == 0x08:
                time_ms, body = read_varint(data, body + 1, stop)
            if body >= stop or data[body] != 0x10:
                # No index, or not in order: rare, so nothing is remembered.
                return stop, UNKNOWN, time_ms if body <= stop else UNKNOWN
            body += 1
            self._broker_head = data[at:body]
            self._broker_time_ms = time_ms
        index, body = read_varint(data, body, stop)
        return stop, index if body <= stop <= end else UNKNOWN, time_ms

    def _damaged(self, position: Position) -> PayloadError:
        return PayloadError(
            f"entry {position} of {self.where} does not match its checksum: damaged on the way or on disk;"
            " read it again, and if it stays so restore the ledger from a replica"
        )
