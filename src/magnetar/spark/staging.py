"""The staging topic: rows of large tasks on the broker until the driver has decided which tasks count.

Each message is a block of staged entries. A task has a producer of its own there; what failed and speculative
attempts leave behind is skipped by its producer's name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.client.reader import read_range
from magnetar.spark.commit_log import StagedTask
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.sink_topics import SUBSCRIPTION
from magnetar.spark.staged import StagedEntry, decode_block
from magnetar.wire.payload import entry_layout, parse_metadata

BLOCK_BYTES: Final = 512 << 10
"""Staged entries gathered into one message."""


class StagingWriter:
    """Puts blocks into the staging topic."""

    def __init__(self, client: Client, topic: TopicName) -> None:
        # The subscription keeps what is written from being removed before it is committed.
        client.acknowledge_up_to(topic, SUBSCRIPTION, None)
        self._producer = Producer(client, topic)
        self._name = self._producer.name.encode()
        self._messages = 0

    def write(self, block: bytes) -> None:
        """Adds a block."""
        entry = StagedEntry(-1, 1, b"", block).entry(self._name, self._messages, time.time_ns() // 1_000_000)
        if len(entry) > self._producer.message_bytes_max:
            raise SparkSourceError(
                f"a row of about {len(block)} bytes is too large for the broker, which takes"
                f" {self._producer.message_bytes_max} bytes"
            )
        self._producer.send(self._messages, entry)
        self._messages += 1

    def finish(self) -> StagedTask:
        """Waits until everything is durable; says where it is."""
        positions = self._producer.flush()
        self.close()
        first, last = positions[0], positions[-1]
        if first is None or last is None or len(positions) != self._messages:
            raise SparkSourceError(f"the broker did not store what was staged on {self._producer.topic}")
        return StagedTask(self._producer.name, first, last, self._messages)

    def close(self) -> None:
        """Ends the producer."""
        self._producer.close()


def read_staged(client: Client, topic: TopicName, tasks: Sequence[StagedTask]) -> Iterator[StagedEntry]:
    """The staged entries of these tasks in the order of the topic.

    Raises SparkSourceError when any of their messages is not there: nothing may be left out.
    """
    if not tasks:
        return
    expected = {task.producer: task.messages for task in tasks}
    start = min(task.first for task in tasks)
    last = max(task.last for task in tasks)
    seen = dict.fromkeys(expected, 0)
    for columns in read_range(client, topic, start, Position(last.ledger_id, last.entry_id + 1)):
        for entry in columns.entries:
            _, metadata_at, payload_at = entry_layout(entry)
            metadata = parse_metadata(entry[metadata_at:payload_at])
            name = metadata.producer_name
            if name in expected and metadata.sequence_id == seen[name]:
                seen[name] += 1
                yield from decode_block(entry[payload_at:])
    missing = {name: expected[name] - seen[name] for name in expected if seen[name] != expected[name]}
    if missing:
        raise SparkSourceError(
            f"{topic} lacks {sum(missing.values())} messages of the tasks {', '.join(sorted(missing))} that"
            " the batch consists of; was it truncated, or is a time to live set that removes them?"
        )
