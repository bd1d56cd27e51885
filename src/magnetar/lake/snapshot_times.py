"""Keeps the times of a table's snapshots ascending.

Readers in Java refuse a table while its metadata names snapshots, or a last update, whose times go back by
more than a minute. So after the clock was set back, each snapshot is a millisecond later than the last one,
and changes of metadata alone wait until the clock has passed it.

Source: Iceberg's table specification, `snapshot-log` and `last-updated-ms`; TableMetadata of its library.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _SnapshotProducer


def in_order(producer: _SnapshotProducer[Any]) -> _SnapshotProducer[Any]:
    """Makes the snapshot of a producer later than the table's last update; returns the producer."""
    make = producer._commit

    def commit() -> UpdatesAndRequirements:
        updates, requirements = make()
        metadata = producer._transaction._table.metadata
        return tuple(_later(update, metadata) for update in updates), requirements

    producer._commit = commit  # type: ignore[method-assign]  # pyiceberg has no place for a time
    return producer


def _later(update: TableUpdate, metadata: TableMetadata) -> TableUpdate:
    if not isinstance(update, AddSnapshotUpdate):
        return update
    snapshot = update.snapshot
    # One more: pyiceberg takes an equal time for none, and puts the clock's in its place.
    time_ms = max(snapshot.timestamp_ms, _last_ms(metadata) + 1)
    return AddSnapshotUpdate(snapshot=snapshot.model_copy(update={"timestamp_ms": time_ms}))


def is_ahead(table: Table, now_ms: int) -> bool:
    """Whether the clock is behind the table's last update."""
    return now_ms < _last_ms(table.metadata)


def _last_ms(metadata: TableMetadata) -> int:
    return max([metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.snapshot_log)])
