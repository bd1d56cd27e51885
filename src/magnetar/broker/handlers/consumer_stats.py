"""CONSUMER_STATS: statistics of a consumer, for its own client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from magnetar.broker.subscription.any_subscription import AttachedConsumer, SubscriptionType
from magnetar.wire import pulsar_pb2 as pb

_TYPE_NAMES: Final = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}


def describe(consumer: AttachedConsumer, now_ms: int) -> pb.CommandConsumerStatsResponse:
    """The answer without its request id. Rates are per second since the consumer connected, that of expired
    messages since the subscription was loaded."""
    seconds = max((now_ms - consumer.connected_ms) / 1000, 1.0)
    subscription = consumer.subscription
    tally = subscription.tally
    connected = datetime.fromtimestamp(consumer.connected_ms / 1000, UTC)
    return pb.CommandConsumerStatsResponse(
        msgRateOut=consumer.messages_out / seconds,
        msgThroughputOut=consumer.bytes_out / seconds,
        msgRateRedeliver=consumer.redelivered / seconds,
        consumerName=consumer.name,
        availablePermits=max(0, consumer.permits),
        unackedMessages=max(0, subscription.unacked_of(consumer)),
        blockedConsumerOnUnackedMsgs=consumer.blocked,
        address=consumer.client_address,
        connectedSince=connected.isoformat(timespec="milliseconds"),
        type=_TYPE_NAMES[subscription.type],
        msgRateExpired=tally.expired / max((now_ms - tally.since_ms) / 1000, 1.0),
        msgBacklog=subscription.backlog_entries,
        messageAckRate=consumer.acks / seconds,
    )
