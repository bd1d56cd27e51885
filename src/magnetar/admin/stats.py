"""Statistics of topics as Pulsar's admin API shows them, read from what the broker holds anyway.

Beyond Pulsar's fields, `dispatchState` and `whyIdle` of a subscription say in a word and in a sentence why
it does or does not dispatch.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from magnetar.admin import internals
from magnetar.admin.call import Call, Route
from magnetar.admin.compaction import compaction_stats
from magnetar.admin.rates import Rates
from magnetar.admin.topics import loaded, parts
from magnetar.base.clock import Clock
from magnetar.broker.access.state import AccessMode
from magnetar.broker.any_subscription import AnySubscription
from magnetar.broker.attached import AttachedConsumer
from magnetar.broker.errors import TopicNotFoundError
from magnetar.broker.explain.reasons import diagnose
from magnetar.broker.filters.judge import FilterCounts
from magnetar.broker.producer import Producer
from magnetar.broker.service import Broker
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import DEDUP_CURSOR, Topic

Document = dict[str, Any]

_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

_TYPES: Final = {
    "EXCLUSIVE": "Exclusive",
    "SHARED": "Shared",
    "FAILOVER": "Failover",
    "KEY_SHARED": "Key_Shared",
}

_ACCESS_MODES: Final = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}


def topic_stats(topic: Topic, clock: Clock, rates: Rates) -> Document:
    """One topic or partition."""
    now_ms = clock.now_ms()
    subscriptions = {
        name: subscription_stats(topic, subscription, now_ms, rates)
        for name, subscription in topic.subscriptions.items()
    }
    rate_in, bytes_in = rates.per_second(topic, (topic.messages_in, topic.bytes_in), topic.created_ms, now_ms)
    durable = [document for document in subscriptions.values() if document["isDurable"]]
    return {
        "msgRateIn": rate_in,
        "msgThroughputIn": bytes_in,
        "msgRateOut": _total(subscriptions.values(), "msgRateOut"),
        "msgThroughputOut": _total(subscriptions.values(), "msgThroughputOut"),
        "bytesInCounter": topic.bytes_in,
        "msgInCounter": topic.messages_in,
        "bytesOutCounter": _total(subscriptions.values(), "bytesOutCounter"),
        "msgOutCounter": _total(subscriptions.values(), "msgOutCounter"),
        "averageMsgSize": bytes_in / rate_in if rate_in else 0.0,
        "msgChunkPublished": False,
        "storageSize": topic.log.size_bytes,
        "backlogSize": max((document["backlogSize"] for document in durable), default=0),
        "offloadedStorageSize": topic.log.offloading.offloaded_bytes,
        "waitingPublishers": topic.access.waiting_count,
        "publishers": [producer_stats(producer, now_ms) for producer in topic.producers.values()],
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Disabled" if topic.dedup is None else "Enabled",
        "compaction": compaction_stats(topic),
        "topicCreationTimeStamp": topic.created_ms,
        "lastPublishTimeStamp": topic.last_publish_ms,
        "lastPublishTimestamp": topic.last_publish_ms,
        "ownerBroker": "",
    }


def producer_stats(producer: Producer, now_ms: int) -> Document:
    """One producer; its rates are those since it connected."""
    seconds = max((now_ms - producer.connected_ms) / 1000, 1.0)
    return {
        "accessMode": _ACCESS_MODES[producer.mode],
        "producerId": producer.producer_id,
        "producerName": producer.name,
        "address": producer.client_address,
        "connectedSince": _instant(producer.connected_ms),
        "clientVersion": producer.client_version,
        "msgRateIn": producer.messages_in / seconds,
        "msgThroughputIn": producer.bytes_in / seconds,
        "averageMsgSize": producer.bytes_in / producer.messages_in if producer.messages_in else 0.0,
        "supportsPartialProducer": False,
        "metadata": dict(producer.properties),
    }


def subscription_stats(topic: Topic, subscription: Subscription, now_ms: int, rates: Rates) -> Document:
    """One subscription of a topic or partition."""
    cursor = subscription.cursor
    consumers = subscription.consumers
    view = subscription.view()
    diagnosis = diagnose(view)
    backlog = cursor.backlog_entries
    rate_out, bytes_out = rates.per_second(
        subscription, (subscription.messages_out, subscription.bytes_out), topic.created_ms, now_ms
    )
    average = topic.log.size_bytes / max(topic.log.entry_count, 1)
    return {
        "msgRateOut": rate_out,
        "msgThroughputOut": bytes_out,
        "bytesOutCounter": subscription.bytes_out,
        "msgOutCounter": subscription.messages_out,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "msgBacklog": backlog,
        "msgBacklogNoDelayed": backlog - subscription.delayed_entries,
        "backlogSize": round(backlog * average),
        "msgDelayed": subscription.delayed_entries,
        "unackedMessages": sum(map(subscription.unacked_of, consumers)),
        "blockedSubscriptionOnUnackedMsgs": view.blocked,
        "type": _TYPES[subscription.type.name],
        "activeConsumerName": subscription.active_consumer or "",
        "msgRateExpired": 0.0,
        "totalMsgExpired": 0,
        "isDurable": subscription.durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "consumersAfterMarkDeletePosition": {},
        "nonContiguousDeletedMessagesRanges": len(cursor.acked_ranges()),
        "subscriptionProperties": dict(subscription.properties),
        **filter_stats(subscription),
        "consumers": [consumer_stats(consumer, now_ms) for consumer in consumers],
        "dispatchState": diagnosis.state.value,
        "whyIdle": diagnosis.sentence,
    }


def filter_stats(subscription: AnySubscription) -> Document:
    """What its entry filters decided, in messages."""
    counts = subscription.filtered or FilterCounts()
    return {
        "filterProcessedMsgCount": counts.processed,
        "filterAcceptedMsgCount": counts.accepted,
        "filterRejectedMsgCount": counts.rejected,
        "filterRescheduledMsgCount": counts.rescheduled,
    }


def consumer_stats(consumer: AttachedConsumer, now_ms: int) -> Document:
    """One consumer; its rates are those since it connected."""
    seconds = max((now_ms - consumer.connected_ms) / 1000, 1.0)
    return {
        "consumerName": consumer.name,
        "address": consumer.client_address,
        "connectedSince": _instant(consumer.connected_ms),
        "clientVersion": consumer.client_version,
        "msgRateOut": consumer.messages_out / seconds,
        "msgThroughputOut": consumer.bytes_out / seconds,
        "bytesOutCounter": consumer.bytes_out,
        "msgOutCounter": consumer.messages_out,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.subscription.unacked_of(consumer),
        "blockedConsumerOnUnackedMsgs": consumer.blocked,
        "keyHashRanges": [f"[{first}, {last}]" for first, last in consumer.hash_ranges],
        "metadata": dict(consumer.properties),
    }


def _instant(timestamp_ms: int) -> str:
    """ISO 8601 with an offset: clients read the instants of connections as text, other times as numbers."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _total(documents: Iterable[Document], key: str) -> Any:
    return sum(document[key] for document in documents)


