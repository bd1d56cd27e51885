"""Whether a connection's client may do what it asks. Nothing is asked where nothing is guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.permissions import Action
from magnetar.base.names import NamespaceName, TopicName

if TYPE_CHECKING:
    from magnetar.broker.session import Session


async def allow(session: Session, action: Action, topic: TopicName, subscription: str = "") -> None:
    """Returns when the client may. Raises AuthorizationError."""
    guard = session.broker.guard
    if guard is not None:
        assert session.identity is not None
        await guard.require_topic(session.identity, session.peer, action, topic, subscription)


async def allow_namespace(session: Session, action: Action, namespace: NamespaceName) -> None:
    """Returns when the client may. Raises AuthorizationError."""
    guard = session.broker.guard
    if guard is not None:
        assert session.identity is not None
        await guard.require_namespace(session.identity, session.peer, action, namespace)


def expired(session: Session) -> bool:
    """Whether the credentials of the client were valid and are no more."""
    guard = session.broker.guard
    return guard is not None and session.identity is not None and guard.expired(session.identity)
