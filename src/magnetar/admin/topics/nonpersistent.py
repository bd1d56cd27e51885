"""`/admin/v2/non-persistent`: topics that store nothing. `topics.py` has the routes that both domains
share."""

from __future__ import annotations

import dataclasses
from typing import Final

from magnetar.admin.calls.call import Call, Document, Handler, Operation, Route
from magnetar.admin.namespaces.bundles import within
from magnetar.admin.topics import topics
from magnetar.admin.topics.over_partitions import nothing, spread, union
from magnetar.admin.topics.stats import (
    Asked,
    asked,
    consumer_stats,
    filter_stats,
    last_times,
    merged,
    publishers,
)
from magnetar.admin.topics.topic_lists import QUERY
from magnetar.admin.topics.topics import any_parts
from magnetar.base.names import NON_PERSISTENT
from magnetar.broker.errors import ConflictError, SubscriptionNotFoundError, TopicNotFoundError
from magnetar.broker.nonpersistent.nonpersistent_subscription import NonPersistentSubscription
from magnetar.broker.nonpersistent.nonpersistent_topic import NonPersistentTopic

_N: Final = f"/admin/v2/{NON_PERSISTENT}/{{tenant}}/{{namespace}}"
_T: Final = f"{_N}/{{topic}}"


def topic_stats(topic: NonPersistentTopic, asked: Asked) -> Document:
    """Statistics of one topic or partition."""
    rates = asked.rates
    subscriptions = {
        name: _subscription_stats(topic, subscription, asked)
        for name, subscription in topic.subscriptions.items()
    }
    each = subscriptions.values()
    rate_in, bytes_in = rates.per_second(topic, (topic.messages_in, topic.bytes_in), topic.created_ms)
    return {
        "msgRateIn": rate_in,
        "msgThroughputIn": bytes_in,
        "msgRateOut": sum(document["msgRateOut"] for document in each),
        "msgThroughputOut": sum(document["msgThroughputOut"] for document in each),
        "msgDropRate": sum(document["msgDropRate"] for document in each),
        "bytesInCounter": topic.bytes_in,
        "msgInCounter": topic.messages_in,
        "bytesOutCounter": sum(document["bytesOutCounter"] for document in each),
        "msgOutCounter": sum(document["msgOutCounter"] for document in each),
        "msgDropCounter": sum(document["msgDropCounter"] for document in each),
        "averageMsgSize": bytes_in / rate_in if rate_in else 0.0,
        "waitingPublishers": topic.access.waiting_count,
        "publishers": [{**publisher, "msgDropRate": 0.0} for publisher in publishers(topic, asked)],
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Disabled",
        "topicCreationTimeStamp": topic.created_ms,
        "lastPublishTimeStamp": topic.last_publish_ms,
        "ownerBroker": asked.broker_id,
    }


def _subscription_stats(
    topic: NonPersistentTopic, subscription: NonPersistentSubscription, asked: Asked
) -> Document:
    counters = (subscription.messages_out, subscription.bytes_out, subscription.messages_dropped)
    rate_out, bytes_out, drop_rate = asked.rates.per_second(subscription, counters, topic.created_ms)
    return {
        "msgRateOut": rate_out,
        "msgThroughputOut": bytes_out,
        "msgDropRate": drop_rate,
        "msgOutCounter": subscription.messages_out,
        "bytesOutCounter": subscription.bytes_out,
        "msgDropCounter": subscription.messages_dropped,
        "msgBacklog": 0,
        "type": subscription.type.name.title(),
        "activeConsumerName": subscription.active_consumer or "",
        "isDurable": subscription.durable,
        "subscriptionProperties": dict(subscription.properties),
        **filter_stats(subscription),
        **last_times(subscription),
        "consumers": [consumer_stats(each, asked) for each in subscription.consumers]
        if asked.consumers
        else [],
    }


async def _there(call: Call) -> list[NonPersistentTopic]:
    """The topic, or its loaded partitions. Raises TopicNotFoundError."""
    found = await any_parts(call.broker, call.topic())
    return [topic for topic in found if isinstance(topic, NonPersistentTopic)]


