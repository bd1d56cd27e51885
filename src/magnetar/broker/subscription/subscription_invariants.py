"""The invariants of a subscription (pure): asserted after every step of tests, never in production."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single import SingleActiveDispatcher
from magnetar.broker.subscription.any_subscription import AnySubscription, AttachedConsumer, SubscriptionType
from magnetar.broker.subscription.tally import Tally

_SHARING = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


def check_consumers(
    subscription: AnySubscription,
    consumers: Sequence[AttachedConsumer],
    dispatcher: Dispatcher | None,
    *,
    ended: bool,
) -> None:
    """Each belongs to it; the dispatcher is of its type, and agrees with itself. `ended`: whether the topic
    takes no more messages."""
    type_ = subscription.type
    check_tally(subscription.tally)
    ids: set[tuple[int, int]] = set()
    for consumer in consumers:
        assert consumer.subscription is subscription, "a consumer of another subscription"
        ids.add((id(consumer.connection), consumer.consumer_id))
        assert ended or not consumer.told_end, "it was told of the end too early"
        assert consumer.unacked >= 0, "more was acknowledged than was sent"
    assert len(ids) == len(consumers), "a consumer is attached twice"
    if isinstance(dispatcher, SharedDispatcher):
        assert type_ in _SHARING, f"shared among the consumers of an {type_.name} subscription"
        dispatcher.check()
    elif isinstance(dispatcher, SingleActiveDispatcher):
        assert type_ not in _SHARING, f"one consumer is served of a {type_.name} subscription"
        assert (dispatcher.active is None) == (not consumers), "the served consumer is none, or one that left"
        assert dispatcher.active is None or dispatcher.active in consumers, "a consumer that left is served"
        assert type_ is SubscriptionType.FAILOVER or len(consumers) <= 1, "an exclusive consumer is not alone"


def check_tally(tally: Tally) -> None:
    """Counters only grow, and what the last expiry took is part of all that expired."""
    assert 0 <= tally.expired_last <= tally.expired, "the last expiry took more than all"
    assert min(tally.acked, tally.redelivered) >= 0, "less than nothing was acknowledged or given back"
    assert min(tally.messages_out, tally.bytes_out) >= 0, "less than nothing was sent"
