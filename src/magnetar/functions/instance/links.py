"""The connections of an instance: one consumer for each topic that is read, producers as they are needed.
Driver; blocking where the client blocks.

When any of them is lost, all are closed and opened again: what had no acknowledgement is delivered anew. That
is simple, and right for each guarantee.
"""

from __future__ import annotations

import re
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from magnetar.base.closing import Closing
from magnetar.base.ids import Position
from magnetar.base.names import NamespaceName, TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.deliveries import EntryColumns
from magnetar.client.producer import Producer
from magnetar.functions.errors import BadResultError
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import Output, OutputMessage, entry_of, packed
from magnetar.functions.instance.deduplication import deduplicate
from magnetar.functions.instance.plan import InputPlan, InstancePlan

SEARCH_S: Final = 60.0
"""Seconds between two looks for new topics of a pattern and new partitions."""
_PAYLOAD_BYTES_MAX: Final = 1 << 20
"""Most bytes of the payload of an output entry, unless a message is larger."""
OUTPUTS_PER_MESSAGE_MAX: Final = 4096
"""Most messages that one message may lead to in one topic with effectively once: their numbers are derived
from its own."""

Done = Callable[[], None]


class Source:
    """One topic or partition that is read."""

    __slots__ = ("asked", "consumer", "input", "name", "number", "queue_messages", "topic")

    def __init__(self, number: int, topic: TopicName, given: InputPlan, consumer: EntryConsumer) -> None:
        self.number = number
        self.topic = topic
        self.name = str(topic)
        self.input = given
        self.consumer = consumer
        self.queue_messages = max(1, given.queue_messages)
        self.asked = 0
        """Permits that the broker still has."""

    def ask(self, waiting: int) -> None:
        """Gives permits for what fits beside `waiting` messages; not for less than half of the queue."""
        room = self.queue_messages - self.asked - waiting
        if room >= (self.queue_messages + 1) // 2:
            self.consumer.ask(room)
            self.asked += room


class InputSources(Closing):
    """All topics that an instance reads."""

    def __init__(self, client: Client, plan: InstancePlan) -> None:
        """Opens the consumers. Raises ClientError."""
        self._client = client
        self._plan = plan
        self.all: list[Source] = []
        self._known: set[str] = set()
        self.search()

    def search(self) -> None:
        """Opens consumers for topics that are new."""
        for given in self._plan.inputs:
            for topic in self._topics(given):
                if str(topic) not in self._known:
                    self._open(topic, given)

    def _topics(self, given: InputPlan) -> Iterable[TopicName]:
        if given.is_pattern:
            space, _, _ = given.topic.removeprefix("persistent://").rpartition("/")
            pattern = re.compile(given.topic)
            names = self._client.topics(NamespaceName.parse(space))
            found = [TopicName.parse(name) for name in names]
            topics = [each for each in found if pattern.fullmatch(str(each.base))]
        else:
            whole = TopicName.parse(given.topic)
            count = 0 if whole.partition >= 0 else self._client.partitions(whole)
            topics = [whole.with_partition(number) for number in range(count)] if count else [whole]
        if self._plan.takes_all_parts:
            return topics
        # Each partition has one instance: partition N the one with N modulo the parallelism.
        plan = self._plan
        return [each for each in topics if max(each.partition, 0) % plan.parallelism == plan.instance]

    def _open(self, topic: TopicName, given: InputPlan) -> None:
        plan = self._plan
        consumer = EntryConsumer(
            self._client,
            topic,
            plan.subscription,
            kind=plan.subscription_type,
            earliest=plan.earliest,
            create_topic=True,
            properties={
                "application": "pulsar-function",
                "id": plan.full_name,
                "instance_id": str(plan.instance),
            },
        )
        self._known.add(str(topic))
        self.all.append(Source(len(self.all), topic, given, consumer))

    def acknowledge(self, entries: Iterable[TakenEntry]) -> None:
        """Acknowledges entries. Raises UnreachableError."""
        by_source: dict[int, list[Position]] = {}
        for entry in entries:
            position = Position(entry.ledger_id, entry.entry_id)  # type: ignore[arg-type]  # it came as such an id
            by_source.setdefault(entry.source, []).append(position)
        for number, positions in by_source.items():
            self.all[number].consumer.acknowledge_soon(positions)

    def close(self) -> None:
        for each in self.all:
            each.consumer.close()


