"""Deletes subscriptions that are not used, after the time that a namespace or the broker sets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from magnetar.broker.rounds import guarded
from magnetar.broker.system_topics import is_system
from magnetar.runtime.tasks import in_slices

if TYPE_CHECKING:
    from magnetar.base.names import TopicName
    from magnetar.broker.policies.policies import Policies
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.topic import Topic

_log = logging.getLogger("magnetar.broker.inactive")

EXPIRATION_POLICY: Final = "subscription_expiration_time_minutes"
"""Key of a namespace's document; 0: never."""

_TOPICS_PER_TURN: Final = 500
"""Topics examined before other tasks run: about a millisecond."""
_NOTES_PER_EXPIRATION: Final = 4
"""How often the use of a subscription is stored during the time after which it would be deleted: at most that
part of it is lost when the broker is killed."""


def expiration_ms(namespace: Policies, default_minutes: int) -> int:
    """Milliseconds without consumers after which a subscription is deleted; 0: never."""
    minutes = namespace.get(EXPIRATION_POLICY)
    return max(0, default_minutes if minutes is None else int(minutes)) * 60_000


class InactiveSubscriptions:
    """The unused durable subscriptions of the loaded topics of a broker."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker

    async def round(self) -> None:
        """Examines every loaded topic once. Errors of one are logged and tried again later."""
        async for topic in in_slices(list(self._broker.topics.values()), _TOPICS_PER_TURN):
            if topic.closed or not topic.subscriptions or is_system(topic.name):
                continue
            await guarded(self._look(topic), f"{topic.name}: deleting unused subscriptions")

    async def expire(self, name: TopicName) -> bool:
        """Whether unused subscriptions of the topic are deleted. Raises NamespaceNotFoundError."""
        return await self._limit_ms(name) > 0

    async def _limit_ms(self, name: TopicName) -> int:
        broker = self._broker
        namespace = await broker.policies.namespace(name.namespace_name)
        return expiration_ms(namespace, broker.config.subscription_expiration_minutes)

    async def _look(self, topic: Topic) -> None:
        broker = self._broker
        limit_ms = await self._limit_ms(topic.name)
        if not limit_ms:
            return
        for name, subscription in list(topic.subscriptions.items()):
            if subscription.durable and topic.subscriptions.get(name) is subscription:
                now_ms = broker.clock.settled_ms()
                if not await _note_use(subscription, now_ms, limit_ms):
                    await topic.delete_subscription(name)
                    _log.info("%s: subscription %s is deleted, because it was unused", topic.name, name)


async def _note_use(subscription: Subscription, now_ms: int, limit_ms: int) -> bool:
    """Stores that a subscription is or was in use, if the stored time is too old; returns whether it stays.

    Nothing is awaited between the check of its consumers and the answer False.
    """
    cursor, in_use = subscription.cursor, bool(subscription.consumers)
    if in_use:
        cursor.used()
    cursor.follow_clock()
    if not in_use and now_ms - cursor.last_active_ms > limit_ms:
        return False
    unknown_ms = cursor.last_active_ms - cursor.stored_active_ms
    # Less than nothing: the clock was set back since.
    if unknown_ms < 0 or unknown_ms > (limit_ms // _NOTES_PER_EXPIRATION if in_use else 0):
        await cursor.store_used()
    return True
