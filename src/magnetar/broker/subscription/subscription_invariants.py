"""The invariants of a subscription (pure): asserted after every step of tests, never in production."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.subscription.any_subscription import AnySubscription, AttachedConsumer
from magnetar.broker.subscription.tally import Tally


def check_consumers(
    subscription: AnySubscription, consumers: Sequence[AttachedConsumer], *, ended: bool
) -> None:
    """Each belongs to it. `ended`: whether the topic takes no more messages."""
    for consumer in consumers:
        assert consumer.subscription is subscription, "a consumer of another subscription"
        assert ended or not consumer.told_end, "it was told of the end too early"


def check_tally(tally: Tally) -> None:
    """Counters only grow, and what the last expiry took is part of all that expired."""
    assert 0 <= tally.expired_last <= tally.expired, "the last expiry took more than all"
    assert min(tally.acked, tally.redelivered) >= 0, "less than nothing was acknowledged or given back"
    assert min(tally.messages_out, tally.bytes_out) >= 0, "less than nothing was sent"
