"""Finds columns that need not be read, because the footer shows one value for all rows of a row group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.history.columns import SCHEMA

Same: TypeAlias = Mapping[str, pa.Scalar]
"""By column name the value, or null, of all rows."""


def same_columns(
    row_group: pq.RowGroupMetaData, leaves: Mapping[str, list[int]], names: Iterable[str]
) -> Same:
    """The columns among `names` that have a single value.

    Either the smallest and the largest value are equal and no row is null, or all rows are null. A flipped
    bit in the footer breaks both conditions, and the column is read.
    """
    same = {}
    for name in names:
        (leaf, *more) = leaves.get(name, (None, None))
        if leaf is None or more:
            continue
        column = row_group.column(leaf)
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            continue
        kind = SCHEMA.field(name).type
        if statistics.null_count == row_group.num_rows:
            same[name] = pa.scalar(None, kind)
        elif not statistics.null_count and statistics.has_min_max and _alike(statistics):
            same[name] = pa.scalar(statistics.min, kind)
    return same


def _alike(statistics: pq.Statistics) -> bool:
    least: object = statistics.min_raw
    return bool(least == statistics.max_raw)