class _Link:
    """One producer, and what waits for its receipts."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.name = producer.name.encode()
        self.next_id = producer.last_sequence_id + 1
        self.sent: deque[Done | None] = deque()
        self.bytes_max = min(_PAYLOAD_BYTES_MAX, producer.message_bytes_max - 10_240)


class OutputTargets(Closing):
    """The producers of an instance, by topic, partition and name."""

    def __init__(self, client: Client, plan: InstancePlan) -> None:
        self._client = client
        self._plan = plan
        self._partitions: dict[str, int] = {}
        self._links: dict[tuple[str, int, str], _Link] = {}
        self._turn = 0

    @property
    def waits(self) -> bool:
        """Whether receipts are missing."""
        return any(link.sent for link in self._links.values())

    def filenos(self) -> list[int]:
        """Descriptors of producers that wait for receipts."""
        return [link.producer.fileno() for link in self._links.values() if link.sent]

    def send(self, topic: str, outputs: Sequence[Output], done: Done) -> int:
        """Publishes; `done` is called once for each of the returned number of partitions, when all that went
        there is stored. Raises ClientError."""
        self._turn += 1
        parts = self._by_partition(topic, outputs, self._turn)
        for partition, mine in parts.items():
            link = self._link(topic, partition, "")
            pieces = packed(mine, link.bytes_max)
            now_ms = time.time_ns() // 1_000_000
            for number, piece in enumerate(pieces, 1):
                entry = entry_of(piece, link.name, link.next_id, now_ms)
                link.sent.append(done if number == len(pieces) else None)
                link.producer.send(link.next_id, entry, piece.messages)
                link.next_id += piece.messages
        return len(parts)

    def send_once(
        self, topic: str, outputs: Sequence[Output], source: Source, entry: TakenEntry, done: Done
    ) -> int:
        """As `send`, and what was stored before is not stored again: the numbers come from the entry's
        index. Raises ClientError, BadResultError."""
        messages = len(entry.payloads)
        if len(outputs) > messages * OUTPUTS_PER_MESSAGE_MAX:
            raise BadResultError(
                f"{len(outputs)} messages for {topic} from an entry of {messages}: at most"
                f" {OUTPUTS_PER_MESSAGE_MAX} for each are possible with EFFECTIVELY_ONCE"
            )
        parts = self._by_partition(topic, outputs, entry.entry_id)
        name = f"fn/{self._plan.full_name}/{source.topic.namespace}/{source.topic.local}"
        for partition, mine in parts.items():
            link = self._link(topic, partition, name)
            sequence_id = (entry.index - messages + 1) * OUTPUTS_PER_MESSAGE_MAX
            pieces = packed(mine, link.bytes_max)
            for number, piece in enumerate(pieces, 1):
                link.sent.append(done if number == len(pieces) else None)
                # The publish time is the input's, so that a repeated entry is the same one, byte by byte.
                time_ms = entry.metadata.publish_time
                data = entry_of(piece, link.name, sequence_id, time_ms)
                link.producer.send(sequence_id, data, piece.messages)
                sequence_id += piece.messages
        return len(parts)

    def _by_partition(self, topic: str, outputs: Sequence[Output], turn: int) -> dict[int, Sequence[Output]]:
        count = self._partitions.get(topic)
        if count is None:
            name = TopicName.parse(topic)
            count = self._partitions[topic] = 0 if name.partition >= 0 else self._client.partitions(name)
        if count == 0:
            return {-1: outputs}
        parts: dict[int, list[Output]] = {}
        for output in outputs:
            keyed = isinstance(output, OutputMessage) and output.key is not None
            number = partition_of(output.key, count) if keyed else turn % count  # type: ignore[union-attr]  # just looked at
            parts.setdefault(number, []).append(output)
        return dict(parts)

    def _link(self, topic: str, partition: int, name: str) -> _Link:
        link = self._links.get((topic, partition, name))
        if link is None:
            target = TopicName.parse(topic)
            if partition >= 0:
                target = target.with_partition(partition)
            plan = self._plan
            if name:
                deduplicate(self._client, target)
            properties = {"application": "pulsar-function", "id": plan.full_name}
            properties["instance_id"] = str(plan.instance)
            producer = Producer(self._client, target, name=name, properties=properties)
            link = self._links[topic, partition, name] = _Link(producer)
        return link

    def collect(self) -> None:
        """Writes what was sent, and takes the receipts that have come. Raises ClientError."""
        for link in self._links.values():
            if link.sent:
                for _ in range(link.producer.advance()):
                    done = link.sent.popleft()
                    if done is not None:
                        done()

    def keep(self) -> None:
        """Tells the brokers that this side is there. Raises UnreachableError."""
        for link in self._links.values():
            link.producer.keep()

    def close(self) -> None:
        for link in self._links.values():
            link.producer.close()


def partition_of(key: str | None, partitions: int) -> int:
    """Partition of a key as Java clients choose it: by the hash of its UTF-16, without the sign."""
    value = 0
    units = (key or "").encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions


def readable(filenos: Iterable[int], timeout_s: float) -> set[int]:
    """Those descriptors that have something to read; waits up to `timeout_s` seconds for the first."""
    watch = select.poll()
    for fileno in filenos:
        if fileno >= 0:
            watch.register(fileno, select.POLLIN)
    return {fileno for fileno, _ in watch.poll(max(0.0, timeout_s) * 1000)}


def read_all(source: Source, bytes_max: int) -> EntryColumns:
    """What the broker has sent for a source, without waiting. Raises ClientError."""
    columns = source.consumer.read(0)
    while columns.size_bytes < bytes_max and source.consumer.has_data():
        columns.extend(source.consumer.read(0))
    return columns
