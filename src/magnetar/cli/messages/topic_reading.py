"""Reads messages of a topic, with all partitions merged in the order of their times: a range, and then new
messages."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.adminclient.errors import AdminRefusedError
from magnetar.base.errors import ClientError
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.cli.messages.records import Record, records_of
from magnetar.client.deliveries import EntryColumns
from magnetar.client.reader import EntryReader, last_position, read_range
from magnetar.client.retry import Retry

if TYPE_CHECKING:
    from magnetar.client.client import Client

_POLL_S: Final = 0.25
"""Seconds of one round over all partitions while no message arrives."""
_CLOCKS_MS: Final = 60_000
"""Largest difference, in milliseconds, between the clocks of producers. When the broker stores no times, a
partition is read this far beyond the end of a range."""


@dataclass(frozen=True, slots=True)
class Range:
    """The messages to read."""

    from_time_ms: int | None = None
    """First time, in Unix milliseconds; None: from the first message."""
    to_time_ms: int | None = None
    """Time before which messages are read, in Unix milliseconds; None: up to the last message."""
    last: int | None = None
    """Number of the last messages to read; None: all."""

    def holds(self, record: Record) -> bool:
        """Whether the message's time is in the range."""
        return (self.from_time_ms is None or record.time_ms >= self.from_time_ms) and (
            self.to_time_ms is None or record.time_ms < self.to_time_ms
        )


def topics_of(client: Client, topic: TopicName) -> list[TopicName]:
    """The partitions of the topic; the topic itself when it is not partitioned."""
    count = client.partitions(topic) if topic.partition < 0 else 0
    return [TopicName.parse(f"{topic}-partition-{number}") for number in range(count)] or [topic]


class TopicReading:
    """One reading of a topic, up to the end that it had when the reading began."""

    def __init__(self, client: Client, topic: TopicName, wanted: Range) -> None:
        self._client = client
        self._wanted = wanted
        self._topics = topics_of(client, topic)
        self._ends: dict[TopicName, Position | None] = {
            each: last_position(client, each) for each in self._topics
        }

    def count(self) -> int | None:
        """Number of messages that the topic has; None when the broker does not tell it."""
        try:
            return sum(int(self._client.admin.internal_stats(each)["messages"]) for each in self._topics)
        except (AdminRefusedError, KeyError, TypeError, ValueError):
            return None

    def records(self) -> Iterator[Record]:
        """Yields the messages up to the end, in the order of times."""
        found = heapq.merge(*map(self._partition, self._topics), key=lambda record: record.time_ms)
        if self._wanted.last is None:
            return found
        from collections import deque

        return iter(deque(found, maxlen=self._wanted.last))

    def _partition(self, topic: TopicName) -> Iterator[Record]:
        end = self._ends[topic]
        if end is None:
            return
        behind = Position(end.ledger_id, end.entry_id + 1)
        stop_ms = self._wanted.to_time_ms
        for columns in read_range(self._client, topic, self._start(topic), behind):
            for record in records_of(topic, columns):
                if self._wanted.holds(record):
                    yield record
                elif stop_ms is not None and record.time_ms >= stop_ms + _CLOCKS_MS:
                    return

    def _start(self, topic: TopicName) -> Position:
        wanted = self._wanted
        if wanted.from_time_ms is not None:
            return self._client.admin.position_by_time(topic, wanted.from_time_ms)
        if wanted.last is not None:
            return self._start_of_last(topic, wanted.last)
        return EARLIEST

    def _start_of_last(self, topic: TopicName, count: int) -> Position:
        """Position of the last `count` messages; the topic's beginning when the broker cannot tell it."""
        stats = self._client.admin.internal_stats(topic)
        try:
            index = max(int(stats["firstIndex"]), int(stats["lastIndex"]) - count + 1)
        except (KeyError, TypeError, ValueError):
            return EARLIEST
        return self._client.admin.position_by_index(topic, index) or EARLIEST

    def following(self) -> Iterator[Record | None]:
        """Yields messages behind the end, without an end; None after each round without a message."""
        readers = {topic: _Follower(self._client, topic, end) for topic, end in self._ends.items()}
        try:
            while True:
                came = False
                for topic, reader in readers.items():
                    columns = reader.read(_POLL_S / len(readers))
                    came = came or bool(len(columns))
                    yield from filter(self._wanted.holds, records_of(topic, columns))
                if not came:
                    yield None
        finally:
            for reader in readers.values():
                reader.close()


class _Follower:
    """A reader that reconnects when its connection is lost or its topic moves."""

    def __init__(self, client: Client, topic: TopicName, last: Position | None) -> None:
        """`last`: position behind which to begin; None: with the first message."""
        self._client = client
        self._topic = topic
        self._next = EARLIEST if last is None else Position(last.ledger_id, last.entry_id + 1)
        self._reader: EntryReader | None = None

    def read(self, timeout_s: float) -> EntryColumns:
        """Entries that arrived within `timeout_s` seconds. Raises ClientError when the topic cannot be read
        for the client's retry limit."""
        retry = Retry(self._client.options.retry_timeout_s)
        while True:
            try:
                if self._reader is None:
                    self._reader = EntryReader(self._client, self._topic, self._next)
                columns = self._reader.read(timeout_s)
            except ClientError as error:
                self.close()
                retry.pause_or_raise(error)
                continue
            if len(columns):
                last = columns.position(len(columns) - 1)
                self._next = Position(last.ledger_id, last.entry_id + 1)
            return columns

    def close(self) -> None:
        """Ends the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
