"""Handles values that do not match their schema, in queries that continue after them. Runs in executors.

`RescuedValues` returns broken values in a column of their own, so that a filter or a limit drops them with
their rows. This module turns that column into the columns of the table, and sends dead letters before any
row is used.
"""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.placed_values import PlacedValues, RescuedValues
from magnetar.arrow.values import Values
from magnetar.base.names import TopicName
from magnetar.spark.read.dead_letters import DeadLetters
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.read.table_shape import TableShape

_log = logging.getLogger("magnetar.spark")


def placed(values: Values | None, topic: TopicName, options: ReadOptions, shape: TableShape) -> Values | None:
    """Wraps the decoder of values, so that it treats broken values by the options."""
    if values is None:
        return None
    if is_rescuing(options, shape):
        return RescuedValues(values)
    return PlacedValues(values, topic, permissive=options.mode == "permissive")


def is_rescuing(options: ReadOptions, shape: TableShape) -> bool:
    """Whether broken values are returned in a column of their own. Plain bytes cannot be broken."""
    if "value" not in shape.decoded or shape.value.kind == "bytes":
        return False
    return bool(shape.rescue or options.dead_letter_topic) or options.mode == "dropmalformed"


class Rescue:
    """Prepares the decoded rows of one task for Spark."""

    def __init__(self, options: ReadOptions, shape: TableShape) -> None:
        self._shape = shape
        self._has_broken = is_rescuing(options, shape)
        self._drops = options.mode == "dropmalformed"
        self._letters = DeadLetters(options) if options.dead_letter_topic else None
        self._counts: dict[TopicName, int] = {}

    def rows(self, topic: TopicName, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Turns decoded rows into the table's columns, after their broken values are durable as dead letters.

        Raises ClientError when a dead letter cannot be sent.
        """
        if not self._has_broken and not self._shape.rescue:
            return batch
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        rescued = pa.nulls(batch.num_rows, pa.binary())
        sound = None
        if self._has_broken:
            found["value"], broken = found["value"].field(0), found["value"].field(1)
            if broken.null_count < len(broken):
                self._note(topic, broken.filter(pc.is_valid(broken)))
                rescued = _payloads(broken)
                sound = pc.is_null(broken)
        found[self._shape.rescue] = rescued
        columns = self._shape.columns
        made = pa.RecordBatch.from_arrays([found[name] for name in columns], names=list(columns))
        return made.filter(sound) if self._drops and sound is not None else made

    def _note(self, topic: TopicName, broken: pa.Array) -> None:
        if topic not in self._counts:
            first = broken[0]
            _log.warning(
                "message %s of %s is not what its schema says: %s", first["message_id"], topic, first["error"]
            )
        self._counts[topic] = self._counts.get(topic, 0) + len(broken)
        if self._letters is not None:
            self._letters.send(topic, broken.to_pylist())

    def close(self) -> None:
        """Logs the count of broken values, and closes the connection."""
        for topic, count in self._counts.items():
            _log.warning("%d values of %s were not what their schema says", count, topic)
        if self._letters is not None:
            self._letters.close()


def _payloads(broken: pa.Array) -> pa.Array:
    """The payloads of broken values; null for valid ones."""
    return pc.if_else(pc.is_valid(broken), broken.field(0), pa.scalar(None, pa.binary()))