async def stats(call: Call) -> object:
    return topic_stats(await _one(call), asked(call))


async def _one(call: Call) -> NonPersistentTopic:
    topic = await call.broker.any_topic(call.topic(), create=False)
    assert isinstance(topic, NonPersistentTopic)
    return topic


async def partitioned_stats(call: Call) -> object:
    count = await _partitions(call)
    wanted = asked(call)
    return merged(call, {topic.name: topic_stats(topic, wanted) for topic in await _there(call)}, count)


async def _partitions(call: Call) -> int:
    name = call.topic()
    await call.broker.check_name(name)
    count = await call.broker.policies.partitions(name) if name.partition < 0 else 0
    if not count:
        raise TopicNotFoundError(f"Partitioned Topic not found {name}")
    return count


async def internal_stats(call: Call) -> object:
    """Internal statistics in Pulsar's form; empty, because there is no log."""
    topic = await _one(call)
    cursors: Document = {name: {} for name in topic.subscriptions}
    return {
        "entriesAddedCounter": topic.messages_in,
        "numberOfEntries": 0,
        "totalSize": 0,
        "cursors": cursors,
    }


async def list_subscriptions(call: Call) -> object:
    return sorted({name for topic in await _there(call) for name in topic.subscriptions})


async def create_subscription(call: Call) -> None:
    name = call.params["subscription"]
    found = await _there(call)
    if any(name in topic.subscriptions for topic in found):
        raise ConflictError("Subscription already exists for topic")
    for topic in found:
        await topic.subscription(name, initial_earliest=False, start=None, properties=None)


async def delete_subscription(call: Call) -> None:
    name = call.params["subscription"]
    found = [topic for topic in await _there(call) if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFoundError(f"Subscription {name} not found for topic {call.topic()}")
    for topic in found:
        await topic.delete_subscription(name, force=call.flag("force"))


async def list_in_bundle(call: Call) -> object:
    """Topics of a bundle; the path has the bundle in the place of a topic."""
    bundle = call.params["topic"]
    await call.broker.policies.namespace(call.namespace())
    found = await call.broker.topics_of(call.namespace(), NON_PERSISTENT)
    return [str(topic) for topic in found if within(topic, bundle)]


def _of_this_domain(handler: Handler) -> Handler:
    async def called(call: Call) -> object:
        return await handler(dataclasses.replace(call, params={**call.params, "domain": NON_PERSISTENT}))

    return called


_WHOLE_STATS: Final = spread(
    "GET",
    partitioned_stats,
    merged,
    one=stats,
    ends=("/partitioned-stats", "/stats"),
    may_be_empty=True,
)

ROUTES: list[Route] = [
    (method, path, _of_this_domain(handler))
    for method, path, handler in (
        ("GET", _N, Operation(topics.list_topics, query=QUERY)),
        ("GET", f"{_N}/partitioned", Operation(topics.list_partitioned, query=QUERY)),
        ("GET", _T, list_in_bundle),
        ("PUT", _T, topics.create_topic),
        ("DELETE", _T, topics.delete_topic),
        ("PUT", f"{_T}/unload", topics.UNLOAD),
        ("PUT", f"{_T}/partitions", topics.create_partitioned),
        ("POST", f"{_T}/partitions", topics.grow_partitioned),
        ("GET", f"{_T}/partitions", topics.get_partitions),
        ("DELETE", f"{_T}/partitions", topics.delete_partitioned),
        ("POST", f"{_T}/createMissedPartitions", topics.create_missed_partitions),
        ("GET", f"{_T}/stats", stats),
        ("GET", f"{_T}/partitioned-stats", _WHOLE_STATS),
        ("GET", f"{_T}/internalStats", internal_stats),
        ("GET", f"{_T}/subscriptions", spread("GET", list_subscriptions, union)),
        ("PUT", f"{_T}/subscription/{{subscription}}", spread("PUT", create_subscription, nothing)),
        ("DELETE", f"{_T}/subscription/{{subscription}}", spread("DELETE", delete_subscription, nothing)),
    )
]
