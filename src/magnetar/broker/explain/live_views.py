"""A view of a live subscription. Reads only; changes nothing that decides about dispatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.keyshared import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single import SingleActiveDispatcher
from magnetar.broker.explain.subscription_view import ConsumerView, View
from magnetar.managedlog.log import ManagedLog

_HASHES_SHOWN: Final = 5


def consumer_views(
    consumers: Sequence[Consumer], unacked_of: Callable[[Consumer], int]
) -> tuple[ConsumerView, ...]:
    """Views of attached consumers; `unacked_of` tells how many messages of one are unacknowledged."""
    return tuple(
        ConsumerView(
            name=consumer.name,
            permits=consumer.permits,
            unacked=unacked_of(consumer),
            unacked_max=consumer.unacked_max,
            blocked=consumer.blocked,
            writable=consumer.outlet.writable,
        )
        for consumer in consumers
    )


def with_held(base: View, log: ManagedLog, read_position: Position) -> View:
    """`base`, whose unread entries are all that are stored, with those apart that wait for a transaction."""
    visible = log.reading.visible
    if visible is None or visible.end is None:
        return base
    start = max(visible.end, read_position)
    held = log.entries_between(log.previous_position(start), log.last_position)
    return replace(base, unread=base.unread - held, held=held, held_by=str(visible.held_by))


def dispatcher_view(dispatcher: Dispatcher | None, base: View, unacked_of: Callable[[Consumer], int]) -> View:
    """`base` with the dispatcher's state; `unacked_of` as of `consumer_views`."""
    if dispatcher is None:
        return base
    found: dict[str, Any] = {"consumers": consumer_views(dispatcher.consumers, unacked_of)}
    if isinstance(dispatcher, SingleActiveDispatcher):
        active = dispatcher.active
        found.update(single=True, active=None if active is None else active.name)
    if isinstance(dispatcher, SharedDispatcher):
        limit = dispatcher.unacked
        found.update(
            again=dispatcher.again_count,
            unacked=limit.total,
            unacked_max=limit.maximum,
            blocked=limit.blocked,
        )
        if limit.held and limit.of_broker is not None:
            found.update(unacked_of_broker=limit.of_broker.total, unacked_part=limit.of_broker.part)
    if isinstance(dispatcher, KeySharedDispatcher):
        found.update(
            waiting=dispatcher.waiting_count,
            sticky=dispatcher.sticky,
            out_of_order=dispatcher.allow_out_of_order,
            line_full=dispatcher.line_full,
            can_serve_line=dispatcher.can_serve_line,
            draining=tuple(dispatcher.lines(_HASHES_SHOWN)),
        )
    return replace(base, **found)
