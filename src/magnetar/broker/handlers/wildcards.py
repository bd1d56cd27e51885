"""Consumers of wildcards: where the room `wildcards` meets a session.

The room is loaded with the first wildcard: a start does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.permissions import Action
from magnetar.base.names import TopicName
from magnetar.broker.errors import EmptyNameError, RefusedError
from magnetar.broker.handlers import permission
from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import SessionPort


async def opened(session: SessionPort, request: pb.CommandSubscribe) -> bool:
    """Whether the topic's name is a wildcard; then its consumer is opened. Raises RefusedError,
    AuthorizationError."""
    if "*" not in request.topic:
        return False
    from magnetar.broker.wildcards.wildcard import Wildcard, wildcard_of

    name = TopicName.parse(request.topic)
    levels = await wildcard_of(session.broker, name)
    if levels is None:
        return False
    if not request.subscription:
        raise EmptyNameError("Empty subscription name", remedy="a subscription needs a name")
    await permission.allow(session, Action.CONSUME, name, request.subscription)
    consumer = await Wildcard(session, request, name, levels).open()
    try:
        session.opening_consumers.check(request.consumer_id, request.request_id)
    except RefusedError:
        consumer.subscription.detach(consumer)
        raise
    if session.closed:
        consumer.subscription.detach(consumer)
        return True
    session.consumers[request.consumer_id] = consumer
    session.reply(commands.success(request.request_id))
    return True


async def unsubscribed(session: SessionPort, consumer: AttachedConsumer) -> bool:
    """Whether the consumer is one of a wildcard; then its subscriptions are deleted.

    Raises PreconditionFailedError while one of them has other consumers.
    """
    subscription = consumer.subscription
    if "*" not in subscription.topic.local:
        return False
    from magnetar.broker.wildcards.wildcard_subscription import WildcardSubscription

    if not isinstance(subscription, WildcardSubscription):
        return False
    parts = dict(subscription.parts)
    for part in parts.values():
        part.subscription.check_deletable(part, force=False)
    session.consumers.pop(consumer.consumer_id, None)
    subscription.detach(consumer)
    for name, part in parts.items():
        topic = await session.broker.any_topic(name, create=False)
        if topic.subscriptions.get(subscription.name) is part.subscription:
            await topic.drop_subscription(part.subscription)
    return True
