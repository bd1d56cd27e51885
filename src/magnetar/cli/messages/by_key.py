"""Finds messages of a key: in offloaded history by its index, in other entries by reading them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import mmh3

from magnetar.adminclient import paths
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.cli.messages.records import Record, records_of
from magnetar.cli.messages.topic_reading import topics_of
from magnetar.cli.messages.topic_writer import partition_of_key
from magnetar.cli.storage.progress import ShownProgress
from magnetar.client.compression import decompress
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.client.reader import read_range
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, entry_layout, parse_metadata

if TYPE_CHECKING:
    from magnetar.adminclient.admin import Admin
    from magnetar.client.client import Client

_PAGE: Final = 100
"""Most messages of one answer of the broker."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Entries of one ledger that are not in an object store."""

    ledger_id: LedgerId
    first_entry: int
    last_entry: int


class KeyReading:
    """One search for a key."""

    def __init__(
        self, client: Client, admin: Admin, topic: TopicName, key: bytes, *, everywhere: bool = False
    ) -> None:
        """Sends no request yet. `everywhere`: whether to search all partitions at once."""
        self.partitions = 0
        """Number of partitions that were searched."""
        self.files = 0
        """Number of Parquet files whose index was read."""
        self.directories = 0
        """Number of directories of keys that were read."""
        self.read = 0
        """Number of messages that are in no file and were therefore read one by one."""
        self._client = client
        self._admin = admin
        self._topic = topic
        self._key = key
        self._everywhere = everywhere
        self._text = key.decode("utf-8", "backslashreplace")
        # A key that was given as bytes stands there as base64.
        self._needles = (key, base64.b64encode(key))

    def records(self, page: int | None = None) -> Iterator[Record]:
        """Yields records, the newest first, at most `page` (None: all). In a partitioned topic they come from
        the partitions that the key's hash chooses, or from the others when these have none."""
        for topics in self._waves():
            if len(topics) == 1 and topics[0] == self._topic:
                yield from self._some(self._topic, page)
                return
            found = [each for topic in topics for each in self._some(topic, page)]
            if found:
                yield from sorted(found, key=lambda record: record.time_ms, reverse=True)
                return

    def _some(self, topic: TopicName, page: int | None) -> Iterator[Record]:
        self.partitions += 1
        for number, record in enumerate(self._partition(topic, page or _PAGE), 1):
            yield record
            if number == page:
                return

    def _waves(self) -> Iterator[list[TopicName]]:
        """Groups of partitions. A group is searched only when the groups before it have no message of the
        key."""
        topics = topics_of(self._client, self._topic)
        if len(topics) == 1 or self._everywhere:
            yield topics
            return
        likely = {each for text in self._texts() for each in _partitions_of(text, len(topics))}
        yield [topics[number] for number in sorted(likely)]
        yield [topic for number, topic in enumerate(topics) if number not in likely]

    def _texts(self) -> list[str]:
        """Texts that clients may have hashed: the key, and its base64, which stands for a key that was given
        as bytes."""
        try:
            return [self._key.decode(), base64.b64encode(self._key).decode()]
        except UnicodeDecodeError:
            return [base64.b64encode(self._key).decode()]

    def _partition(self, topic: TopicName, page: int) -> Iterator[Record]:
        query: dict[str, object] = {
            "key": base64.urlsafe_b64encode(self._key).decode().rstrip("="),
            "limit": page,
        }
        while True:
            answer = self._admin.call("GET", f"{paths.topic(str(topic))}/messagesByKey", query=query)
            self.files += answer["files"]
            self.directories += answer["directories"]
            found: list[_Range | Record] = [
                *(
                    _Range(each["ledgerId"], each["firstEntry"], each["lastEntry"])
                    for each in answer["unread"]
                ),
                *(_record(topic, each) for each in answer["messages"]),
            ]
            # A ledger has an index or has none, and sorting keeps the order inside of it.
            for each in sorted(found, key=_ledger_of, reverse=True):
                if isinstance(each, Record):
                    yield each
                else:
                    yield from self._read(topic, each, 1 if page == 1 else None)
            if not answer["more"]:
                return
            last = answer["messages"][-1]
            query["before"] = f"{last['ledgerId']}:{last['entryId']}:{last['batchIndex']}"

    def _read(self, topic: TopicName, entries: _Range, count: int | None) -> Iterator[Record]:
        """Yields the messages of the key in these entries, the newest first; at most `count` (None: all)."""
        found: list[Record] = []
        progress = ShownProgress("read")
        start = Position(entries.ledger_id, entries.first_entry)
        for columns in read_range(
            self._client, topic, start, Position(entries.ledger_id, entries.last_entry + 1)
        ):
            for row in range(len(columns)):
                count_of_entry, may = self._may_hold(topic, columns, row)
                progress.add(count_of_entry)
                if may:
                    one = records_of(topic, columns.slice(row, row + 1))
                    found += [record for record in one if record.key == self._text]
                    del found[: len(found) - (count or len(found))]
        progress.close()
        self.read += progress.done
        yield from reversed(found)

    def _may_hold(self, topic: TopicName, columns: EntryColumns, row: int) -> tuple[int, bool]:
        """The number of messages of an entry, and whether the key's bytes occur in it. This is some fifty
        times as fast as opening each message of a batch."""
        entry = columns.entries[row]
        try:
            _, metadata_at, payload_at = entry_layout(entry)
            metadata = parse_metadata(entry[metadata_at:payload_at])
        except EntryError as error:
            raise PayloadError(f"entry {columns.position(row)} of {topic} cannot be read: {error}") from error
        plain: bytes = entry
        opened = not metadata.encryption_keys and metadata.num_chunks_from_msg <= 1
        if opened and metadata.compression != pb.CompressionType.NONE:
            body = decompress(metadata.compression, entry[payload_at:], metadata.uncompressed_size, topic)
            plain = b"".join((entry[:payload_at], body))
        return max(1, metadata.num_messages_in_batch), any(needle in plain for needle in self._needles)


def _partitions_of(text: str, count: int) -> set[int]:
    """Numbers of the partitions to which clients send a key: by Java's hash, which is the default, and by
    Murmur3."""
    murmur = mmh3.hash(text.encode(), 0, signed=False) & 0x7FFFFFFF
    return {partition_of_key(text, count), murmur % count}


def _ledger_of(each: _Range | Record) -> LedgerId:
    return each.position.ledger_id if isinstance(each, Record) else each.ledger_id


def _record(topic: TopicName, found: dict[str, Any]) -> Record:
    key = base64.b64decode(found["key"])
    return Record(
        topic=topic,
        position=Position(found["ledgerId"], found["entryId"]),
        batch_index=found["batchIndex"],
        is_last=False,
        payload=base64.b64decode(found["payload"]),
        key=key.decode("utf-8", "backslashreplace"),
        properties=found["properties"],
        publish_time_ms=found["publishTime"],
        event_time_ms=found["eventTime"] or None,
        broker_time_ms=found["brokerTime"],
        index=found["index"],
        producer=found["producerName"],
        sequence_id=found["sequenceId"],
        schema_version=base64.b64decode(found["schemaVersion"]),
        encrypted=False,
        is_null=found["isNullValue"],
    )
