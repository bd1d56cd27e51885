"""Answers about topics that need no producer or consumer: partitions and lists."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.base.levels import levels_of
from magnetar.base.names import NON_PERSISTENT, PERSISTENT, NamespaceName, TopicName
from magnetar.broker.errors import ConflictError, SubscriptionNotFoundError, TopicNotFoundError
from magnetar.broker.system_topics import is_system
from magnetar.broker.watchers.pattern import PatternError
from magnetar.broker.watchers.selection import PATTERN_CHARS_MAX, compiled, matching, topics_digest
from magnetar.metadata.store import StoreUnreachableError
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.topic.any_topic import AnyTopic


async def partitions(broker: BrokerPort, name: str, *, may_come: bool = True) -> int:
    """Partitions of a topic; 0 when it is not partitioned. Its namespace must exist.

    A missing topic is created as a partitioned one where clients may do so. Unless the topic `may_come` into
    being, raises TopicNotFoundError when it is missing: clients test so whether a topic exists. Source:
    PIP-344.
    """
    topic = TopicName.parse(name)
    await broker.check_name(topic)
    count = 0 if topic.partition >= 0 else await broker.policies.partitions(topic)
    if count or await _exists(broker, topic, may_come=may_come):
        return count
    if levels_of(topic) is not None:
        return 0
    rules = await broker.creation(topic)
    if not may_come or not rules.topics:
        raise TopicNotFoundError(f"Topic {topic} not found")
    if not rules.partitions or topic.partition >= 0:
        return 0
    # Another client may have been faster.
    with contextlib.suppress(ConflictError):
        await broker.partitioned.create(topic, rules.partitions)
    return await broker.policies.partitions(topic)


async def _exists(broker: BrokerPort, topic: TopicName, *, may_come: bool) -> bool:
    owners = broker.owners
    try:
        return await (broker.exists(topic) if owners is None else owners.contact.read(broker.exists(topic)))
    except StoreUnreachableError:
        if owners is None or not may_come:
            raise
        # That it has no partitions is known. Whether it is there, its owner tells the client.
        return True


async def check_subscription(broker: BrokerPort, topic: AnyTopic, name: str) -> None:
    """Raises SubscriptionNotFoundError when a subscription is missing that clients may not make."""
    if topic.name.persistent and name not in topic.subscriptions:
        rules = await broker.creation(topic.name)
        if not rules.subscriptions:
            raise SubscriptionNotFoundError(
                "Subscription does not exist", remedy=f"clients may make none here, and there is no {name}"
            )


@dataclass(frozen=True, slots=True)
class TopicList:
    """Answer to GET_TOPICS_OF_NAMESPACE."""

    topics: list[str]
    digest: str
    filtered: bool
    changed: bool


async def visible_topics(
    broker: BrokerPort, namespace: NamespaceName, domain: str = PERSISTENT
) -> list[TopicName]:
    """Topics and partitions of one domain, without those that brokers use internally."""
    return [name for name in await broker.topics_of(namespace, domain) if not is_system(name)]


async def topics_of_namespace(broker: BrokerPort, request: pb.CommandGetTopicsOfNamespace) -> TopicList:
    """The topics for a pattern consumer; none when the namespace is missing, as its topics may come with
    it."""
    namespace = NamespaceName.parse(request.namespace)
    topics = []
    for domain in _DOMAINS[request.mode]:
        topics += await visible_topics(broker, namespace, domain)
    filtered = False
    if request.topics_pattern and len(request.topics_pattern) <= PATTERN_CHARS_MAX:
        # Patterns that this broker cannot match safely are matched by the client: that is the purpose of
        # `filtered`.
        with contextlib.suppress(PatternError):
            topics = await matching(compiled(request.topics_pattern), topics, broker.watchers.turns)
            filtered = True
    names = [str(name) for name in topics]
    digest = topics_digest(names)
    if request.topics_hash and request.topics_hash == digest:
        return TopicList([], digest, filtered=filtered, changed=False)
    return TopicList(names, digest, filtered=filtered, changed=True)


_DOMAINS: Final = {
    pb.CommandGetTopicsOfNamespace.PERSISTENT: (PERSISTENT,),
    pb.CommandGetTopicsOfNamespace.NON_PERSISTENT: (NON_PERSISTENT,),
    pb.CommandGetTopicsOfNamespace.ALL: (PERSISTENT, NON_PERSISTENT),
}
