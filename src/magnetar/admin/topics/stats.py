"""Statistics of topics in the form of Pulsar's admin API, from values that the broker holds anyway.

Beyond Pulsar's fields, `dispatchState` (a word) and `whyIdle` (a sentence) explain why a subscription does or
does not dispatch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from magnetar.admin.calls.call import Call, Document, Operation, Route
from magnetar.admin.calls.rates import Rates
from magnetar.admin.topics import internals
from magnetar.admin.topics.aggregation import aggregate
from magnetar.admin.topics.compaction import compaction_stats
from magnetar.admin.topics.over_partitions import Answers, spread
from magnetar.admin.topics.topics import loaded, parts
from magnetar.broker.access.access_state import AccessMode
from magnetar.broker.errors import TopicNotFoundError
from magnetar.broker.explain.reasons import diagnose
from magnetar.broker.filters.judge import FilterCounts
from magnetar.broker.service import Broker
from magnetar.broker.subscription.any_subscription import AnySubscription, AttachedConsumer, SubscriptionType
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import DEDUP_CURSOR, Topic

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


@dataclass(frozen=True, slots=True)
class Asked:
    """Records the requests for statistics: their times and topics."""

    rates: Rates
    broker_id: str
    backlog_sizes: bool = True
    """Whether to compute the sizes of backlogs in bytes; else they are -1."""
    oldest: bool = False
    """Whether to look up the publish time of the oldest message of each backlog."""
    publishers: bool = True
    consumers: bool = True


QUERY: Final = (
    "getPreciseBacklog",
    "subscriptionBacklogSize",
    "getEarliestTimeInBacklog",
    "excludePublishers",
    "excludeConsumers",
)
"""Query parameters. Backlogs are always precise."""


def asked(call: Call) -> Asked:
    """The options in the query. Raises BadRequestError."""
    call.flag("getPreciseBacklog")
    return Asked(
        call.service.rates,
        call.broker.broker_id,
        backlog_sizes=call.flag("subscriptionBacklogSize", default=True),
        oldest=call.flag("getEarliestTimeInBacklog"),
        publishers=not call.flag("excludePublishers"),
        consumers=not call.flag("excludeConsumers"),
    )


def topic_stats(topic: Topic, asked: Asked) -> Document:
    """Statistics of one topic or partition."""
    rates = asked.rates
    subscriptions = {
        name: subscription_stats(topic, subscription, asked)
        for name, subscription in topic.subscriptions.items()
    }
    rate_in, bytes_in = rates.per_second(topic, (topic.messages_in, topic.bytes_in), topic.created_ms)
    held_back = [each.backlog_entries for each in topic.subscriptions.values() if each.durable]
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
        "backlogSize": max((_backlog_bytes(topic, each) for each in held_back), default=0),
        "offloadedStorageSize": topic.log.offloading.offloaded_bytes,
        "waitingPublishers": topic.access.waiting_count,
        "publishers": publishers(topic, asked),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Disabled" if topic.dedup is None else "Enabled",
        "compaction": compaction_stats(topic),
        "earliestMsgPublishTimeInBacklogs": 0,
        "topicCreationTimeStamp": topic.log.info().created_ms or topic.created_ms,
        "lastPublishTimeStamp": topic.last_publish_ms,
        "lastPublishTimestamp": topic.last_publish_ms,
        "ownerBroker": asked.broker_id,
    }


def publishers(topic: AnyTopic, asked: Asked) -> list[Document]:
    """Statistics of a topic's producers, if requested."""
    return [producer_stats(each, asked) for each in topic.producers.values()] if asked.publishers else []


def producer_stats(producer: Producer, asked: Asked) -> Document:
    """Statistics of one producer."""
    counters = (producer.messages_in, producer.bytes_in)
    rate_in, bytes_in = asked.rates.per_second(producer, counters, producer.connected_ms)
    return {
        "accessMode": _ACCESS_MODES[producer.mode],
        "producerId": producer.producer_id,
        "producerName": producer.name,
        "address": producer.client_address,
        "connectedSince": _instant(producer.connected_ms),
        "clientVersion": producer.client_version,
        "msgRateIn": rate_in,
        "msgThroughputIn": bytes_in,
        "msgInCounter": producer.messages_in,
        "bytesInCounter": producer.bytes_in,
        "chunkedMessageRate": 0.0,
        "averageMsgSize": producer.bytes_in / producer.messages_in if producer.messages_in else 0.0,
        "supportsPartialProducer": False,
        "metadata": dict(producer.properties),
    }


