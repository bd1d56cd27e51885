"""Protobuf messages by the thousand, written from columns: the counterpart of `magnetar.arrow.fields`.

A message is a row of pieces side by side. Numbers, tags and lengths, which are short, are laid out in one
matrix of bytes with a mask; bytes and texts stay Arrow arrays; one pass of Arrow's own code joins all.

Source: protobuf wire format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.fields import Bools, Bytes, Ints

_EMPTY = pa.scalar(b"", pa.binary())


def byte_lengths(values: pa.Array) -> Ints:
    """Bytes of each element of a binary array; 0 for null."""
    lengths: Ints = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def varint_lengths(values: Ints) -> Ints:
    """Bytes of each number as a varint. Negative numbers take ten, as in protobuf."""
    unsigned = values.view(np.uint64)
    largest = int(unsigned.max()) if len(unsigned) else 0
    lengths: Ints = np.ones(len(values), np.int64)
    shift = 7
    while largest >> shift:
        lengths += unsigned >= np.uint64(1 << shift)
        shift += 7
    return lengths


class Pieces:
    """Messages under construction, all of them at once; fields in the order of the calls."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.lengths: Ints = np.zeros(count, np.int64)
        """Bytes of each message so far."""
        self._in_matrix: Ints = np.zeros(count, np.int64)
        """Those of them that lie in the matrix."""
        self._bytes: list[Bytes] = []
        self._masks: list[Bools] = []
        self._arrays: list[pa.Array] = []

    def fixed(self, values: bytes, present: Bools | None = None) -> None:
        """These bytes, where `present`."""
        mask = np.ones(self._count, np.bool_) if present is None else present
        for value in values:
            self._bytes.append(np.full(self._count, value, np.uint8))
            self._masks.append(mask)
        self._count_in(len(values) * mask)

    def u32(self, values: Ints, present: Bools | None = None) -> None:
        """Four bytes, big-endian, where `present`."""
        mask = np.ones(self._count, np.bool_) if present is None else present
        for shift in (24, 16, 8, 0):
            self._bytes.append((values >> shift).astype(np.uint8))
            self._masks.append(mask)
        self._count_in(4 * mask)

    def varint(self, values: Ints, present: Bools) -> None:
        """A varint, where `present`."""
        unsigned = np.where(present, values, 0).view(np.uint64)
        sizes = varint_lengths(unsigned.view(np.int64))
        longest = int(sizes.max()) if self._count else 0
        for at in range(longest):
            byte = (unsigned >> np.uint64(7 * at)).astype(np.uint8) & np.uint8(0x7F)
            byte |= (sizes > at + 1).astype(np.uint8) << np.uint8(7)
            self._bytes.append(byte)
            self._masks.append(present & (sizes > at))
        self._count_in(sizes * present)

    def _count_in(self, sizes: npt.NDArray[Any]) -> None:
        self.lengths += sizes
        self._in_matrix += sizes

    def number(self, field: int, values: Ints, present: Bools) -> None:
        """A varint field, where `present`."""
        if present.any():
            self.fixed(_tag(field, 0), present)
            self.varint(values, present)

    def flag(self, field: int, values: Bools, present: Bools) -> None:
        """A boolean field, where `present`."""
        self.number(field, values.astype(np.int64), present)

    def data(self, field: int, values: pa.Array, present: Bools) -> None:
        """A field of bytes or text, where `present`; null counts as empty. Binary array."""
        if not present.any():
            return
        if values.null_count:
            values = pc.fill_null(values, _EMPTY)
        if not present.all():
            values = pc.if_else(pa.array(present), values, _EMPTY)
        sizes = byte_lengths(values)
        self.fixed(_tag(field, 2), present)
        self.varint(sizes, present)
        self.plain(values)

    def plain(self, values: pa.Array) -> None:
        """Bytes as they are. Binary array without nulls."""
        self._flush()
        self._arrays.append(values)
        self.lengths += byte_lengths(values)

    def _flush(self) -> None:
        """What lies in the matrix becomes an array."""
        if not self._bytes:
            return
        mask = np.stack(self._masks, axis=1)
        data: Bytes = np.stack(self._bytes, axis=1)[mask]
        self._arrays.append(_binary(data, self._in_matrix))
        self._bytes, self._masks = [], []
        self._in_matrix = np.zeros(self._count, np.int64)

    def join(self) -> pa.Array:
        """The messages, a binary array."""
        self._flush()
        if not self._arrays:
            return pa.array([b""] * self._count, pa.binary())
        if len(self._arrays) == 1:
            return self._arrays[0]
        return pc.binary_join_element_wise(*self._arrays, _EMPTY)


def _binary(data: Bytes, lengths: npt.NDArray[Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _tag(field: int, kind: int) -> bytes:
    tag = field << 3 | kind
    return bytes((tag,)) if tag < 0x80 else bytes((tag & 0x7F | 0x80, tag >> 7))


def key_values(field: int, maps: pa.Array) -> pa.Array:
    """Each map as repeated KeyValue messages (1 key, 2 value) of this field; a binary array, empty for an
    empty map or null."""
    offsets: npt.NDArray[np.int32] = maps.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    keys = maps.keys.slice(first, last - first).cast(pa.binary())
    values = maps.items.slice(first, last - first).cast(pa.binary())
    everywhere = np.ones(last - first, np.bool_)
    inner = Pieces(last - first)
    inner.data(1, keys, everywhere)
    inner.data(2, values, everywhere)
    outer = Pieces(last - first)
    outer.data(field, inner.join(), everywhere)
    pairs = outer.join()
    if not len(pairs):
        return pa.array([b""] * len(maps), pa.binary())
    ends: npt.NDArray[np.int32] = np.frombuffer(pairs.buffers()[1], np.int32)[: len(pairs) + 1]
    assert pairs.offset == 0
    places = ends[offsets - first]
    return pa.Array.from_buffers(
        pa.binary(), len(maps), [None, pa.py_buffer(np.ascontiguousarray(places)), pairs.buffers()[2]]
    )
