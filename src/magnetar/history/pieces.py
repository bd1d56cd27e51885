"""Writes many protobuf messages at once from columns: the counterpart of `magnetar.arrow.fields`.

A message is a sequence of pieces. Numbers, tags and lengths, which are short, form a matrix of bytes with
masks; bytes and texts stay Arrow arrays. One pass joins all pieces (`joining.py`).

Source: protobuf wire format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.history.joining import Joining, Views, has_short, side_by_side

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


class _Matrix:
    """Bytes of several fields: a column for each byte, with a mask of the rows that have it; None: all
    rows."""

    def __init__(self) -> None:
        self.bytes: list[Bytes] = []
        self.masks: list[Bools | None] = []

    def whole(self) -> Bytes | None:
        """The matrix if every row has all its bytes; else None."""
        if all(mask is None for mask in self.masks):
            return np.stack(self.bytes, axis=1)
        return None

    def array(self) -> pa.Array:
        """The bytes of each row as a binary array."""
        count = len(self.bytes[0])
        everywhere = np.ones(count, np.bool_)
        mask = np.stack([everywhere if mask is None else mask for mask in self.masks], axis=1)
        data: Bytes = np.stack(self.bytes, axis=1)[mask]
        return _binary(data, mask.sum(axis=1))


class Pieces:
    """Messages under construction. Each call appends a field to all messages at once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.lengths: Ints = np.zeros(count, np.int64)
        """Bytes of each message so far."""
        self._parts: list[_Matrix | pa.Array] = []

    def _add(self, values: Bytes, mask: Bools | None) -> None:
        if not self._parts or not isinstance(self._parts[-1], _Matrix):
            self._parts.append(_Matrix())
        last = self._parts[-1]
        last.bytes.append(values)
        last.masks.append(mask)

    def fixed(self, values: bytes, present: Bools | None = None) -> None:
        """Appends these bytes where `present`; None: everywhere."""
        mask = _mask(present)
        for value in values:
            self._add(np.full(self._count, value, np.uint8), mask)
        self.lengths += len(values) if mask is None else len(values) * mask

    def u32(self, values: Ints, present: Bools | None = None) -> None:
        """Appends four bytes, big-endian, where `present`; None: everywhere."""
        mask = _mask(present)
        cells = values.astype(">u4").view(np.uint8).reshape(-1, 4)
        for at in range(4):
            self._add(cells[:, at], mask)
        self.lengths += 4 if mask is None else 4 * mask

    def varint(self, values: Ints, present: Bools) -> None:
        """Appends a varint where `present`."""
        if not self._count:
            return
        unsigned = values.view(np.uint64) if present.all() else np.where(present, values, 0).view(np.uint64)
        sizes = varint_lengths(unsigned.view(np.int64))
        shortest, longest = int(sizes.min()), int(sizes.max())
        everywhere = _mask(present)
        for at in range(longest):
            byte = (unsigned >> np.uint64(7 * at)).astype(np.uint8)
            if at + 1 < shortest:
                byte |= np.uint8(0x80)
            elif at + 1 < longest:
                byte &= np.uint8(0x7F)
                byte |= (sizes > at + 1).astype(np.uint8) << np.uint8(7)
            self._add(byte, everywhere if at < shortest else present & (sizes > at))
        self.lengths += sizes if everywhere is None else sizes * present

    def number(self, field: int, values: Ints, present: Bools) -> None:
        """Appends a varint field where `present`."""
        if present.any():
            self.fixed(_tag(field, 0), present)
            self.varint(values, present)

    def flag(self, field: int, values: Bools, present: Bools) -> None:
        """Appends a boolean field where `present`."""
        self.number(field, values.astype(np.int64), present)

    def data(self, field: int, values: pa.Array, present: Bools) -> None:
        """Appends a field of bytes or text where `present`. `values`: binary array; null counts as empty."""
        if not present.any():
            return
        if values.null_count:
            values = pc.fill_null(values, _EMPTY)
        if not present.all():
            values = pc.if_else(pa.array(present), values, _EMPTY)
        sizes = byte_lengths(values)
        self.fixed(_tag(field, 2), present)
        self.varint(sizes, present)
        self.plain(values, sizes)

    def plain(self, values: pa.Array, sizes: Ints | None = None) -> None:
        """Appends bytes without tag and length. `values`: binary array without nulls; `sizes`: their lengths
        if known."""
        self._parts.append(values)
        self.lengths += byte_lengths(values) if sizes is None else sizes

    def append(self, others: Pieces) -> None:
        """Appends the messages of `others`, each to the message of the same row. Do not use `others`
        again."""
        for part in others._parts:
            if isinstance(part, _Matrix):
                for values, mask in zip(part.bytes, part.masks, strict=True):
                    self._add(values, mask)
            else:
                self._parts.append(part)
        self.lengths += others.lengths

    def views(self, joining: Joining) -> list[Views]:
        """The parts of the messages: for each part the views of all messages."""
        found = []
        for part in self._gathered():
            whole = part.whole() if isinstance(part, _Matrix) else None
            found.append(joining.of_array(_array(part)) if whole is None else joining.of_matrix(whole))
        return found

    def _gathered(self) -> list[_Matrix | pa.Array]:
        """The parts, with neighbours of short elements joined: to put short bytes into views one by one costs
        several times as much as joining arrays."""
        gathered: list[_Matrix | pa.Array] = []
        waiting: list[_Matrix | pa.Array] = []
        for part in [*self._parts, None]:
            if part is None or not (isinstance(part, _Matrix) or has_short(part)):
                if any(not isinstance(each, _Matrix) for each in waiting):
                    waiting = [_join_arrays([_array(each) for each in waiting])]
                gathered += waiting
                waiting = []
                if part is not None:
                    gathered.append(part)
            else:
                waiting.append(part)
        return gathered

    def join(self) -> pa.Array:
        """The messages as a binary array."""
        if not self._parts:
            return pa.array([b""] * self._count, pa.binary())
        if len(self._parts) == 1 or any(
            not isinstance(each, _Matrix) and has_short(each) for each in self._parts
        ):
            return _join_arrays([_array(part) for part in self._parts])
        joining = Joining()
        views = self.views(joining)
        return joining.join(side_by_side(views), every=len(views))


def _array(part: _Matrix | pa.Array) -> pa.Array:
    return part.array() if isinstance(part, _Matrix) else part


def _join_arrays(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pc.binary_join_element_wise(*arrays, _EMPTY)


def _mask(present: Bools | None) -> Bools | None:
    return None if present is None or present.all() else present


def _binary(data: Bytes, lengths: npt.NDArray[Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _tag(field: int, kind: int) -> bytes:
    tag = field << 3 | kind
    return bytes((tag,)) if tag < 0x80 else bytes((tag & 0x7F | 0x80, tag >> 7))


def key_values(field: int, maps: pa.Array) -> pa.Array:
    """Each map as repeated KeyValue messages (1 key, 2 value) of this field, as a binary array; empty for an
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
