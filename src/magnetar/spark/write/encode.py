"""Encodes rows of Arrow record batches as entries, by partition of the target.

Rows keep their order within a partition. The hash of the key, that of the Java client, chooses the partition,
so that a key has the same partition for all publishers. Rows without a key go to the partitions in turn, an
entry at a time.

Source: Pulsar's MessageMetadata and SingleMessageMetadata; JavaStringHash.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import pyarrow as pa

from magnetar.client.compression import compress
from magnetar.spark.write.staged import StagedEntry
from magnetar.wire.frames import varint

_U32: Final = struct.Struct(">I")


@lru_cache(maxsize=1 << 16)
def java_string_hash(text: str) -> int:
    """The hash of Java's String, without its sign: 31-polynomial over UTF-16 units."""
    result = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        result = (31 * result + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return result & 0x7FFFFFFF


@lru_cache(maxsize=1 << 12)
def _head_of(payload_bytes: int | None) -> bytes:
    """The bytes before a row in a batch, for a row with only a payload of this size; None: a null value."""
    metadata = b"\x18\x00\x48\x01" if payload_bytes is None else b"\x18" + varint(payload_bytes)
    return _U32.pack(len(metadata)) + metadata


class _Batch:
    """Rows that become one entry."""

    __slots__ = ("count", "first_key", "parts", "size_bytes")

    def __init__(self, first_key: tuple[bytes, bytes]) -> None:
        self.first_key = first_key
        """Key fields and ordering key of the rows, as they stand in the entry when it is of one key."""
        self.parts: list[bytes] = []
        self.count = 0
        self.size_bytes = 0


_Place = int | tuple[int, tuple[bytes, bytes]]
"""Which open entry takes a row: that of its partition, or of its partition and its key and ordering key."""


class RowEncoder:
    """Packs rows into entries. `encode` returns full entries, `finish` the rest."""

    def __init__(
        self,
        partitions: int,
        *,
        batching: str,
        rows_max: int,
        bytes_max: int,
        compression: int,
        schema_version: bytes = b"",
        first_partition: int = 0,
    ) -> None:
        """
        Args:
            partitions: of the target; 0 when it is not partitioned.
            batching: one of `options.BATCHINGS`.
            rows_max: rows in an entry; bytes_max: bytes from which on an entry is full.
            compression: number in CompressionType.
            first_partition: where rows without a key start to go round.
        """
        self._partitions = partitions
        self._batching = batching
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._compression = compression
        self._schema_version = schema_version
        self._next = first_partition
        self._batches: dict[_Place, _Batch] = {}
        self.digest = 0
        """Digest of the rows so far, independent of their order: the sum of their CRCs. Tasks of a repeated
        batch may take the same rows in another order, and cut them into other entries."""

    def encode(self, batch: pa.RecordBatch) -> Iterator[StagedEntry]:
        """Adds the rows, and yields the entries that become full."""
        if batch.schema.names == ["value"] and self._batching == "partition":
            values = batch.column(0).cast(pa.binary()).to_pylist()
            there = filter(None, values) if batch.column(0).null_count else values
            self.digest += sum(map(crc32, there)) + batch.column(0).null_count
            yield from self._encode_values(values)
            return
        rows = _Rows(batch)
        for row in range(batch.num_rows):
            value, key_text, head, key_fields, tail = rows.message(row)
            partition = self._partition(key_text)
            self.digest += crc32(value or b"", crc32(tail, crc32(head)))
            if self._batching == "none":
                yield self._single(partition, value, rows.single_tail(row))
                self._next += key_text is None
                continue
            place: _Place = partition if self._batching == "partition" else (partition, key_fields)
            batch_of_row = self._batches.get(place)
            if batch_of_row is None:
                batch_of_row = self._batches[place] = _Batch(key_fields)
            payload_bytes = 0 if value is None else len(value)
            metadata = b"".join((head, b"\x18", varint(payload_bytes), tail))
            batch_of_row.parts += (_U32.pack(len(metadata)), metadata, value or b"")
            batch_of_row.count += 1
            batch_of_row.size_bytes += 4 + len(metadata) + payload_bytes
            if batch_of_row.count >= self._rows_max or batch_of_row.size_bytes >= self._bytes_max:
                yield self._finish(place)

    def _encode_values(self, values: list[bytes | None]) -> Iterator[StagedEntry]:
        """As `encode`, faster, for rows with only a value."""
        place, batch = self._keyless()
        for value in values:
            head = _head_of(None if value is None else len(value))
            batch.parts += (head, value or b"")
            batch.count += 1
            batch.size_bytes += len(head) + len(value or b"")
            if batch.count >= self._rows_max or batch.size_bytes >= self._bytes_max:
                yield self._finish(place)
                place, batch = self._keyless()
        if not batch.count:
            del self._batches[place]

    def _keyless(self) -> tuple[int, _Batch]:
        """The current partition of rows without a key, and its open batch."""
        place = self._partition(None)
        batch = self._batches.get(place)
        if batch is None:
            batch = self._batches[place] = _Batch((b"", b""))
        return place, batch

    def finish(self) -> Iterator[StagedEntry]:
        """Yields the entries that are not full."""
        for place in list(self._batches):
            yield self._finish(place)

    def _partition(self, key_text: str | None) -> int:
        if not self._partitions:
            return -1
        if key_text is None:
            return self._next % self._partitions
        return java_string_hash(key_text) % self._partitions

    def _finish(self, place: _Place) -> StagedEntry:
        batch = self._batches.pop(place)
        partition = place if isinstance(place, int) else place[0]
        # The entry that took rows without a key is full: the next ones go to the next partition.
        took_keyless = (
            partition == self._next % max(self._partitions, 1)
            if self._batching == "partition"
            else batch.first_key == (b"", b"")
        )
        self._next += took_keyless
        payload = b"".join(batch.parts)
        key_fields, ordering_key = batch.first_key if self._batching == "key" else (b"", b"")
        key, key_flags = _split_key(key_fields)
        tail = b"".join(
            (
                key,
                self._compressed_fields(len(payload)),
                b"\x58",
                varint(batch.count),
                self._schema_field(),
                key_flags,
                b"" if not ordering_key else b"\x92\x01" + ordering_key,
            )
        )
        return StagedEntry(partition, batch.count, tail, compress(self._compression, payload))

    def _single(self, partition: int, value: bytes | None, fields: tuple[bytes, bytes, bytes]) -> StagedEntry:
        before, between, after = fields
        payload = value or b""
        tail = b"".join((before, self._compressed_fields(len(payload)), between, self._schema_field(), after))
        return StagedEntry(partition, 1, tail, compress(self._compression, payload))

    def _compressed_fields(self, plain_bytes: int) -> bytes:
        if not self._compression:
            return b""
        return b"\x40" + varint(self._compression) + b"\x48" + varint(plain_bytes)

    def _schema_field(self) -> bytes:
        version = self._schema_version
        return b"\x82\x01" + varint(len(version)) + version if version else b""


def _split_key(key_fields: bytes) -> tuple[bytes, bytes]:
    """The key (field 6) and its flag (field 17) of an entry from length-prefixed key and flag."""
    if not key_fields:
        return b"", b""
    return b"\x32" + key_fields[1:], b"\x88\x01\x01" if key_fields[0] else b""


class _Rows:
    """The columns of a record batch as Python values, and the metadata of each row."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        self._count = batch.num_rows

        def column(name: str) -> list[Any]:
            if name not in names:
                return [None] * batch.num_rows
            values: list[object] = batch.column(names.index(name)).to_pylist()
            return values

        self._values = column("value")
        self._keys = column("key")
        self._key_is_string = column("key_is_string")
        self._ordering_keys = column("ordering_key")
        self._properties = column("properties")
        self._event_times = (
            batch.column(names.index("event_time")).cast(pa.int64()).to_pylist()
            if "event_time" in names
            else [None] * batch.num_rows
        )

    def _key(self, row: int) -> tuple[str | None, bool]:
        """The key as text, and whether that is base64."""
        key = self._keys[row]
        if key is None:
            return None, False
        if isinstance(key, str):
            return key, False
        if self._key_is_string[row]:
            return key.decode(), False
        return base64.b64encode(key).decode("ascii"), True

    def _ordering_key(self, row: int) -> bytes:
        """Length and bytes of the ordering key; empty without one."""
        return _sized(self._ordering_keys[row])

    def _property_list(self, row: int) -> list[bytes]:
        pairs = self._properties[row]
        if not pairs:
            return []
        items = pairs.items() if isinstance(pairs, dict) else pairs
        return [
            b"\x0a" + _sized(key) + b"\x12" + _sized("" if value is None else value) for key, value in items
        ]

    def message(self, row: int) -> tuple[bytes | None, str | None, bytes, tuple[bytes, bytes], bytes]:
        """A row as part of a batch.

        Returns its value, its key as text, the fields before and (last) after the payload's size, and what
        tells its key from others: flag, length and key; length and ordering key.
        """
        value = _bytes(self._values[row])
        head = b""
        if self._properties[row]:
            head = b"".join(b"\x0a" + varint(len(pair)) + pair for pair in self._property_list(row))
        key_text, is_base64 = self._key(row)
        key_fields = ordering_key = tail = b""
        if key_text is not None:
            sized = _sized(key_text)
            head += b"\x12" + sized
            key_fields = (b"\x01" if is_base64 else b"\x00") + sized
        event_time = self._event_times[row]
        if event_time is not None:
            tail += b"\x28" + varint(max(event_time // 1000, 0))
        if is_base64:
            tail += b"\x30\x01"
        if self._ordering_keys[row] is not None:
            ordering_key = self._ordering_key(row)
            tail += b"\x3a" + ordering_key
        if value is None:
            tail += b"\x48\x01"
        return value, key_text, head, (key_fields, ordering_key), tail

    def single_tail(self, row: int) -> tuple[bytes, bytes, bytes]:
        """A row as an entry of its own: its fields in front of 8, from 10 to 15, and from 17 on."""
        before = b"".join(b"\x22" + varint(len(pair)) + pair for pair in self._property_list(row))
        key_text, is_base64 = self._key(row)
        if key_text is not None:
            before += b"\x32" + _sized(key_text)
        event_time = self._event_times[row]
        between = b"" if event_time is None else b"\x60" + varint(max(event_time // 1000, 0))
        after = b"\x88\x01\x01" if is_base64 else b""
        if self._ordering_keys[row] is not None:
            after += b"\x92\x01" + self._ordering_key(row)
        if self._values[row] is None:
            after += b"\xc8\x01\x01"
        return before, between, after


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _sized(value: bytes | str | None) -> bytes:
    """Length and bytes of a length-delimited field; empty for None."""
    if value is None:
        return b""
    raw = value.encode() if isinstance(value, str) else value
    return varint(len(raw)) + raw
