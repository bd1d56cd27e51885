"""Columns that need not be read: the footer says that all rows of a row group have the same value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.history.columns import SCHEMA

Same: TypeAlias = Mapping[str, pa.Scalar]
"""The value that all rows have, or null, by the column's name."""


def same_columns(
    row_group: pq.RowGroupMetaData, leaves: Mapping[str, list[int]], names: Iterable[str]
) -> Same:
    """Of these columns, those with one value alone.

    The least and the greatest value are the same then and no row is null, or all are: a footer in which a bit
    was flipped says neither, and the column is read.
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
    least: Any = statistics.min_raw
    return bool(least == statistics.max_raw)
