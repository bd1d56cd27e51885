"""Asks brokers for the age of the oldest unread message and for unread bytes, which offsets do not have."""

from __future__ import annotations

import time
from collections.abc import Mapping

from magnetar.base.errors import ClientError
from magnetar.base.names import TopicName
from magnetar.spark.cluster import SparkCluster
from magnetar.spark.connection_options import ConnectionOptions
from magnetar.spark.progress.lag import Reach, TopicLag, rows_behind


class LagProbe:
    """Measures lag on one cluster. Threads must not share it."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self._cluster = SparkCluster(connection)

    def lags(self, reaches: Mapping[TopicName, Reach]) -> list[TopicLag]:
        """The lag of each topic. Values that the cluster does not answer are None."""
        rows = rows_behind(reaches)
        seconds: dict[str, float | None] = dict.fromkeys(rows, 0.0)
        sizes: dict[str, int | None] = dict.fromkeys(rows, 0)
        for topic, reach in reaches.items():
            base = str(topic.base)
            if reach.read.position >= reach.end.position:
                continue
            age, size = self._ask(topic, reach)
            known, added = seconds[base], sizes[base]
            seconds[base] = None if known is None or age is None else max(known, age)
            sizes[base] = None if added is None or size is None else added + size
        return [TopicLag(topic, rows[topic], seconds[topic], sizes[topic]) for topic in rows]

    def _ask(self, topic: TopicName, reach: Reach) -> tuple[float | None, int | None]:
        age = size = None
        try:
            first = self._cluster.indexes_at(topic, reach.read.position)
            age = None if first is None else max(time.time() - first[2] / 1000, 0.0)
            state = self._cluster.log_state(topic)
            if state.is_complete:
                size = state.measure(reach.read.position, reach.end.position).size_bytes
        except ClientError:
            # The query goes on, and reports errors of its cluster itself.
            pass
        return age, size

    def close(self) -> None:
        """Closes the connection."""
        self._cluster.close()