def _backlog_bytes(topic: Topic, entries: int) -> int:
    return entries * topic.log.size_bytes // max(topic.log.entry_count, 1)


def subscription_stats(topic: Topic, subscription: Subscription, asked: Asked) -> Document:
    """Statistics of one subscription of a topic or partition."""
    cursor = subscription.cursor
    consumers = subscription.consumers
    view = subscription.view()
    diagnosis = diagnose(view)
    backlog = cursor.backlog_entries
    tally, keyed = subscription.tally, subscription.type is SubscriptionType.KEY_SHARED
    counters = (
        subscription.messages_out,
        subscription.bytes_out,
        tally.redelivered,
        tally.acked,
        tally.expired,
    )
    rate_out, bytes_out, again, acks, expired = asked.rates.per_second(subscription, counters, tally.since_ms)
    return {
        "msgRateOut": rate_out,
        "msgThroughputOut": bytes_out,
        "bytesOutCounter": subscription.bytes_out,
        "msgOutCounter": subscription.messages_out,
        "msgRateRedeliver": again,
        "messageAckRate": acks,
        "chunkedMessageRate": 0.0,
        "msgBacklog": backlog,
        "msgBacklogNoDelayed": backlog - subscription.delayed_entries,
        "backlogSize": _backlog_bytes(topic, backlog) if asked.backlog_sizes else -1,
        "earliestMsgPublishTimeInBacklog": 0,
        "msgDelayed": subscription.delayed_entries,
        "msgInReplay": view.again + view.waiting,
        "unackedMessages": sum(map(subscription.unacked_of, consumers)),
        "blockedSubscriptionOnUnackedMsgs": view.blocked,
        "type": _TYPES[subscription.type.name],
        "activeConsumerName": subscription.active_consumer or "",
        "msgRateExpired": expired,
        "msgExpired": tally.expired_last,
        "totalMsgExpired": tally.expired,
        "lastExpireTimestamp": tally.expired_ms,
        "lastMarkDeleteAdvancedTimestamp": tally.advanced_ms,
        **last_times(subscription),
        "isDurable": subscription.durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": view.out_of_order,
        **({"keySharedMode": "STICKY" if view.sticky else "AUTO_SPLIT"} if keyed else {}),
        "consumersAfterMarkDeletePosition": {},
        "nonContiguousDeletedMessagesRanges": len(cursor.acked_ranges()),
        "subscriptionProperties": dict(subscription.properties),
        **filter_stats(subscription),
        "consumers": [consumer_stats(each, asked) for each in consumers] if asked.consumers else [],
        "dispatchState": diagnosis.state.value,
        "whyIdle": diagnosis.sentence,
    }


def last_times(subscription: AnySubscription) -> Document:
    """Times of the last actions of its consumers, Unix ms; 0: never."""
    tally = subscription.tally
    return {
        "lastConsumedFlowTimestamp": tally.flow_ms,
        "lastConsumedTimestamp": tally.sent_ms,
        "lastAckedTimestamp": tally.acked_ms,
    }


def filter_stats(subscription: AnySubscription) -> Document:
    """Numbers of messages by the decisions of its entry filters."""
    counts = subscription.filtered or FilterCounts()
    return {
        "filterProcessedMsgCount": counts.processed,
        "filterAcceptedMsgCount": counts.accepted,
        "filterRejectedMsgCount": counts.rejected,
        "filterRescheduledMsgCount": counts.rescheduled,
    }


