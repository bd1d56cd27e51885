"""Joins bytes from several arrays in one pass: views name the source of each part, and Arrow copies them.

A view has 16 bytes: `length i32`, then up to 12 bytes inline or, for longer parts,
`first four bytes | buffer u32 | offset i32`. This costs half as much as joining arrays element by element,
and short parts need no array. The first four bytes only serve comparisons; they are left out, because these
views are dropped after the copy.

Source: Arrow columnar format, variable-size binary view layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from magnetar.arrow.fields import Bytes, Ints

Views: TypeAlias = npt.NDArray[np.int32]
"""One row of four numbers per view."""

INLINE_BYTES: Final = 12
_CELL: Final = np.dtype([("length", np.int32), ("data", f"V{INLINE_BYTES}")])


class Joining:
    """The buffers to which views point, and the join of the views."""

    def __init__(self) -> None:
        self._buffers: list[pa.Buffer] = []

    def of_array(self, values: pa.Array) -> Views:
        """A view of each element of a binary array without nulls."""
        count = len(values)
        views: Views = np.zeros((count, 4), np.int32)
        if not count:
            return views
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + count + 1]
        lengths = np.diff(offsets)
        views[:, 0] = lengths
        views[:, 2] = len(self._buffers)
        views[:, 3] = offsets[:-1]
        data = values.buffers()[2]
        if data is None:
            return views
        self._buffers.append(data)
        if int(lengths.min()) <= INLINE_BYTES:
            short = np.flatnonzero((lengths <= INLINE_BYTES) & (lengths > 0))
            _inline(views, short, np.frombuffer(data, np.uint8), offsets[short])
        return views

    def of_matrix(self, matrix: Bytes) -> Views:
        """A view of each row of a matrix of bytes."""
        count, width = matrix.shape
        views: Views = np.zeros((count, 4), np.int32)
        views[:, 0] = width
        if width <= INLINE_BYTES:
            views.view(np.uint8)[:, 4 : 4 + width] = matrix
            return views
        views[:, 2] = len(self._buffers)
        views[:, 3] = np.arange(count, dtype=np.int32) * np.int32(width)
        self._buffers.append(pa.py_buffer(np.ascontiguousarray(matrix)))
        return views

    def join(self, views: Views, firsts: Ints | None = None, every: int = 1) -> pa.Array:
        """The bytes of all views, one after the other, as a binary array.

        An element begins at each view that `firsts` names, or without `firsts` at each `every`-th view.
        """
        pieces = pa.Array.from_buffers(
            pa.binary_view(), len(views), [None, pa.py_buffer(np.ascontiguousarray(views)), *self._buffers]
        ).cast(pa.binary())
        if firsts is None and every == 1:
            return pieces
        offsets = np.frombuffer(pieces.buffers()[1], np.int32)[: len(views) + 1]
        if firsts is None:
            places = np.ascontiguousarray(offsets[::every])
        else:
            places = offsets[np.append(firsts, len(views))]
        return pa.Array.from_buffers(
            pa.binary(), len(places) - 1, [None, pa.py_buffer(places), pieces.buffers()[2]]
        )


def has_short(values: pa.Array) -> bool:
    """Whether some elements are short enough to be held in the view."""
    if not len(values):
        return False
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return bool(np.diff(offsets).min() <= INLINE_BYTES)


def _inline(views: Views, rows: Ints, data: Bytes, starts: npt.NDArray[np.int32]) -> None:
    """Puts the bytes of these rows, which have at most 12, into their views."""
    cells = views.view(_CELL).reshape(len(views))["data"]
    # Twelve bytes each; readers ignore those beyond the length.
    inside = starts <= len(data) - INLINE_BYTES
    if len(data) >= INLINE_BYTES:
        windows = np.ndarray((len(data) - INLINE_BYTES + 1,), f"V{INLINE_BYTES}", data, strides=(1,))
        if len(rows) == len(views) and inside.all():
            cells[:] = windows[starts]
        else:
            cells[rows[inside]] = windows[starts[inside]]
    # A dozen at most: each has a byte of its own.
    for row, start in zip(rows[~inside].tolist(), starts[~inside].tolist(), strict=True):
        cells[row] = data[start:].tobytes().ljust(INLINE_BYTES, b"\0")


def side_by_side(columns: Sequence[Views]) -> Views:
    """The views of all columns, row by row."""
    if len(columns) == 1:
        return columns[0]
    together: Views = np.stack(columns, axis=1).reshape(-1, 4)
    return together
