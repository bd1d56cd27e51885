"""What each batch of a sink consists of, written down before a row of it reaches the target.

The log is a topic. Each batch has two records in it:

    manifest   batch id, the parts that belong to it, where the target ended before it
    done       batch id: all rows are in the target

A record is one message: its length as u32, JSON, and for manifests the rows that came inline (blocks of
`staged`, one behind the other). The producer's sequence numbers are 2 * batch for a manifest, one more for
done, and the topic drops duplicates: of two drivers that commit the same batch the first one's manifest
counts, and the other one reads it. Byte by byte in docs/internals/spark-sink.md.
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
"""Earlier runs that a record names."""


@dataclass(frozen=True, slots=True)
class StagedTask:
    """Rows of one task in the staging topic: the messages of one producer there."""

    producer: str
    first: Position
    last: Position
    messages: int


@dataclass(frozen=True, slots=True)
class QueryRun:
    """Which start of the query wrote a record."""

    id: str = ""
    """New with each start; empty when Spark did not tell."""
    earlier: tuple[str, ...] = ()
    """Those that committed before it, the newest first; at most RUNS_KEPT."""

    def of(self, run_id: str) -> QueryRun:
        """What the run writes that comes to a log with this one in its newest record."""
        if run_id == self.id or not run_id:
            return self
        return QueryRun(run_id, (self.id, *self.earlier)[:RUNS_KEPT] if self.id else self.earlier)


@dataclass(frozen=True, slots=True)
class CommitManifest:
    """Everything that a batch consists of."""

    batch_id: int
    parts: tuple[bytes | StagedTask, ...] = ()
    """In the order of the tasks: rows that came inline, as a block of staged entries, or where they are."""
    ends: dict[str, Position | None] = field(default_factory=dict)
    """Last message of each partition that the batch touches before it; None when that was empty."""
    rows: int = 0
    run: QueryRun = QueryRun()
    digest: int | None = None
    """Digest of the rows, independent of their order; None when it is not known."""

    @property
    def staged(self) -> tuple[StagedTask, ...]:
        """The parts that are in the staging topic."""
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
    """A batch is in the target."""

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
    """One sink's log, opened by a driver that commits."""

    def __init__(self, client: Client, topic: TopicName, sink_id: str) -> None:
        self._client = client
        self._topic = topic
        self._name = f"{sink_id}-commits"
        self._producer: Producer | None = None

    def last(self) -> tuple[CommitManifest | Done, Position] | None:
        """The newest record and where it is; None when there is none yet."""
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
        """Becomes the one writer; waits while another driver is.

        Returns the highest number that the broker knows of; -1 when it knows none.
        """
        if self._producer is None:
            self._producer = Producer(self._client, self._topic, name=self._name)
        return self._producer.last_sequence_id

    def message_bytes_max(self) -> int:
        """Largest record that fits."""
        self.open()
        assert self._producer is not None
        return self._producer.message_bytes_max - 1024

    def append(self, record: CommitManifest | Done) -> bool:
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
