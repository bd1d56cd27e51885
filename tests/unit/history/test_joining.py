"""Bytes put side by side by views, against Python's own joining."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.history.joining import Joining, side_by_side

ELEMENTS = st.lists(st.binary(max_size=30), min_size=1, max_size=20)


@given(st.lists(ELEMENTS, min_size=1, max_size=4), st.integers(0, 3))
def test_arrays_side_by_side(columns: list[list[bytes]], skipped: int) -> None:
    """Of elements short and long, also of slices of arrays."""
    count = min(map(len, columns))
    joining = Joining()
    views = [
        joining.of_array(pa.array([b"skipped"] * skipped + column[:count], pa.binary()).slice(skipped))
        for column in columns
    ]
    joined = joining.join(side_by_side(views), every=len(columns))
    assert joined.to_pylist() == [b"".join(row) for row in zip(*columns, strict=False)]


@pytest.mark.parametrize("width", [1, 12, 13, 40])
def test_rows_of_a_matrix(width: int) -> None:
    matrix = np.arange(3 * width, dtype=np.uint8).reshape(3, width)
    joining = Joining()
    joined = joining.join(
        side_by_side([joining.of_matrix(matrix), joining.of_matrix(matrix[:, :1])]), every=2
    )
    assert joined.to_pylist() == [row.tobytes() + row[:1].tobytes() for row in matrix]


def test_elements_of_several_views() -> None:
    joining = Joining()
    views = joining.of_array(pa.array([b"a", b"much more than a dozen", b"b", b"c"], pa.binary()))
    assert joining.join(views, np.array([0, 3])).to_pylist() == [b"amuch more than a dozenb", b"c"]


def test_nothing() -> None:
    joining = Joining()
    assert len(joining.join(joining.of_array(pa.array([], pa.binary())))) == 0
