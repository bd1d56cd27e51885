"""The end of one trigger: the backlog, cut to the limits of rows and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.spark.cluster import SparkCluster
from magnetar.spark.read.offsets import Offset
from magnetar.spark.read.planning import share
from magnetar.tables.ledgers import KnownLog


@dataclass(slots=True)
class Backlog:
    """The unread part of one partition."""

    topic: TopicName
    state: KnownLog
    start: Offset
    end: Offset
    """The end of the log; after a cut by `ReadAdmission`, the end of this trigger."""

    @property
    def rows(self) -> int:
        """Messages, or entries where the broker keeps no index."""
        if self.start.message_index is not None and self.end.message_index is not None:
            return max(self.end.message_index - self.start.message_index, 0)
        return self.state.measure(self.start.position, self.end.position).entries

    @property
    def size_bytes(self) -> int:
        """Bytes, by the ledgers' averages."""
        return self.state.measure(self.start.position, self.end.position).size_bytes


class ReadAdmission:
    """Cuts backlogs to the limits of a trigger."""

    def __init__(self, cluster: SparkCluster) -> None:
        self._cluster = cluster

    def limit_rows(self, backlogs: Mapping[str, Backlog], rows_max: int) -> None:
        """Cuts all together to `rows_max` >= 1 messages.

        Entries are not divided: when the limit is smaller than the first entry, that entry is taken alone.
        """
        if sum(backlog.rows for backlog in backlogs.values()) <= rows_max:
            return
        parts = share(rows_max, {name: backlog.rows for name, backlog in backlogs.items()})
        self._cut(backlogs, {name: self._end_of_rows(backlogs[name], part) for name, part in parts.items()})

    def limit_bytes(self, backlogs: Mapping[str, Backlog], bytes_max: int) -> None:
        """Cuts all together to about `bytes_max` >= 1 bytes as stored."""
        sizes = {name: backlog.size_bytes for name, backlog in backlogs.items()}
        if sum(sizes.values()) <= bytes_max:
            return
        ends = {}
        for name, part in share(bytes_max, sizes).items():
            backlog = backlogs[name]
            entries = backlog.state.measure(backlog.start.position, backlog.end.position).entries
            taken = entries * part // max(sizes[name], 1)
            position = backlog.state.advance(backlog.start.position, taken, backlog.end.position)
            ends[name] = self._offset(backlog, position)
        self._cut(backlogs, ends)

    def _cut(self, backlogs: Mapping[str, Backlog], ends: Mapping[str, Offset]) -> None:
        if all(ends[name].position <= backlogs[name].start.position for name in backlogs):
            # When nothing fits, one entry is taken, so that the query goes on.
            name, backlog = next((name, each) for name, each in backlogs.items() if each.rows)
            one = backlog.state.advance(backlog.start.position, 1, backlog.end.position)
            ends = {**ends, name: self._offset(backlog, one)}
        for name, end in ends.items():
            backlog = backlogs[name]
            backlog.end = end if end.position > backlog.start.position else backlog.start

    def _end_of_rows(self, backlog: Backlog, rows: int) -> Offset:
        """The end of at most `rows` messages of the backlog."""
        if rows >= backlog.rows:
            return backlog.end
        if backlog.start.message_index is not None:
            found = self._cluster.client.admin.position_by_index(
                backlog.topic, backlog.start.message_index + rows
            )
            if found is not None:
                # This entry holds the first message above the limit.
                return self._offset(backlog, backlog.state.as_end(found))
        return self._offset(
            backlog, backlog.state.advance(backlog.start.position, rows, backlog.end.position)
        )

    def _offset(self, backlog: Backlog, position: Position) -> Offset:
        if position <= backlog.start.position:
            return backlog.start
        if position >= backlog.end.position:
            return backlog.end
        return self._cluster.with_end_index(backlog.topic, backlog.state, Offset(position, None))
