"""Messages of a topic, of all its partitions in the order of their times: a range, its end, what follows."""

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
"""A round over all partitions while nothing comes."""
_CLOCKS_MS: Final = 60_000
"""Clocks of producers may differ by so much: where the broker says no time, a partition is read so far beyond
the end of a range of times."""


@dataclass(frozen=True, slots=True)
class Range:
    """What to read."""

    from_time_ms: int | None = None
    """Messages of this time and later; None: from the first one on."""
    to_time_ms: int | None = None
    """Messages before this time; None: up to the last one."""
    last: int | None = None
    """Only the last so many messages."""

    def holds(self, record: Record) -> bool:
        """Whether the message's time is in the range."""
        return (self.from_time_ms is None or record.time_ms >= self.from_time_ms) and (
            self.to_time_ms is None or record.time_ms < self.to_time_ms
        )


def topics_of(client: Client, topic: TopicName) -> list[TopicName]:
    """The topic's partitions, or itself."""
    count = client.partitions(topic) if topic.partition < 0 else 0
    return [TopicName.parse(f"{topic}-partition-{number}") for number in range(count)] or [topic]


class TopicReading:
    """One run over a topic."""

    def __init__(self, client: Client, topic: TopicName, wanted: Range) -> None:
        self._client = client
        self._wanted = wanted
        self._topics = topics_of(client, topic)
        self._ends: dict[TopicName, Position | None] = {
            each: last_position(client, each) for each in self._topics
        }

    def count(self) -> int | None:
        """About how many messages the topic keeps; None when the broker does not tell."""
        try:
            return sum(int(self._client.admin.internal_stats(each)["messages"]) for each in self._topics)
        except (AdminRefusedError, KeyError, TypeError, ValueError):
            return None

    def records(self) -> Iterator[Record]:
        """What is there now, in the order of times."""
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
        """Where the last `count` messages begin; the first message where the broker cannot tell."""
        stats = self._client.admin.internal_stats(topic)
        try:
            index = max(int(stats["firstIndex"]), int(stats["lastIndex"]) - count + 1)
        except (KeyError, TypeError, ValueError):
            return EARLIEST
        return self._client.admin.position_by_index(topic, index) or EARLIEST

    def following(self) -> Iterator[Record | None]:
        """What comes behind that, without an end; None now and then while nothing comes."""
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
    """A reader that goes on when its connection is lost, or its topic moves."""

    def __init__(self, client: Client, topic: TopicName, last: Position | None) -> None:
        """Begins behind `last`; None: with the first message."""
        self._client = client
        self._topic = topic
        self._next = EARLIEST if last is None else Position(last.ledger_id, last.entry_id + 1)
        self._reader: EntryReader | None = None

    def read(self, timeout_s: float) -> EntryColumns:
        """What has come. Raises ClientError when the topic cannot be read for the client's retry limit."""
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
