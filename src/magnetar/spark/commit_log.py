"""What each batch of a sink consists of, written down before a row of it reaches the target.

The log is a topic. Each batch has two records in it:

    manifest   batch id, which staged rows belong to it, where the target ended before it
    done       batch id: all rows are in the target

A record is one message: its length as u32, JSON, and for manifests the rows that came inline (a block of
`staged`). The producer's sequence numbers are 2 * batch for a manifest and 2 * batch + 1 for done, and the
topic drops duplicates: of two drivers that commit the same batch the first one's manifest counts, and the
other one reads it.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.errors import RefusedError
from magnetar.client.producer import Producer
from magnetar.client.reader import EntryReader
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.staged import StagedEntry
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import entry_layout

_U32: Final = struct.Struct(">I")
_READ_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class StagedTask:
    """Rows of one task in the staging topic: the messages of one producer there."""

    producer: str
    first: Position
    last: Position
    messages: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that a batch consists of."""

    batch_id: int
    inline: bytes = b""
    """A block of staged entries; these come first."""
    staged: tuple[StagedTask, ...] = ()
    ends: dict[str, Position | None] = field(default_factory=dict)
    """Last message of each partition of the target before the batch; None when it was empty."""

    def encode(self) -> bytes:
        """The record."""
        head = {
            "kind": "manifest",
            "batch": self.batch_id,
            "staged": [
                {"producer": task.producer, "first": task.first, "last": task.last, "messages": task.messages}
                for task in self.staged
            ],
            "ends": self.ends,
        }
        text = json.dumps(head).encode()
        return b"".join((_U32.pack(len(text)), text, self.inline))


@dataclass(frozen=True, slots=True)
class Done:
    """A batch is in the target."""

    batch_id: int

    def encode(self) -> bytes:
        """The record."""
        text = json.dumps({"kind": "done", "batch": self.batch_id}).encode()
        return _U32.pack(len(text)) + text


def decode_record(record: bytes) -> Manifest | Done:
    """Reads a record. Raises SparkSourceError when it is none."""
    try:
        size = _U32.unpack_from(record)[0]
        head = json.loads(record[4 : 4 + size])
        if head["kind"] == "done":
            return Done(head["batch"])
        staged = tuple(
            StagedTask(task["producer"], Position(*task["first"]), Position(*task["last"]), task["messages"])
            for task in head["staged"]
        )
        ends = {topic: None if end is None else Position(*end) for topic, end in head["ends"].items()}
        return Manifest(head["batch"], record[4 + size :], staged, ends)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise SparkSourceError(f"the sink's commit log has a record that is none: {error}") from error


class CommitLog:
    """One sink's log, opened by a driver that commits."""

    def __init__(self, client: Client, topic: TopicName, sink_id: str) -> None:
        self._client = client
        self._topic = topic
        self._name = f"{sink_id}-commits"
        self._producer: Producer | None = None

    def last(self) -> tuple[Manifest | Done, Position] | None:
        """The newest record and where it is; None when there is none yet."""
        try:
            with EntryReader(self._client, self._topic, start=None) as reader:
                position = reader.last_position()
        except RefusedError as error:
            if error.code == pb.ServerError.TopicNotFound:
                return None
            raise
        if position is None:
            return None
        with EntryReader(self._client, self._topic, position, permits=1) as reader:
            columns = reader.read(_READ_TIMEOUT_S)
        if not len(columns):
            raise SparkSourceError(f"the newest record of {self._topic} cannot be read; try again")
        entry = columns.entries[0]
        _, _, payload_at = entry_layout(entry)
        return decode_record(entry[payload_at:]), columns.position(0)

    def open(self) -> None:
        """Becomes the one writer; waits while another driver is."""
        if self._producer is None:
            self._producer = Producer(self._client, self._topic, name=self._name)

    def message_bytes_max(self) -> int:
        """Largest record that fits."""
        self.open()
        assert self._producer is not None
        return self._producer.message_bytes_max - 1024

    def append(self, record: Manifest | Done) -> bool:
        """Writes a record; False when one for the same step is there already, which then counts."""
        self.open()
        assert self._producer is not None
        sequence_id = 2 * record.batch_id + (1 if isinstance(record, Done) else 0)
        message = StagedEntry(-1, 1, b"", record.encode())
        entry = message.entry(self._producer.name.encode(), sequence_id, time.time_ns() // 1_000_000)
        self._producer.send(sequence_id, entry)
        return self._producer.flush()[0] is not None

    def close(self) -> None:
        """Lets another driver write."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None
