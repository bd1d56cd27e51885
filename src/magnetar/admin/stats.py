"""Statistics of topics as Pulsar's admin API shows them, read from what the broker holds anyway.

Beyond Pulsar's fields: `whyIdle` of a subscription says in words why nothing is being delivered, and the
ledgers of `internalStats` carry the index (PIP-70) of their first message, so that a reader of a range
can plan by message numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from magnetar.admin.call import Call, Route
from magnetar.admin.rates import Rates
from magnetar.admin.topics import loaded, parts
from magnetar.base.clock import Clock
from magnetar.base.ids import Position
from magnetar.broker.errors import TopicNotFoundError
from magnetar.broker.service import Broker
from magnetar.broker.subscription import AttachedConsumer, Subscription
from magnetar.broker.topic import DEDUP_CURSOR, Producer, Topic
from magnetar.managedlog.info import CursorInfo, LogInfo

Document = dict[str, Any]

_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

_TYPES: Final = {
    "EXCLUSIVE": "Exclusive",
    "SHARED": "Shared",
    "FAILOVER": "Failover",
    "KEY_SHARED": "Key_Shared",
}
_STATES: Final = {
    "open": "LedgerOpened",
    "terminated": "Terminated",
    "failed": "WriteFailed",
    "fenced": "Fenced",
    "closing": "Closing",
    "closed": "Closed",
}
"""Our states in Pulsar's words."""


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
        "offloadedStorageSize": 0,
        "waitingPublishers": 0,
        "publishers": [producer_stats(producer, now_ms) for producer in topic.producers.values()],
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Disabled" if topic.dedup is None else "Enabled",
        "topicCreationTimeStamp": topic.created_ms,
        "lastPublishTimeStamp": topic.last_publish_ms,
        "lastPublishTimestamp": topic.last_publish_ms,
        "ownerBroker": "",
    }


def producer_stats(producer: Producer, now_ms: int) -> Document:
    """One producer; its rates are those since it connected."""
    seconds = max((now_ms - producer.connected_ms) / 1000, 1.0)
    return {
        "accessMode": "Exclusive" if producer.exclusive else "Shared",
        "producerId": producer.producer_id,
        "producerName": producer.name,
        "address": producer.client_address,
        "connectedSince": producer.connected_ms,
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
        "msgBacklogNoDelayed": backlog,
        "backlogSize": round(backlog * average),
        "msgDelayed": 0,
        "unackedMessages": sum(consumer.unacked for consumer in consumers),
        "blockedSubscriptionOnUnackedMsgs": False,
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
        "consumers": [consumer_stats(consumer, now_ms) for consumer in consumers],
        "whyIdle": subscription.why_idle(),
    }


def consumer_stats(consumer: AttachedConsumer, now_ms: int) -> Document:
    """One consumer; its rates are those since it connected."""
    seconds = max((now_ms - consumer.connected_ms) / 1000, 1.0)
    return {
        "consumerName": consumer.name,
        "address": consumer.client_address,
        "connectedSince": consumer.connected_ms,
        "msgRateOut": consumer.messages_out / seconds,
        "msgThroughputOut": consumer.bytes_out / seconds,
        "bytesOutCounter": consumer.bytes_out,
        "msgOutCounter": consumer.messages_out,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "blockedConsumerOnUnackedMsgs": consumer.blocked,
        "keyHashRanges": [f"[{first}, {last}]" for first, last in consumer.hash_ranges],
        "metadata": dict(consumer.properties),
    }


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
        "connectedSince",
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


def internal_stats(topic: Topic) -> Document:
    """The ledgers and cursors of one topic or partition."""
    info = topic.log.info()
    return {
        "entriesAddedCounter": info.entries_added,
        "numberOfEntries": info.entries,
        "totalSize": info.size_bytes,
        "currentLedgerEntries": info.current_ledger_entries,
        "currentLedgerSize": info.current_ledger_bytes,
        "lastConfirmedEntry": str(info.last_position),
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "pendingBytes": info.pending_bytes,
        "state": _STATES.get(info.state, info.state),
        "ledgers": _ledgers(info),
        "cursors": {
            name: _cursor(cursor, topic.subscriptions.get(name)) for name, cursor in info.cursors.items()
        },
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1,
            "entries": -1,
            "size": -1,
            "offloaded": False,
            "underReplicated": False,
        },
        "firstIndex": info.ledgers[0].first_index if info.ledgers else info.next_index,
        "lastIndex": info.next_index - 1,
        "messages": info.next_index - info.ledgers[0].first_index if info.ledgers else 0,
        "properties": dict(info.properties),
    }


def _ledgers(info: LogInfo) -> list[Document]:
    """Each ledger; `messages` is how far it is to the first index of the next one."""
    ends = [*(ledger.first_index for ledger in info.ledgers[1:]), info.next_index]
    return [
        {
            "ledgerId": ledger.ledger_id,
            "entries": ledger.entries,
            "size": ledger.size_bytes,
            "offloaded": False,
            "underReplicated": False,
            "timestamp": ledger.timestamp_ms,
            "firstIndex": ledger.first_index,
            "messages": end - ledger.first_index,
        }
        for ledger, end in zip(info.ledgers, ends, strict=True)
    ]


def _cursor(cursor: CursorInfo, subscription: Subscription | None) -> Document:
    read: Position = cursor.next_unacked if subscription is None else subscription.read_position
    return {
        "markDeletePosition": str(cursor.mark_delete),
        "readPosition": str(read),
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": 0,
        "cursorLedger": cursor.ledger_id,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": cursor.acked_ranges,
        "lastLedgerSwitchTimestamp": "",
        "state": "Open",
        "active": subscription is not None and bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": cursor.backlog_entries,
        "totalNonContiguousDeletedMessagesRange": cursor.acked_range_count,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.properties),
    }


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
    return internal_stats(await loaded(call.broker, call.topic()))


async def partitioned_stats_internal(call: Call) -> object:
    topics, count = await _partitions(call)
    return {
        "metadata": {"partitions": count, "deleted": False},
        "partitions": {str(topic.name): internal_stats(topic) for topic in topics},
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
    name = call.topic()
    info = (await loaded(call.broker, name)).log.info()
    terminated = info.terminated
    return {
        "version": 1,
        "creationDate": "",
        "modificationDate": "",
        "ledgers": [
            {
                "ledgerId": ledger.ledger_id,
                "entries": ledger.entries,
                "size": ledger.size_bytes,
                "timestamp": ledger.timestamp_ms,
                "isOffloaded": False,
            }
            for ledger in info.ledgers
        ],
        **(
            {}
            if terminated is None
            else {"terminatedPosition": {"ledgerId": terminated.ledger_id, "entryId": terminated.entry_id}}
        ),
        "cursors": {
            name: {
                "version": 1,
                "cursorsLedgerId": cursor.ledger_id,
                "markDelete": {
                    "ledgerId": cursor.mark_delete.ledger_id,
                    "entryId": cursor.mark_delete.entry_id,
                },
            }
            for name, cursor in info.cursors.items()
        },
        "properties": dict(info.properties),
    }


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
