"""Whether a connection's client may do what it asks. Nothing is asked where nothing is guarded."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from magnetar.auth.identity import Identity
from magnetar.auth.permissions import Action
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker import guard as guards

if TYPE_CHECKING:
    from magnetar.broker.guard import Guard
    from magnetar.broker.ports import BrokerPort, SessionPort


async def allow(session: SessionPort, action: Action, topic: TopicName, subscription: str = "") -> None:
    """Returns when the client may. Raises AuthorizationError."""
    guard = session.broker.guard
    if guard is not None:
        assert session.identity is not None
        await guard.require_topic(session.identity, session.peer, action, topic, subscription)


async def allow_for(session: SessionPort, action: Action, topic: TopicName, original: str) -> None:
    """The same for a command that names the role it is asked for; "": the connection's. Raises
    AuthorizationError.

    No other role is taken, not even behind a trusted proxy: that one has named its client in CONNECT, and
    passes on what follows unread, so that the client itself has written this name.
    """
    guard, identity = session.broker.guard, session.identity
    if guard is not None and identity is not None:
        guard.check_original(Identity(identity.role), original or identity.role, session.peer)
    await allow(session, action, topic)


async def allow_namespace(session: SessionPort, action: Action, namespace: NamespaceName) -> None:
    """Returns when the client may. Raises AuthorizationError."""
    guard = session.broker.guard
    if guard is not None:
        assert session.identity is not None
        await guard.require_namespace(session.identity, session.peer, action, namespace)


async def recheck(broker: BrokerPort) -> None:
    """Detaches producers and consumers that lost their right, after policies changed.

    As Pulsar does. Their clients come back at once and are told why they are refused.
    """
    if broker.guard is not None:
        broker.guard.policy_changes += 1
        rights = _Rights(broker.guard)
        for session in list(broker.sessions):
            await _recheck(session, rights)


async def opening(session: SessionPort, work: Coroutine[object, object, None]) -> None:
    """Awaits `work`, which checks a right and then attaches a producer or consumer.

    A right may be revoked in between: checked, revoked, all rechecked, attached. So a client that was
    attached after a change is checked once more.
    """
    guard = session.broker.guard
    before = 0 if guard is None else guard.policy_changes
    await work
    if guard is not None and guard.policy_changes != before:
        await _recheck(session, _Rights(guard))


class _Rights:
    """Answers that count for one round; many ask the same."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._known: dict[tuple[Identity, Action, TopicName, str], bool] = {}

    async def may(self, identity: Identity, action: Action, topic: TopicName, subscription: str = "") -> bool:
        key = (identity, action, topic.base, subscription)
        if key not in self._known:
            self._known[key] = await self.guard.may_topic(identity, action, topic, subscription)
        return self._known[key]


async def _recheck(session: SessionPort, rights: _Rights) -> None:
    identity = session.identity
    if identity is None or rights.guard.is_superuser(identity):
        return
    for producer_id, (topic, producer) in list(session.producers.items()):
        if await rights.may(identity, Action.PRODUCE, topic.name):
            continue
        # It may have left, and another one come, while the policies were read.
        attached = session.producers.get(producer_id)
        if attached is not None and attached[1] is producer:
            guards.revoked(identity, session.peer, Action.PRODUCE, str(topic.name))
            topic.detach_producer(producer)
            session.producer_detached(producer)
    for consumer_id, consumer in list(session.consumers.items()):
        subscription = consumer.subscription
        if await rights.may(identity, Action.CONSUME, subscription.topic, subscription.name):
            continue
        if session.consumers.get(consumer_id) is consumer:
            what = f"{subscription.topic}, subscription {subscription.name}"
            guards.revoked(identity, session.peer, Action.CONSUME, what)
            session.send_away(consumer)
