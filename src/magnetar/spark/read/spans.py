"""Finds the entries of a batch read, fixed at the moment of the call."""

from __future__ import annotations

import time
from typing import NamedTuple

from magnetar.base.names import TopicName
from magnetar.spark.cluster import SparkCluster
from magnetar.spark.read.bounds import ReadBounds
from magnetar.spark.read.filters import Pushed
from magnetar.spark.read.losses import present
from magnetar.spark.read.offsets import Offset
from magnetar.spark.read.read_options import ReadOptions
from magnetar.tables.ledgers import KnownLog


class ReadSpan(NamedTuple):
    """One or more entries of one partition."""

    topic: str
    start: Offset
    end: Offset


class FoundSpans(NamedTuple):
    """The partitions, and the spans of them to read."""

    states: dict[str, KnownLog]
    spans: list[ReadSpan]


def find_spans(cluster: SparkCluster, options: ReadOptions, pushed: Pushed) -> FoundSpans:
    """Computes the spans from the state of the cluster. Raises OptionError, TopicDataLossError,
    ClientError."""
    if options.ranges is None:
        topics = cluster.partitions(options.topics, options.pattern, options.namespace)
    else:
        topics = [TopicName.parse(topic) for topic in options.topics]
    states = cluster.log_states(
        [topic for topic in topics if pushed.wants(topic)], missing_ok=options.wait_for_topics
    )
    bounds = ReadBounds(cluster, options, int(time.time() * 1000))
    if options.ranges is not None:
        spans = [
            ReadSpan(topic, Offset(start, None), Offset(end, None))
            for topic, ranges in options.ranges
            if topic in states
            for start, end in ranges
        ]
    else:
        starts = bounds.starts(states, default="earliest")
        ends = bounds.ends(states)
        spans = [
            ReadSpan(topic, starts[topic], ends[topic])
            for topic in states
            if starts[topic].position < ends[topic].position
        ]
    for number, (topic, start, end) in enumerate(spans):
        name = TopicName.parse(topic)
        start = bounds.after_loss(name, states[topic], start, is_named=True)
        start = present(states[topic], start)
        spans[number] = ReadSpan(topic, start, end)
        if options.rows_per_partition_max is not None:
            # A split by rows needs their counts.
            counted = cluster.with_start_index(name, states[topic], start)
            spans[number] = ReadSpan(topic, counted, cluster.with_end_index(name, states[topic], end))
    return FoundSpans(states, spans)
