"""Texts for Spark's own Parquet reader of history files: paths, columns and conditions. Pure.

Texts, because Spark Classic and Spark Connect have different column classes, but the same SQL.

Source: docs/internals/history-format.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from magnetar.arrow.columns import EXTRA_TYPES
from magnetar.base.names import TopicName
from magnetar.tables.segment_traits import SegmentTraits
from magnetar.tables.stretches import HistoryFile, Stretch

FILE_SCHEMA: Final = (
    "ledger_id BIGINT, entry_id BIGINT, batch_index INT, entry_index BIGINT, broker_time TIMESTAMP,"
    " publish_time TIMESTAMP, event_time TIMESTAMP, key BINARY, key_is_string BOOLEAN, ordering_key BINARY,"
    " producer_name STRING, sequence_id BIGINT, properties MAP<STRING, STRING>, schema_version BINARY,"
    " replicated_from STRING, is_null_value BOOLEAN, is_compacted_out BOOLEAN, marker_type INT,"
    " payload BINARY"
)
"""The schema of a file, given to Spark so that it does not open a file to find it."""

_PLAIN_PATH: Final = re.compile(r"[^\\*?\[\]{}]*")
"""Paths that Spark does not take as patterns."""
_PLAIN_TEXT: Final = re.compile(r"[^\\']*")
"""Texts without characters to escape in SQL, under every escape setting of the session."""
_HADOOP_SCHEMES: Final = {"file": "file", "hdfs": "hdfs", "s3": "s3a", "gs": "gs"}
"""By the scheme of an object store: the scheme of Spark's file system for it."""


def spark_path(file: HistoryFile) -> str | None:
    """The URL under which Spark finds a file; None when Spark cannot read its storage, or its path
    has characters of a pattern."""
    parts = urlsplit(file.url)
    scheme = _HADOOP_SCHEMES.get(parts.scheme)
    if scheme is None:
        return None
    path = f"{scheme}://{parts.netloc}{unquote(parts.path).rstrip('/')}/{file.name}"
    return path if _PLAIN_PATH.fullmatch(path) else None


def can_be_scanned(topic: TopicName) -> bool:
    """Whether the topic's name can be written in SQL."""
    return _PLAIN_TEXT.fullmatch(str(topic)) is not None


@dataclass(frozen=True, slots=True)
class ParquetScan:
    """Files of one partition whose rows are all plain, and the wanted part of them."""

    topic: TopicName
    stretches: tuple[Stretch, ...]
    paths: tuple[str, ...]
    is_whole: bool
    """Whether all entries in the files are wanted."""
    has_hidden: bool
    """Whether the files may have rows that are not messages."""
    has_nulls: bool

    def columns(self, names: Sequence[str], *, as_text: bool) -> list[str]:
        """An expression for each column of a topic's table."""
        made = {
            "value": self._value(as_text=as_text),
            "payload": self._value(as_text=False),
            "topic": f"'{self.topic.base}'",
            "partition": str(self.topic.partition),
            "message_id": (
                "concat_ws(':', CAST(ledger_id AS STRING), CAST(entry_id AS STRING),"
                f" '{self.topic.partition}', CAST(batch_index AS STRING))"
            ),
            "redelivery_count": "0",
            "headers": f"CAST(map_entries(properties) AS {EXTRA_TYPES['headers']})",
            "encryption": f"CAST(NULL AS {EXTRA_TYPES['encryption']})",
        }
        return [f"{made.get(name, name)} AS {name}" for name in names]

    def _value(self, *, as_text: bool) -> str:
        payload = "payload"
        if self.has_nulls:
            payload = "IF(is_null_value, NULL, payload)"
        # Bytes that are not UTF-8 are an error, as it is in rows that come from a broker.
        return f"validate_utf8(CAST({payload} AS STRING))" if as_text else payload

    def condition(self, keys: frozenset[bytes] | None) -> str:
        """The SQL condition for the wanted messages; empty when all rows are wanted."""
        parts = []
        if self.has_hidden:
            parts += ["marker_type IS NULL", "NOT is_compacted_out"]
        if not self.is_whole:
            # Each entry is in one file only, so the condition need not name the file.
            wanted = [
                f"(ledger_id = {stretch.start[0]} AND entry_id >= {stretch.start[1]}"
                f" AND entry_id < {stretch.end[1]})"
                for stretch in self.stretches
            ]
            parts.append(f"({' OR '.join(wanted)})")
        if keys is not None:
            listed = ", ".join(f"X'{key.hex()}'" for key in sorted(keys))
            parts.append(f"key IN ({listed})" if listed else "false")
        return " AND ".join(parts)


def scans_of(topic: TopicName, found: Sequence[tuple[Stretch, SegmentTraits]]) -> list[ParquetScan]:
    """Up to three scans: of the files that are read whole, of those whose rows need a check, and of those of
    which a part is wanted."""
    by_path: dict[str, list[tuple[Stretch, SegmentTraits]]] = {}
    for stretch, traits in found:
        path = None if stretch.file is None else spark_path(stretch.file)
        assert path is not None
        by_path.setdefault(path, []).append((stretch, traits))
    groups: dict[tuple[bool, bool], list[str]] = {}
    for path, parts in by_path.items():
        traits = parts[0][1]
        wanted = {(each.start[0], each.start[1], each.end[1] - 1) for each, _ in parts}
        is_whole = wanted == traits.ledgers
        is_clean = is_whole and not traits.has_hidden and not traits.has_nulls
        groups.setdefault((is_clean, is_whole), []).append(path)
    return [
        ParquetScan(
            topic,
            tuple(stretch for path in paths for stretch, _ in by_path[path]),
            tuple(paths),
            is_whole,
            any(by_path[path][0][1].has_hidden for path in paths),
            any(by_path[path][0][1].has_nulls for path in paths),
        )
        for (_, is_whole), paths in groups.items()
    ]
