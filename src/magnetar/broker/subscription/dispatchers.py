"""A subscription's requests to its dispatcher whose answers depend on the types of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import AckView, Delays, Dispatcher
from magnetar.broker.dispatch.keyshared import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.errors import ConsumerBusyError
from magnetar.broker.limits.topic_limits import SubscriptionLimits
from magnetar.broker.subscription.any_subscription import AttachedConsumer, KeySharedPolicy, SubscriptionType


def goes_on(dispatcher: Dispatcher, type_: SubscriptionType, policy: KeySharedPolicy) -> bool:
    """Whether a dispatcher without consumers suits the next one: it knows the delayed entries, and the
    redelivery counts."""
    if type_ is SubscriptionType.SHARED:
        return type(dispatcher) is SharedDispatcher
    return (
        type_ is SubscriptionType.KEY_SHARED
        and isinstance(dispatcher, KeySharedDispatcher)
        and policy == KeySharedPolicy(dispatcher.sticky, dispatcher.allow_out_of_order)
    )


def check_type(current: SubscriptionType, wanted: SubscriptionType) -> None:
    """Raises ConsumerBusyError when a consumer has another type than the present ones."""
    if wanted is not current:
        raise ConsumerBusyError(
            f"Subscription is of different type. Active subscription type of '{current.name.title()}'"
            f" is different than the connecting consumer's type '{wanted.name.title()}'."
        )


def check_policy(dispatcher: Dispatcher, policy: KeySharedPolicy) -> None:
    """Raises ConsumerBusyError when a Key_Shared consumer has another mode than the present ones."""
    if isinstance(dispatcher, KeySharedDispatcher):
        dispatcher.check_policy(sticky=policy.sticky, allow_out_of_order=policy.allow_out_of_order)


def count_unacked(dispatcher: Dispatcher, limits: SubscriptionLimits, again: Callable[[], None]) -> None:
    """Unacknowledged messages of its consumers count now, towards the broker's limit too. `again` is called
    when others have acknowledged enough for it to send more."""
    if isinstance(dispatcher, SharedDispatcher):
        dispatcher.unacked.join(limits.unacked_of_broker, again)
        dispatcher.unacked.limit(limits.unacked_max)


def limit_unacked(dispatcher: Dispatcher | None, limits: SubscriptionLimits) -> None:
    """These limits of unacknowledged messages are in force now."""
    if isinstance(dispatcher, SharedDispatcher):
        dispatcher.unacked.limit(limits.unacked_max)
        for consumer in dispatcher.consumers:
            consumer.limit_unacked(limits.unacked_max_per_consumer)


def sharing(
    cursor: AckView,
    start: Position,
    delays: Delays,
    policy: KeySharedPolicy,
    hash_of: Callable[[bytes], int] | None,
) -> SharedDispatcher:
    """A dispatcher of many active consumers; `hash_of`: sticky hash of an entry, None: keys mean nothing."""
    if hash_of is None:
        return SharedDispatcher(cursor, start, delays)
    return KeySharedDispatcher(
        cursor,
        start,
        sticky=policy.sticky,
        allow_out_of_order=policy.allow_out_of_order,
        hash_of=hash_of,
        delays=delays,
    )


def tell_end(consumers: Iterable[Consumer]) -> None:
    """The topic was terminated and all entries are acknowledged: tells consumers that were not told yet."""
    for consumer in consumers:
        if isinstance(consumer, AttachedConsumer) and not consumer.told_end:
            consumer.told_end = True
            consumer.connection.end_of_topic(consumer)


def amount(counts: list[int] | None, start: int, stop: int, rows: list[int] | None) -> tuple[int, int]:
    """Entries and messages of an assignment; `counts` are those of its run."""
    if rows is not None:
        return len(rows), len(rows) if counts is None else sum([counts[row] for row in rows])
    return stop - start, stop - start if counts is None else sum(counts[start:stop])
