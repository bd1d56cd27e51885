"""The driver's view of a cluster: the partitions of the topics, and the ends of their logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.base.names import InvalidTopicNameError, NamespaceName, TopicName
from magnetar.client.client import Client
from magnetar.client.errors import RefusedError
from magnetar.client.reader import peek
from magnetar.spark.connection_options import ConnectionOptions
from magnetar.spark.errors import OptionError
from magnetar.spark.read.losses import beginning
from magnetar.spark.read.offsets import Offset
from magnetar.spark.sink_topics import is_sink_topic
from magnetar.tables.ledgers import KnownLog
from magnetar.tables.topic_cluster import TopicCluster
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import entry_layout, parse_metadata

_PATTERN_HEAD = re.compile(r"(?:persistent://)?([^/()\[\]*+?|\\]+)/([^/()\[\]*+?|\\]+)/(.+)")
_PEEK_TIMEOUT_S: Final = 2.0
"""Longest wait for one entry. Markers are never delivered, so a read at their position gets nothing."""


class SparkCluster(TopicCluster):
    """Calls brokers through one client, which stays open until `close`."""

    def __init__(self, connection: ConnectionOptions) -> None:
        client = Client(connection.service_url, connection.client, admin_url=connection.admin_url)
        super().__init__(client, admin_given=bool(connection.admin_url) or client.url.is_http)

    def partitions(self, topics: Iterable[str], pattern: str, namespace: str = "") -> list[TopicName]:
        """All partitions of the given topics, of the topics that match `pattern`, or of a namespace; in
        order."""
        if pattern or namespace:
            return self._matching(f"{namespace}/.*" if namespace else pattern)
        return [each for text in topics for each in self.partitions_of(TopicName.parse(text))]

    def _matching(self, pattern: str) -> list[TopicName]:
        """Partitions of the topics that match the whole pattern.

        A pattern without tenant and namespace applies to local names in public/default.
        """
        head = _PATTERN_HEAD.fullmatch(pattern)
        namespace = (
            NamespaceName.parse(f"{head[1]}/{head[2]}") if head else NamespaceName("public", "default")
        )
        local = re.compile(head[3] if head else pattern)
        found = set()
        for text in self.client.topics(namespace):
            try:
                topic = TopicName.parse(text)
            except InvalidTopicNameError:
                continue  # Topic names of Pulsar 1 are skipped.
            if local.fullmatch(topic.base.local) and not is_sink_topic(topic):
                found.add(topic)
        return sorted(found, key=lambda topic: (str(topic.base), topic.partition))

    def log_states(self, topics: Iterable[TopicName], *, missing_ok: bool = False) -> dict[str, KnownLog]:
        """`log_state` of each topic; with `missing_ok`, topics that do not exist are left out."""
        states = {}
        for topic in topics:
            try:
                states[str(topic)] = self.log_state(topic)
            except RefusedError as error:
                if not missing_ok or error.code != pb.ServerError.TopicNotFound:
                    raise
        return states

    def need_admin(self, option: str) -> None:
        """Raises OptionError, naming `option`, when the admin interface cannot be used."""
        if not self.find_admin():
            raise OptionError(
                f"{option} needs the admin interface, and {self.client.admin.url} does not answer: give the"
                " option admin.url=http://host:8080"
            )

    def indexes_at(self, topic: TopicName, position: Position) -> tuple[Position, int | None, int] | None:
        """The first entry at or behind `position`, the count of messages before it, its publish time (Unix
        ms).

        None when no entry arrives in time. The count is None when the broker keeps no index. Messages of a
        batch share one publish time.
        """
        columns = peek(self.client, topic, position, _PEEK_TIMEOUT_S)
        if not len(columns):
            return None
        entry = columns.entries[0]
        _, metadata_at, payload_at = entry_layout(entry)
        metadata = parse_metadata(entry[metadata_at:payload_at])
        last = columns.last_indexes[0]
        index = None if last < 0 else last - metadata.num_messages_in_batch + 1
        return columns.position(0), index, metadata.publish_time

    def with_start_index(self, topic: TopicName, state: KnownLog, offset: Offset) -> Offset:
        """`offset` with its message index, when the broker keeps one and an entry can be read for it."""
        if offset.message_index is not None:
            return offset
        if state.is_complete and (not state.ledgers or offset.position < state.first):
            offset = beginning(state)
            if offset.message_index is not None or not state.ledgers:
                return offset
        if offset.position >= state.end:
            return self.with_end_index(topic, state, offset)
        index = state.first_index_at(offset.position)
        if index is None:
            found = self.indexes_at(topic, offset.position)
            index = None if found is None else found[1]
        return Offset(offset.position, index)

    def with_end_index(self, topic: TopicName, state: KnownLog, offset: Offset) -> Offset:
        """As `with_start_index`, for an offset directly behind an entry."""
        position = offset.position
        if offset.message_index is not None or position.entry_id <= 0:
            return offset
        last = Position(position.ledger_id, position.entry_id - 1)
        if state.stored_end is not None:
            # Readers do not get messages of aborted transactions, which count all the same.
            return Offset(position, self.client.admin.index_behind(topic, last))
        columns = peek(self.client, topic, last, _PEEK_TIMEOUT_S)
        if not len(columns) or columns.position(0) != last or columns.last_indexes[0] < 0:
            return offset
        return Offset(position, columns.last_indexes[0] + 1)

    def start_of_time(self, topic: TopicName, state: KnownLog, time_ms: int) -> Position:
        """The position of the first message published at `time_ms` (Unix ms) or later, else the log's end."""
        if state.is_complete and not state.ledgers:
            return state.end
        position = self.client.admin.position_by_time(topic, time_ms)
        if position < EARLIEST or position.entry_id < 0:
            position = Position(LedgerId(max(position.ledger_id, 0)), 0)
        if position >= state.end:
            return state.end
        # Brokers answer with the last older entry when all are older; some with the entry before the first.
        while position < state.end:
            found = self.indexes_at(topic, position)
            if found is None:
                return state.end
            entry, _, publish_time = found
            if publish_time >= time_ms:
                return entry
            position = Position(entry.ledger_id, entry.entry_id + 1)
        return state.end
