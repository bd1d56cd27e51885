"""Answers about topics that need no producer or consumer: partitions, lists, last message, positions."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.entry import metadata_of
from magnetar.broker.service import Broker
from magnetar.broker.topic import Topic
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import position_of


async def partitions(broker: Broker, name: str) -> int:
    """Partitions of a topic; 0 when it is not a partitioned one. Its namespace must exist."""
    topic = TopicName.parse(name)
    await broker.check_name(topic)
    return 0 if topic.partition >= 0 else await broker.policies.partitions(topic)


@dataclass(frozen=True, slots=True)
class TopicList:
    """Answer to GET_TOPICS_OF_NAMESPACE."""

    topics: list[str]
    digest: str
    filtered: bool
    changed: bool


def topics_digest(names: list[str]) -> str:
    """CRC32C over the sorted names joined by commas, as eight hex digits of little-endian bytes."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


async def topics_of_namespace(broker: Broker, request: pb.CommandGetTopicsOfNamespace) -> TopicList:
    """The topics that a pattern consumer may be interested in."""
    mode = pb.CommandGetTopicsOfNamespace.Mode
    namespace = NamespaceName.parse(request.namespace)
    await broker.policies.namespace(namespace)
    if request.mode == mode.NON_PERSISTENT:
        return TopicList([], topics_digest([]), filtered=False, changed=True)
    pattern = request.topics_pattern if request.HasField("topics_pattern") else None
    topics, filtered = await broker.topics_matching(namespace, pattern)
    names = [str(name) for name in topics]
    digest = topics_digest(names)
    if request.topics_hash and request.topics_hash == digest:
        return TopicList([], digest, filtered=filtered, changed=False)
    return TopicList(names, digest, filtered=filtered, changed=True)


async def last_message(topic: Topic) -> tuple[Position, int]:
    """Position of the last message, and its index in its batch (-1: not a batch).

    (-1:-1, -1) when the topic holds no message.
    """
    last = topic.log.last_position
    if last.entry_id < 0:
        last = topic.log.previous_position(last)
    if last.entry_id < 0:
        return EARLIEST, -1
    runs = await topic.log.read(last, 1 << 20, 1)
    if not runs:
        return EARLIEST, -1
    metadata = metadata_of(runs[0].entries[0])
    batch_index = metadata.num_messages_in_batch - 1 if metadata.HasField("num_messages_in_batch") else -1
    return Position(runs[0].ledger_id, runs[0].first_entry), batch_index


async def reader_start(
    topic: Topic, start: Position | None, request: pb.CommandSubscribe, now_ms: int
) -> Position:
    """Where a reader begins: the position before the first entry that it gets.

    The entry of the start id is delivered; the client drops it, or its messages up to the start, unless
    it wants the start itself.
    """
    if request.start_message_rollback_duration_sec:
        back_ms = request.start_message_rollback_duration_sec * 1000
        first = await topic.log.position_of_time(now_ms - back_ms)
        return topic.log.previous_position(first)
    if start is None:
        earliest = request.initialPosition == pb.CommandSubscribe.InitialPosition.Earliest
        start = EARLIEST if earliest else LATEST
    if start >= LATEST:
        return topic.log.last_position
    if start <= EARLIEST:
        return topic.log.previous_position(topic.log.first_position)
    return topic.log.previous_position(start)


def seek_position(topic: Topic, message_id: pb.MessageIdData) -> Position:
    """The entry that a SEEK by id asks for; the ends of the log for the reserved ids."""
    position = position_of(message_id)
    if position >= LATEST:
        return topic.log.next_position(topic.log.last_position)
    if position <= EARLIEST:
        return topic.log.first_position
    return position
