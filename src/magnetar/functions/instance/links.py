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
from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.base.closing import Closing
from magnetar.base.ids import Position
from magnetar.base.names import NamespaceName, TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.producer import Producer
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import Output, entry_of, packed
from magnetar.functions.instance.deduplication import deduplicate
from magnetar.functions.instance.endpoints import (
    Done,
    Ends,
    Source,
    refuse_too_many,
)
from magnetar.functions.instance.plan import InputPlan, InstancePlan
from magnetar.functions.instance.routing import first_number, once_name, own_topics, shares

SEARCH_S: Final = 60.0
"""Seconds between two looks for new topics of a pattern and new partitions."""
_PAYLOAD_BYTES_MAX: Final = 1 << 20
"""Most bytes of the payload of an output entry, unless a message is larger."""


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
        return own_topics(topics, self._plan)

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
        parts = shares(outputs, self._partitions_of(topic), self._turn)
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
        refuse_too_many(topic, len(outputs), len(entry.payloads))
        parts = shares(outputs, self._partitions_of(topic), entry.entry_id)
        name = once_name(self._plan, source.topic)
        for partition, mine in parts.items():
            link = self._link(topic, partition, name)
            sequence_id = first_number(entry)
            pieces = packed(mine, link.bytes_max)
            for number, piece in enumerate(pieces, 1):
                link.sent.append(done if number == len(pieces) else None)
                # The publish time is the input's, so that a repeated entry is the same one, byte by byte.
                time_ms = entry.metadata.publish_time
                data = entry_of(piece, link.name, sequence_id, time_ms)
                link.producer.send(sequence_id, data, piece.messages)
                sequence_id += piece.messages
        return len(parts)

    def _partitions_of(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            name = TopicName.parse(topic)
            count = self._partitions[topic] = 0 if name.partition >= 0 else self._client.partitions(name)
        return count

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


def connected(client: Client, plan: InstancePlan) -> Ends:
    """Both ends of a passage over a broker; opens the consumers. Raises ClientError."""
    return Ends(InputSources(client, plan), OutputTargets(client, plan))


def readable(filenos: Iterable[int], timeout_s: float) -> set[int]:
    """Those descriptors that have something to read; waits up to `timeout_s` seconds for the first."""
    watch = select.poll()
    for fileno in filenos:
        if fileno >= 0:
            watch.register(fileno, select.POLLIN)
    return {fileno for fileno, _ in watch.poll(max(0.0, timeout_s) * 1000)}
