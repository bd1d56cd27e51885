"""On what a transaction acknowledges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.errors import NotAllowedError
from magnetar.broker.subscription.subscription import Subscription

if TYPE_CHECKING:
    from magnetar.broker.subscription.any_subscription import AttachedConsumer


def acknowledged_on(consumer: AttachedConsumer) -> Subscription:
    """The subscription of a consumer. Raises NotAllowedError where it would be gone with its consumer."""
    subscription = consumer.subscription
    if not isinstance(subscription, Subscription) or not subscription.durable:
        raise NotAllowedError("transactions acknowledge on durable subscriptions of persistent topics only")
    return subscription
