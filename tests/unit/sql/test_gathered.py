"""Small batches of a result become larger ones, and no row waits behind an error."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from magnetar.sql.queries import BATCH_BYTES, BATCH_ROWS_MAX, gathered


def batches(count: int, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch({"n": [f"{number}.{row}".ljust(size) for row in range(rows)]})


@pytest.mark.parametrize(
    ("count", "rows", "size", "wanted"),
    [
        (0, 0, 0, 0),
        (1, 5, 10, 1),
        (100, 10, 10, 1),
        (2_000, 64, 1, 4),
        (20, 2, 300_000, 10),
        (3, 1, BATCH_BYTES, 3),
    ],
)
def test_rows_and_their_order_stay(count: int, rows: int, size: int, wanted: int) -> None:
    made = list(gathered(batches(count, rows, size)))
    found = [value.strip() for batch in made for value in batch.column(0).to_pylist()]
    assert found == [f"{number}.{row}" for number in range(count) for row in range(rows)]
    assert len(made) == wanted
    assert all(batch.num_rows <= BATCH_ROWS_MAX for batch in made)


def test_what_came_before_an_error_is_there() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(3, 1, 1)
        raise ValueError("gone")

    made: list[pa.RecordBatch] = []
    with pytest.raises(ValueError, match="gone"):
        made.extend(gathered(broken()))
    assert [batch.num_rows for batch in made] == [3]