def consumer_stats(consumer: AttachedConsumer, asked: Asked) -> Document:
    """Statistics of one consumer."""
    counters = (consumer.messages_out, consumer.bytes_out, consumer.redelivered, consumer.acks)
    rate_out, bytes_out, again, acks = asked.rates.per_second(consumer, counters, consumer.connected_ms)
    return {
        "consumerName": consumer.name,
        "address": consumer.client_address,
        "connectedSince": _instant(consumer.connected_ms),
        "clientVersion": consumer.client_version,
        "msgRateOut": rate_out,
        "msgThroughputOut": bytes_out,
        "msgRateRedeliver": again,
        "messageAckRate": acks,
        "chunkedMessageRate": 0.0,
        "avgMessagesPerEntry": round(consumer.messages_in(1000) / 1000),
        "lastAckedTimestamp": consumer.acked_ms,
        "lastAckedTime": _instant(consumer.acked_ms),
        "lastConsumedTimestamp": consumer.sent_ms,
        "lastConsumedTime": _instant(consumer.sent_ms),
        "firstMessagesSentTimestamp": consumer.first_sent_ms,
        "lastConsumedFlowTimestamp": consumer.flow_ms,
        "firstConsumedFlowTimestamp": consumer.first_flow_ms,
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


def _total(documents: Iterable[Document], key: str) -> object:
    return sum(document[key] for document in documents)


# -- handlers ----------------------------------------------------------------------------------------


async def stats(call: Call) -> object:
    wanted = asked(call)
    return await _stats(await loaded(call.broker, call.topic()), wanted)


async def _stats(topic: Topic, asked: Asked) -> Document:
    document = topic_stats(topic, asked)
    if asked.oldest:
        await _add_oldest(topic, document)
    return document


async def _add_oldest(topic: Topic, document: Document) -> None:
    """Adds the time of the oldest message of each backlog, Unix ms; -1 without a backlog."""
    found: list[int] = []
    for name, shown in document["subscriptions"].items():
        subscription = topic.subscriptions.get(name)
        time_ms = -1
        if subscription is not None and subscription.backlog_entries:
            log, cursor = topic.log, subscription.cursor
            first = cursor.next_unacked(log.next_position(cursor.mark_delete))
            runs = await log.reading.read_intact(first, 1, 1)
            time_ms = log.believed_ms(runs[0]) if runs else -1
            if runs and subscription.durable:
                found.append(time_ms)
        shown["earliestMsgPublishTimeInBacklog"] = time_ms
    document["earliestMsgPublishTimeInBacklogs"] = min(found, default=0)


async def partitioned_stats(call: Call) -> object:
    topics, count = await _partitions(call)
    wanted = asked(call)
    return merged(call, {topic.name: await _stats(topic, wanted) for topic in topics}, count)


def merged(call: Call, answers: Answers, count: int) -> Document:
    """Statistics of a partitioned topic, from those of its partitions."""
    documents = {str(name): answer for name, answer in answers.items() if isinstance(answer, dict)}
    return {
        **aggregate(list(documents.values())),
        "metadata": {"partitions": count, "deleted": False},
        "partitions": documents if call.flag("perPartition", default=True) else {},
    }


async def stats_internal(call: Call) -> object:
    return internals.internal_stats(await loaded(call.broker, call.topic()))


async def partitioned_stats_internal(call: Call) -> object:
    topics, count = await _partitions(call)
    return _merged_internal(call, {topic.name: internals.internal_stats(topic) for topic in topics}, count)


def _merged_internal(_call: Call, answers: Answers, count: int) -> Document:
    return {
        "metadata": {"partitions": count, "deleted": False},
        "partitions": {str(name): answer for name, answer in answers.items()},
    }


async def _partitions(call: Call) -> tuple[list[Topic], int]:
    name = call.topic()
    broker: Broker = call.broker
    await broker.check_name(name)
    count = await broker.policies.partitions(name) if name.partition < 0 else 0
    if not count:
        raise TopicNotFoundError(f"Partitioned Topic {name} not found")
    return await parts(broker, name), count


async def internal_info(call: Call) -> object:
    """The log and its cursors in the metadata store."""
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


_WHOLE_STATS: Final = spread(
    "GET",
    partitioned_stats,
    merged,
    one=stats,
    ends=("/partitioned-stats", "/stats"),
    may_be_empty=True,
)
_WHOLE_INTERNAL: Final = spread(
    "GET",
    partitioned_stats_internal,
    _merged_internal,
    one=stats_internal,
    ends=("/partitioned-internalStats", "/internalStats"),
    may_be_empty=True,
)

ROUTES: list[Route] = [
    ("GET", f"{_T}/stats", Operation(stats, query=QUERY)),
    ("GET", f"{_T}/partitioned-stats", Operation(_WHOLE_STATS, query=("perPartition", *QUERY))),
    ("GET", f"{_T}/internalStats", stats_internal),
    ("GET", f"{_T}/partitioned-internalStats", _WHOLE_INTERNAL),
    ("GET", f"{_T}/internal-info", internal_info),
    ("GET", f"{_T}/backlog", backlog),
]