def aggregate(documents: list[Document]) -> Document:
    """Numbers of all partitions added up; producers and subscriptions of the same name are one."""
    total: Document = {
        "publishers": [],
        "subscriptions": {},
        "replication": {},
        "deduplicationStatus": documents[0]["deduplicationStatus"] if documents else "Disabled",
    }
    publishers: dict[str, Document] = {}
    for document in documents:
        _add(total, document)
        for publisher in document["publishers"]:
            known = publishers.setdefault(publisher["producerName"], {})
            _add(known, publisher)
            known.update((key, value) for key, value in publisher.items() if key not in known)
        for name, subscription in document["subscriptions"].items():
            merged = total["subscriptions"].setdefault(name, {"consumers": []})
            _add(merged, subscription)
            merged["consumers"].extend(subscription["consumers"])
            for key in ("type", "activeConsumerName", "subscriptionProperties"):
                merged[key] = subscription[key]
    total["publishers"] = list(publishers.values())
    for counted in (total, *publishers.values()):
        if counted.get("msgRateIn"):
            counted["averageMsgSize"] = counted["msgThroughputIn"] / counted["msgRateIn"]
    return total


_LARGEST_WINS: Final = frozenset(
    {
        "topicCreationTimeStamp",
        "lastPublishTimeStamp",
        "lastPublishTimestamp",
        "producerId",
    }
)
"""Numbers that cannot be added."""


def _add(total: Document, document: Document) -> None:
    for key, value in document.items():
        if isinstance(value, bool):
            total[key] = total.get(key, False) or value
        elif isinstance(value, (int, float)):
            known = total.get(key, 0)
            total[key] = max(known, value) if key in _LARGEST_WINS else known + value


# -- handlers ----------------------------------------------------------------------------------------


async def stats(call: Call) -> object:
    return topic_stats(await loaded(call.broker, call.topic()), call.broker.clock, call.service.rates)


async def partitioned_stats(call: Call) -> object:
    topics, count = await _partitions(call)
    documents = {
        str(topic.name): topic_stats(topic, call.broker.clock, call.service.rates) for topic in topics
    }
    return {
        **aggregate(list(documents.values())),
        "metadata": {"partitions": count, "deleted": False},
        "partitions": documents if call.flag("perPartition", default=True) else {},
    }


async def stats_internal(call: Call) -> object:
    return internals.internal_stats(await loaded(call.broker, call.topic()))


async def partitioned_stats_internal(call: Call) -> object:
    topics, count = await _partitions(call)
    return {
        "metadata": {"partitions": count, "deleted": False},
        "partitions": {str(topic.name): internals.internal_stats(topic) for topic in topics},
    }


async def _partitions(call: Call) -> tuple[list[Topic], int]:
    name = call.topic()
    broker: Broker = call.broker
    await broker.check_name(name)
    count = await broker.policies.partitions(name) if name.partition < 0 else 0
    if not count:
        raise TopicNotFoundError(f"{name} is not a partitioned topic")
    return await parts(broker, name), count


async def internal_info(call: Call) -> object:
    """What the metadata store keeps of the log and its cursors."""
    return internals.stored_info((await loaded(call.broker, call.topic())).log.info())


async def backlog(call: Call) -> object:
    """Sizes of a topic's backlog by subscription (Pulsar's offline statistics)."""
    topic = await loaded(call.broker, call.topic())
    info = topic.log.info()
    backlogs = {name: cursor.backlog_entries for name, cursor in info.cursors.items() if name != DEDUP_CURSOR}
    return {
        "topicName": str(topic.name),
        "storageSize": info.size_bytes,
        "totalMessages": info.entries,
        "messageBacklog": max(backlogs.values(), default=0),
        "averageMessageSize": info.size_bytes // info.entries if info.entries else 0,
        "cursorDetails": {name: {"cursorBacklog": entries} for name, entries in backlogs.items()},
    }


ROUTES: list[Route] = [
    ("GET", f"{_T}/stats", stats),
    ("GET", f"{_T}/partitioned-stats", partitioned_stats),
    ("GET", f"{_T}/internalStats", stats_internal),
    ("GET", f"{_T}/partitioned-internalStats", partitioned_stats_internal),
    ("GET", f"{_T}/internal-info", internal_info),
    ("GET", f"{_T}/backlog", backlog),
]
