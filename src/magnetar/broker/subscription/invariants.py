"""What always holds of a subscription (pure): asserted after every step of tests, never in production."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.broker.compaction.source import CompactedSource
from magnetar.broker.dispatch.api import Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single import SingleActiveDispatcher
from magnetar.broker.subscription.any_subscription import AttachedConsumer, SubscriptionType
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log import ManagedLog

_SHARING = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


def check_sources(
    source: ManagedLog | CompactedSource,
    acks: Cursor | CompactedSource,
    log: ManagedLog,
    cursor: Cursor,
    *,
    pumping: bool,
) -> None:
    """What is read and what is acknowledged go together."""
    assert not pumping, "the pump runs within a turn only"
    if isinstance(source, CompactedSource):
        assert acks is source, "read from what is compacted, acknowledged in the log"
    else:
        assert source is log, "another log is read"
        assert acks is cursor, "acknowledged in another cursor"


def check_consumers(
    subscription: object,
    consumers: Iterable[AttachedConsumer],
    dispatcher: Dispatcher | None,
    type_: SubscriptionType,
) -> None:
    """Each belongs to it; the dispatcher is of its type, and agrees with itself."""
    for consumer in consumers:
        assert consumer.subscription is subscription, "a consumer of another subscription"
    if isinstance(dispatcher, SharedDispatcher):
        assert type_ in _SHARING, f"shared among the consumers of an {type_.name} subscription"
        dispatcher.check()
    elif isinstance(dispatcher, SingleActiveDispatcher):
        assert type_ not in _SHARING, f"one consumer is served of a {type_.name} subscription"
        assert dispatcher.active is None or dispatcher.active in dispatcher.consumers, "who left is served"
