"""The staging topic: rows of large tasks on the broker until the driver has decided which tasks count.

Each message is a block of staged entries. A task has a producer of its own there; what failed and speculative
attempts leave behind is skipped by its producer's name.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import Final

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.client.reader import read_range
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.sink_topics import SUBSCRIPTION
from magnetar.spark.write.commit_log import StagedTask
from magnetar.spark.write.staged import StagedEntry, decode_block
from magnetar.wire.payload import entry_layout, parse_metadata

_SIZE: Final = struct.Struct(">I")
_SPOOLED_BYTES_MAX: Final = 64 << 20
"""Most bytes of blocks in memory that wait for their task's turn, for all tasks; more wait in files."""


class StagingWriter:
    """Writes blocks to the staging topic."""

    def __init__(self, client: Client, topic: TopicName, subscription: str = SUBSCRIPTION) -> None:
        """`subscription` keeps the blocks on the broker until they are committed."""
        client.acknowledge_up_to(topic, subscription, None)
        self._producer = Producer(client, topic)
        self._name = self._producer.name.encode()
        self._messages = 0

    def write(self, block: bytes) -> None:
        """Sends a block. Raises SparkSourceError when it is too large for the broker."""
        entry = StagedEntry(-1, 1, b"", block).entry(self._name, self._messages, time.time_ns() // 1_000_000)
        if len(entry) > self._producer.message_bytes_max:
            raise SparkSourceError(
                f"a row of about {len(block)} bytes is too large for the broker, which takes"
                f" {self._producer.message_bytes_max} bytes"
            )
        self._producer.send(self._messages, entry)
        self._messages += 1

    def finish(self) -> StagedTask:
        """Waits until all blocks are durable, and returns their place. Raises SparkSourceError."""
        positions = self._producer.flush()
        self.close()
        first, last = positions[0], positions[-1]
        if first is None or last is None or len(positions) != self._messages:
            raise SparkSourceError(f"the broker did not store what was staged on {self._producer.topic}")
        return StagedTask(self._producer.name, first, last, self._messages)

    def close(self) -> None:
        """Ends the producer."""
        self._producer.close()


class StagedReader:
    """Returns the staged entries of tasks, one task after the other, in one pass over the topic.

    Tasks stage at the same time, so their blocks are mixed in the topic. In that order, rows of one key from
    several tasks of a map-only query could change their order. So blocks of later tasks wait for their turn.
    """

    def __init__(self, client: Client, topic: TopicName, tasks: Sequence[StagedTask]) -> None:
        self._topic = topic
        self._expected = {task.producer: task.messages for task in tasks}
        self._seen = dict.fromkeys(self._expected, 0)
        self._blocks = _owned_blocks(client, topic, tasks, self._seen)
        self._spooled_max = _SPOOLED_BYTES_MAX // max(len(tasks), 1)
        self._waiting: dict[str, SpooledTemporaryFile[bytes]] = {}

    def entries(self, task: StagedTask) -> Iterator[StagedEntry]:
        """Yields the entries of one task. Call it once for each task, in the order of tasks, and read to the
        end.

        Raises SparkSourceError when a message of the task is missing.
        """
        waiting = self._waiting.pop(task.producer, None)
        if waiting is not None:
            with waiting:
                waiting.seek(0)
                while head := waiting.read(_SIZE.size):
                    yield from decode_block(waiting.read(_SIZE.unpack(head)[0]))
        while self._seen[task.producer] < task.messages:
            found = next(self._blocks, None)
            if found is None:
                missing = task.messages - self._seen[task.producer]
                raise SparkSourceError(
                    f"{self._topic} lacks {missing} messages of the task {task.producer} that the batch"
                    " consists of; was it truncated, or is a time to live set that removes them?"
                )
            owner, block = found
            if owner == task.producer:
                yield from decode_block(block)
            else:
                self._wait(owner, block)

    def _wait(self, owner: str, block: bytes) -> None:
        waiting = self._waiting.get(owner)
        if waiting is None:
            waiting = self._waiting[owner] = SpooledTemporaryFile(self._spooled_max)  # noqa: SIM115  # until its turn
        waiting.write(_SIZE.pack(len(block)) + block)

    def close(self) -> None:
        """Deletes the waiting blocks."""
        for waiting in self._waiting.values():
            waiting.close()
        self._waiting.clear()


def _owned_blocks(
    client: Client, topic: TopicName, tasks: Sequence[StagedTask], seen: dict[str, int]
) -> Iterator[tuple[str, bytes]]:
    """Yields the blocks of these tasks with their producers, in the order of the topic; counts them in
    `seen`."""
    if not tasks:
        return
    start = min(task.first for task in tasks)
    last = max(task.last for task in tasks)
    for columns in read_range(client, topic, start, Position(last.ledger_id, last.entry_id + 1)):
        for entry in columns.entries:
            _, metadata_at, payload_at = entry_layout(entry)
            metadata = parse_metadata(entry[metadata_at:payload_at])
            name = metadata.producer_name
            if metadata.sequence_id == seen.get(name, -1):
                seen[name] += 1
                yield name, entry[payload_at:]
