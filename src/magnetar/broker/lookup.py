"""Answers about topics that need no producer or consumer: partitions and lists."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.service import Broker
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c


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
    """The topics that a pattern consumer may be interested in; none when there is no such namespace, as
    its topics may come with it."""
    mode = pb.CommandGetTopicsOfNamespace.Mode
    namespace = NamespaceName.parse(request.namespace)
    if request.mode == mode.NON_PERSISTENT:
        return TopicList([], topics_digest([]), filtered=False, changed=True)
    pattern = request.topics_pattern if request.HasField("topics_pattern") else None
    topics, filtered = await broker.topics_matching(namespace, pattern)
    names = [str(name) for name in topics]
    digest = topics_digest(names)
    if request.topics_hash and request.topics_hash == digest:
        return TopicList([], digest, filtered=filtered, changed=False)
    return TopicList(names, digest, filtered=filtered, changed=True)
