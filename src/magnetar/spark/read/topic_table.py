"""A topic as a table whose history Spark reads directly.

`format("magnetar")` passes all rows through Python. Here, Spark's own reader scans the files of history, and
the source reads the rest: entries that are in no file yet, and files that only the source can read. Both are
parts of one plan, fixed at the moment of the call. Each entry is in exactly one part, whatever is offloaded
later.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.runtime.threads import pool
from magnetar.spark.errors import OptionError
from magnetar.spark.option_values import canonical_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from magnetar.spark.read.parquet_scan import ParquetScan
    from magnetar.spark.read.read_options import ReadOptions
    from magnetar.spark.read.spans import FoundSpans
    from magnetar.spark.read.table_shape import TableShape
    from magnetar.tables.segment_traits import SegmentTraits
    from magnetar.tables.stretches import HistoryFile, Stretch

_log = logging.getLogger("magnetar.spark")

SCANS_MAX: Final = 128
"""Most scans of a query, as each makes Spark's planning slower. Beyond that, the source reads the partitions
with the least history."""
_FOOTERS_AT_ONCE: Final = 16
"""Number of footers that are read at the same time; from an object store, each takes tens of milliseconds."""

_REFUSED: Final = {
    **dict.fromkeys(
        (
            "maxrowspertrigger",
            "maxbytespertrigger",
            "minrowspertrigger",
            "maxtriggerdelay",
            "subscription",
            "waitingfornonexistedtopic",
        ),
        "is for streams: read them with spark.readStream.format('magnetar')",
    ),
    "limit": "has no effect on files that Spark reads directly: use .limit(n) of the DataFrame",
}
_FIXED: Final = frozenset(
    (
        "topic",
        "topics",
        "topicspattern",
        "namespace",
        "assign",
        "ranges",
        "startingoffsets",
        "startingtimestamp",
        "endingoffsets",
        "endingtimestamp",
        "valueformat",
    )
)
"""Options that the source gets in another form, for the part that it reads."""


def table(
    spark: SparkSession, topic: str = "", options: Mapping[str, str] | None = None, **more: str
) -> DataFrame:
    """Returns the topic in its current state, with the columns and types of `format("magnetar")`.

    Args:
        topic: its name, or several separated by commas; empty with topicsPattern or namespace.
        options: those of `format("magnetar")`.
        more: the same, with `_` for dots: `service_url="pulsar://localhost:6650"`.

    Rows have no order. A file that is removed after the call is an error of the query that reads it.
    Raises OptionError, TopicDataLossError, ClientError.
    """
    from magnetar.spark.cluster import SparkCluster
    from magnetar.spark.read.filters import Pushed
    from magnetar.spark.read.read_options import ReadOptions
    from magnetar.spark.read.spans import find_spans
    from magnetar.spark.source import table_shape

    given = {**(options or {}), **{name.replace("_", "."): text for name, text in more.items()}}
    if topic:
        given["topics"] = topic
    given = canonical_names(given)
    for name, reason in _REFUSED.items():
        if name in given:
            raise OptionError(f"table(): {name} {reason}")
    parsed = ReadOptions.parse(given)
    if not parsed.history:
        raise OptionError("table(): history=broker is what format('magnetar') is for")
    shape = table_shape(parsed)
    cluster = SparkCluster(parsed.connection)
    try:
        found = find_spans(cluster, parsed, Pushed())
    finally:
        cluster.close()
    scans, rest = divided(found, shape)
    frames = []
    for scan in scans:
        frame = _scanned(spark, scan, parsed, shape)
        if frame is None:
            rest[str(scan.topic)] += [_positions(stretch) for stretch in scan.stretches]
        else:
            frames.append(frame)
    if frames:
        frames.append(_empty(spark, shape))
    if any(rest.values()) or not frames:
        frames.append(_read_by_source(spark, given, rest, shape))
    return reduce(lambda left, right: left.union(right), frames)


_Ranges = defaultdict[str, list[tuple[Position, Position]]]
"""By partition."""


def divided(found: FoundSpans, shape: TableShape) -> tuple[list[ParquetScan], _Ranges]:
    """The scans for Spark and the ranges for the source; each entry of the spans is in exactly one of
    them."""
    from magnetar.spark.read.parquet_scan import can_be_scanned, scans_of, spark_path

    rest: _Ranges = defaultdict(list)
    by_topic: dict[str, list[Stretch]] = {}
    # The source decodes values of other formats, each message with its own schema version.
    as_they_are = "value" not in shape.decoded or shape.value.kind == "bytes"
    # Spark's cast keeps bytes that are not UTF-8, without an error.
    as_they_are |= shape.value.kind == "string" and not shape.seeks_broken
    as_they_are &= not shape.rescue
    for topic in found.states:
        rest[topic] = []
    for topic, start, end in found.spans:
        stretches = found.states[topic].stretches(start.position, end.position)
        if not as_they_are or not stretches or not can_be_scanned(TopicName.parse(topic)):
            rest[topic].append((start.position, end.position))
            continue
        in_files = by_topic.setdefault(topic, [])
        for stretch in stretches:
            if stretch.file is not None and spark_path(stretch.file) is not None:
                in_files.append(stretch)
            else:
                rest[topic].append(_positions(stretch))
    files = {
        stretch.file.place: stretch.file for each in by_topic.values() for stretch in each if stretch.file
    }
    traits = _traits(files)
    scans: list[ParquetScan] = []
    for topic, each in by_topic.items():
        plain = []
        for stretch in each:
            known = traits[stretch.file.place] if stretch.file is not None else None
            if known is None or not known.is_plain:
                rest[topic].append(_positions(stretch))
            else:
                plain.append((stretch, known))
        scans += scans_of(TopicName.parse(topic), plain)
    scans.sort(key=lambda scan: len(scan.paths), reverse=True)
    for scan in scans[SCANS_MAX:]:
        rest[str(scan.topic)] += [_positions(stretch) for stretch in scan.stretches]
    return scans[:SCANS_MAX], rest


def _traits(files: Mapping[tuple[str, str], HistoryFile]) -> dict[tuple[str, str], SegmentTraits | None]:
    """The traits from the footers; None for files that cannot be read from here."""
    from magnetar.tables.history import traits_of

    with pool(_FOOTERS_AT_ONCE, "footers") as threads:
        return dict(zip(files, threads.map(traits_of, files.values()), strict=True))


def _positions(stretch: Stretch) -> tuple[Position, Position]:
    return Position(*stretch.start), Position(*stretch.end)


def _empty(spark: SparkSession, shape: TableShape) -> DataFrame:
    """A DataFrame without rows, with nullable columns as in the source; Spark removes it from the plan."""
    columns = [
        f"CAST(NULL AS {each.dataType.simpleString()}) AS {each.name}" for each in shape.spark_schema()
    ]
    return spark.range(0).where("false").selectExpr(*columns)


def _scanned(
    spark: SparkSession, scan: ParquetScan, options: ReadOptions, shape: TableShape
) -> DataFrame | None:
    """The rows of the files of a scan; None when Spark cannot read the files."""
    from magnetar.spark.read.parquet_scan import FILE_SCHEMA

    reader = spark.read.schema(FILE_SCHEMA).options(
        # failOnDataLoss decides, not the session: the rows of a missing file are lost rows.
        ignoreMissingFiles=not options.fail_on_data_loss,
        ignoreCorruptFiles=False,
        datetimeRebaseMode="CORRECTED",
    )
    try:
        frame = reader.parquet(*scan.paths)
        # Spark Connect checks nothing before.
        _ = frame.schema
    except Exception as error:  # noqa: BLE001  # a class of the JVM's: no such file, no such file system
        reason = str(error).strip().partition("\n")[0]
        _log.warning("history of %s is read by the source, not by Spark itself: %s", scan.topic, reason)
        return None
    condition = scan.condition(options.keys)
    if condition:
        frame = frame.where(condition)
    return frame.selectExpr(*scan.columns(shape.columns, as_text=shape.value.kind == "string"))


def _read_by_source(
    spark: SparkSession, given: Mapping[str, str], rest: _Ranges, shape: TableShape
) -> DataFrame:
    from magnetar.spark.read.pinned import encode_ranges

    kept = {name: text for name, text in given.items() if name not in _FIXED}
    plain = shape.value.kind in ("bytes", "string")
    # The type of the value can depend on the schemas of all topics, also of those without a range.
    ranges = {topic: sorted(each) for topic, each in rest.items() if each or not plain}
    kept["ranges"] = encode_ranges(ranges)
    # A topic without a schema may get one later.
    kept["valueFormat"] = shape.value.kind if plain else given.get("valueformat", "bytes")
    return spark.read.format("magnetar").options(**kept).load()
