"""The commit log of a sink: the content of each batch, written before its first row reaches the target.

The log is a topic. Each batch has two records in it:

    manifest   batch id, the parts that belong to it, where the target ended before it
    done       batch id: all rows are in the target

A record is one message: the length of its JSON as u32, the JSON, and in manifests the inline rows, as a
series of blocks of `staged`. The producer's sequence number is 2 * batch for a manifest and 2 * batch + 1 for
done, and the topic drops duplicates. When two drivers commit the same batch, the first manifest counts, and
the other driver reads it. docs/internals/spark-sink.md has all bytes.
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
from magnetar.client.producer import Producer
from magnetar.client.reader import EntryReader
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.targets import end_of
from magnetar.spark.write.staged import StagedEntry
from magnetar.wire.payload import entry_layout

_U32: Final = struct.Struct(">I")
_READ_TIMEOUT_S: Final = 30.0
RUNS_KEPT: Final = 16
"""Most earlier runs that a record names."""


@dataclass(frozen=True, slots=True)
class StagedTask:
    """Rows of one task in the staging topic, which are the messages of one producer."""

    producer: str
    first: Position
    last: Position
    messages: int


@dataclass(frozen=True, slots=True)
class QueryRun:
    """The start of the query that wrote a record."""

    id: str = ""
    """Random id of the start; empty when Spark does not give it."""
    earlier: tuple[str, ...] = ()
    """Ids of the starts that committed before, newest first; at most RUNS_KEPT."""

    def of(self, run_id: str) -> QueryRun:
        """The QueryRun for the records of run `run_id`, after a newest record of this run."""
        if run_id == self.id or not run_id:
            return self
        return QueryRun(run_id, (self.id, *self.earlier)[:RUNS_KEPT] if self.id else self.earlier)


@dataclass(frozen=True, slots=True)
class CommitManifest:
    """The manifest: all parts of a batch."""

    batch_id: int
    parts: tuple[bytes | StagedTask, ...] = ()
    """In the order of tasks: inline rows as a block of staged entries, or the place of staged rows."""
    ends: dict[str, Position | None] = field(default_factory=dict)
    """Last message of each target partition before the batch; None when the partition was empty."""
    rows: int = 0
    run: QueryRun = QueryRun()
    digest: int | None = None
    """Digest of the rows, independent of their order; None when it is not known."""

    @property
    def staged(self) -> tuple[StagedTask, ...]:
        """The parts in the staging topic."""
        return tuple(part for part in self.parts if isinstance(part, StagedTask))

    def encode(self) -> bytes:
        """The record."""
        head = {
            "kind": "manifest",
            "batch": self.batch_id,
            "parts": [
                len(part)
                if isinstance(part, bytes)
                else {
                    "producer": part.producer,
                    "first": part.first,
                    "last": part.last,
                    "messages": part.messages,
                }
                for part in self.parts
            ],
            "ends": self.ends,
            "rows": self.rows,
            "run": [self.run.id, *self.run.earlier],
            "digest": self.digest,
        }
        text = json.dumps(head).encode()
        inline = [part for part in self.parts if isinstance(part, bytes)]
        return b"".join((_U32.pack(len(text)), text, *inline))


@dataclass(frozen=True, slots=True)
class Done:
    """The record that all rows of a batch are in the target."""

    batch_id: int
    rows: int = 0
    run: QueryRun = QueryRun()
    digest: int | None = None

    def encode(self) -> bytes:
        """The record."""
        head = {
            "kind": "done",
            "batch": self.batch_id,
            "rows": self.rows,
            "run": [self.run.id, *self.run.earlier],
            "digest": self.digest,
        }
        text = json.dumps(head).encode()
        return _U32.pack(len(text)) + text


def decode_record(record: bytes) -> CommitManifest | Done:
    """Reads a record. Raises SparkSourceError when it is none."""
    try:
        size = _U32.unpack_from(record)[0]
        head = json.loads(record[4 : 4 + size])
        first, *earlier = head.get("run") or [""]
        run = QueryRun(first, tuple(earlier))
        if head["kind"] == "done":
            return Done(head["batch"], head.get("rows", 0), run, head.get("digest"))
        parts: list[bytes | StagedTask] = []
        at = 4 + size
        for part in head["parts"]:
            if isinstance(part, int):
                parts.append(record[at : at + part])
                at += part
            else:
                first, last = Position(*part["first"]), Position(*part["last"])
                parts.append(StagedTask(part["producer"], first, last, part["messages"]))
        if at != len(record):
            raise ValueError(f"{len(record)} bytes instead of {at}")
        ends = {topic: None if end is None else Position(*end) for topic, end in head["ends"].items()}
        return CommitManifest(head["batch"], tuple(parts), ends, head["rows"], run, head.get("digest"))
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise SparkSourceError(f"the sink's commit log has a record that is none: {error!r}") from error


class CommitLog:
    """The commit log of one sink, for the driver that commits."""

    def __init__(self, client: Client, topic: TopicName, sink_id: str) -> None:
        self._client = client
        self._topic = topic
        self._name = f"{sink_id}-commits"
        self._producer: Producer | None = None

    def last(self) -> tuple[CommitManifest | Done, Position] | None:
        """The newest record with its position; None while the log is empty."""
        position = end_of(self._client, self._topic)
        if position is None:
            return None
        with EntryReader(self._client, self._topic, position, permits=1) as reader:
            columns = reader.read(_READ_TIMEOUT_S)
        if not len(columns):
            raise SparkSourceError(f"the newest record of {self._topic} cannot be read; try again")
        entry = columns.entries[0]
        _, _, payload_at = entry_layout(entry)
        return decode_record(entry[payload_at:]), columns.position(0)

    def open(self) -> int:
        """Opens the log as its only writer; waits while another driver is the writer.

        Returns the highest sequence number that the broker knows; -1 when it knows none.
        """
        if self._producer is None:
            self._producer = Producer(self._client, self._topic, name=self._name)
        return self._producer.last_sequence_id

    def message_bytes_max(self) -> int:
        """Size of the largest record that the broker takes, in bytes."""
        self.open()
        assert self._producer is not None
        return self._producer.message_bytes_max - 1024

    def append(self, record: CommitManifest | Done) -> bool:
        """Writes a record. Returns False when the log already has one for the same step, which then
        counts."""
        self.open()
        assert self._producer is not None
        sequence_id = 2 * record.batch_id + (1 if isinstance(record, Done) else 0)
        message = StagedEntry(-1, 1, b"", record.encode())
        entry = message.entry(self._producer.name.encode(), sequence_id, time.time_ns() // 1_000_000)
        self._producer.send(sequence_id, entry)
        return self._producer.flush()[0] is not None

    def close(self) -> None:
        """Closes the producer, so that another driver can write."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None
