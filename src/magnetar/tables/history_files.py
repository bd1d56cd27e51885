"""What a file of history says in its footer that matters to planning a query: rows, times, schemas, keys."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.base.errors import MagnetarError
from magnetar.tables.history import open_segment
from magnetar.tables.segment_traits import SegmentTraits
from magnetar.tables.stretches import HistoryFile
from magnetar.tiered.parquet.parquet_history import StoredTopicSchema


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The content of one file, by its footer."""

    traits: SegmentTraits
    rows: int
    published_ms: tuple[int, int] | None
    """Earliest and latest publish time, Unix ms; None when not every row has one."""
    schemas: tuple[StoredTopicSchema, ...]
    """The topic's schemas when the file was written, the newest last."""
    value: pa.DataType | None
    """The type of the decoded values; None when it has none."""
    has_keys: bool
    """Whether a row may have one of the keys that were asked for."""


def facts_of(file: HistoryFile, keys: frozenset[bytes] | None) -> FileFacts | None:
    """The facts; None when the file cannot be read from here. Costs one ranged read, and up to two more for
    each of `keys` (None: they do not matter)."""
    try:
        reader = open_segment(file)
        metadata = reader.metadata
        summary = reader.summary
        times = summary.publish_time_min_ms, summary.publish_time_max_ms
        return FileFacts(
            traits=SegmentTraits.of(metadata),
            rows=metadata.num_rows,
            published_ms=None if None in times or not _all_have_times(metadata) else times,  # type: ignore[arg-type]  # None was excluded
            schemas=tuple(reader.schemas),
            value=_value_type(metadata),
            has_keys=keys is None or bool(reader.row_groups_with(keys)),
        )
    except (OSError, pa.ArrowException, MagnetarError):
        return None


def _all_have_times(metadata: pq.FileMetaData) -> bool:
    names = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    number = names.index("publish_time")
    found = (metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups))
    return all(each is not None and each.has_null_count and each.null_count == 0 for each in found)


def _value_type(metadata: pq.FileMetaData) -> pa.DataType | None:
    schema = metadata.schema.to_arrow_schema()
    number = schema.get_field_index("value")
    return None if number < 0 else schema.field(number).type
