"""Filters of a query that narrow what is read: by topic, partition, publish time and key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from magnetar.arrow.row_filter import RowFilter
from magnetar.base.names import TopicName

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Conditions that must all hold; None stands for no condition."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    rows: RowFilter | None = None

    def wants(self, topic: TopicName) -> bool:
        """Whether a partition may have matching rows."""
        return (self.topics is None or str(topic.base) in self.topics) and (
            self.partitions is None or topic.partition in self.partitions
        )

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Pushed:
        """The conditions of these filters that can be pushed; they never exclude a row that the filters
        keep."""
        pushed = cls()
        for each in filters:
            pushed = pushed._with(each)
        return pushed

    def _with(self, each: Filter) -> Pushed:
        attribute = getattr(each, "attribute", ())
        values = _values(each)
        if attribute == ("topic",) and values is not None:
            return replace(self, topics=_both(self.topics, frozenset(map(str, values))))
        if attribute == ("partition",) and values is not None:
            numbers = frozenset(value for value in values if isinstance(value, int))
            return replace(self, partitions=_both(self.partitions, numbers))
        if attribute == ("key",) and values is not None:
            keys = frozenset(bytes(value) for value in values if isinstance(value, bytes | bytearray))
            if len(keys) == len(values):
                rows = self.rows or RowFilter()
                return replace(self, rows=replace(rows, keys=_both(rows.keys, keys)))
        if attribute == ("publish_time",):
            return self._with_time(each)
        return self

    def _with_time(self, each: Filter) -> Pushed:
        rows = self.rows or RowFilter()
        value = getattr(each, "value", None)
        if not isinstance(value, datetime):
            return self
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        # Publish times are whole milliseconds: rounding down keeps rows on the border, which Spark filters.
        time_ms = int(moment.timestamp() * 1000 // 1)
        if isinstance(each, GreaterThan | GreaterThanOrEqual | EqualTo | EqualNullSafe):
            rows = replace(rows, published_from_ms=max(time_ms, rows.published_from_ms or 0))
        if isinstance(each, LessThan | LessThanOrEqual | EqualTo | EqualNullSafe):
            until = rows.published_until_ms
            rows = replace(rows, published_until_ms=time_ms + 1 if until is None else min(time_ms + 1, until))
        return replace(self, rows=rows)


def _values(each: Filter) -> tuple[object, ...] | None:
    """The values that a filter allows for an attribute; None for filters of other kinds."""
    if isinstance(each, EqualTo | EqualNullSafe):
        return (each.value,)
    return tuple(each.value) if isinstance(each, In) else None


def _both(known: frozenset[T] | None, more: frozenset[T]) -> frozenset[T]:
    return more if known is None else known & more
