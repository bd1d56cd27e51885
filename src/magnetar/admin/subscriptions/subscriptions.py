"""`/admin/v2/persistent/.../subscription`: subscriptions of a topic, or of all partitions of one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from magnetar.admin.calls.call import Call, Route, check_properties, message_position
from magnetar.admin.calls.errors import BadRequestError, NotImplementedHereError, status_of
from magnetar.admin.topics.over_partitions import (
    Answers,
    Partitions,
    about,
    nothing,
    spread,
    statistics,
    union,
)
from magnetar.admin.topics.topics import parts, refuse_partitioned
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.base.names import TopicName
from magnetar.broker import lookup
from magnetar.broker.errors import (
    ConflictError,
    PreconditionFailedError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from magnetar.broker.subscription.any_subscription import check_no_consumers
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.topic import Topic
from magnetar.runtime.tasks import in_slices

_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_S: Final = f"{_T}/subscription/{{subscription}}"
_STEPS_PER_TURN: Final = 2_000
"""Steps from one unacknowledged entry to the next before the event loop gets a turn, 3 ms."""


def find(topic: Topic, name: str) -> Subscription:
    """A subscription of a topic. Raises SubscriptionNotFoundError."""
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise SubscriptionNotFoundError(f"Subscription {name} not found for topic {topic.name}")
    return subscription


async def _found(call: Call) -> list[tuple[Topic, Subscription]]:
    """The subscription of the path on every part of the topic. Raises SubscriptionNotFoundError."""
    name = call.params["subscription"]
    topics = await parts(call.broker, call.topic())
    found = [(topic, topic.subscriptions[name]) for topic in topics if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFoundError(f"Subscription {name} not found for topic {call.topic()}")
    return found


async def list_subscriptions(call: Call) -> object:
    topics = await parts(call.broker, call.topic())
    return sorted({name for topic in topics for name in topic.subscriptions})


async def create_subscription(call: Call) -> None:
    """Creates a subscription at the message id of the body, without one at the end of the topic.

    A missing topic is created if clients may create it.
    """
    name = call.params["subscription"]
    topic_name = call.topic()
    body = call.json()
    position, excluded = _asked_position(body)
    properties = body.get("properties") if isinstance(body, dict) else None
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values())
    ):
        raise BadRequestError("properties must be an object of strings")
    properties = None if properties is None else check_properties(properties)
    try:
        count = await lookup.partitions(call.broker, str(topic_name))
        names = [topic_name.with_partition(i) for i in range(count)] if count else [topic_name]
        topics = [await call.broker.topic(part) for part in names]
    except TopicNotFoundError as error:
        raise PreconditionFailedError(
            "Topic does not exist and cannot be auto-created", remedy=f"create {topic_name} first"
        ) from error
    if any(name in topic.subscriptions for topic in topics):
        raise ConflictError("Subscription already exists for topic")
    for topic in topics:
        await topic.subscription(
            name,
            initial_earliest=position <= EARLIEST,
            start=_begin(topic, position, excluded=excluded),
            properties=properties,
        )


def _asked_position(body: object) -> tuple[Position, bool]:
    if body is None:
        return LATEST, False
    # The fields of Pulsar's class begin with zeros, which are before every message.
    return (EARLIEST, False) if body == {} else message_position(body)


def _begin(topic: Topic, position: Position, *, excluded: bool) -> Position | None:
    """The entry after which a subscription begins; None for the ends of the topic."""
    if position <= EARLIEST or position >= LATEST:
        return None
    return position if excluded else topic.log.previous_position(position)


async def delete_subscription(call: Call) -> None:
    force = call.flag("force")
    found = await _found(call)
    if not force:
        for _, subscription in found:
            subscription.check_deletable(None, force=False)
    for topic, subscription in found:
        await topic.delete_subscription(subscription.name, force=force)


async def skip_all(call: Call) -> None:
    for _, subscription in await _found(call):
        await subscription.skip_all()


async def skip(call: Call) -> None:
    """Skips the next n entries that are not acknowledged."""
    count = call.integer("count")
    await refuse_partitioned(call.broker, call.topic(), "Skip messages")
    for topic, subscription in await _found(call):
        end = await nth_unacked(topic, subscription, count)
        await subscription.skip_to(end)


async def nth_unacked(topic: Topic, subscription: Subscription, count: int) -> Position:
    """The count-th entry that is not acknowledged; the last entry when there are fewer. A step takes 1.4 µs,
    and the event loop gets turns in between."""
    log, cursor = topic.log, subscription.cursor
    last = log.last_position
    if count >= cursor.backlog_entries:
        return last
    position = cursor.mark_delete
    async for _ in in_slices(range(count), _STEPS_PER_TURN):
        position = cursor.next_unacked(log.next_position(position))
    return min(position, last)


async def expire(call: Call) -> None:
    """Skips messages older than a number of seconds."""
    for topic, subscription in await _found(call):
        await _expire(topic, subscription, _oldest_kept(call))


async def expire_all(call: Call) -> None:
    for topic in await parts(call.broker, call.topic()):
        for subscription in list(topic.subscriptions.values()):
            if subscription.durable:
                await _expire(topic, subscription, _oldest_kept(call))


def _oldest_kept(call: Call) -> int:
    """Unix ms before which messages are skipped."""
    return call.broker.clock.settled_ms() - call.integer("seconds") * 1000


async def _expire(topic: Topic, subscription: Subscription, kept_from_ms: int) -> None:
    first_kept = await topic.log.position_of_time(kept_from_ms)
    await subscription.expire_to(topic.log.previous_position(first_kept))


async def expire_to(call: Call) -> None:
    """Skips all messages up to the message id of the body, which is included unless `isExcluded` is true."""
    position, excluded = message_position(call.json())
    await refuse_partitioned(call.broker, call.topic(), "expiry up to a message")
    for topic, subscription in await _found(call):
        await subscription.expire_to(topic.log.previous_position(position) if excluded else position)


async def reset_to_time(call: Call) -> None:
    """Moves the subscription to the first message that the broker stored at the time (Unix ms) or later."""
    time_ms = call.integer("timestamp")
    for topic, subscription in await _found(call):
        await subscription.seek(await topic.log.position_of_time(time_ms))


async def reset_to_message(call: Call) -> None:
    position, excluded = message_position(call.json())
    if EARLIEST < position < LATEST:
        await refuse_partitioned(call.broker, call.topic(), "a reset to a message")
    for topic, subscription in await _found(call):
        await subscription.seek(_target(topic, position, excluded=excluded))


def _target(topic: Topic, position: Position, *, excluded: bool) -> Position:
    log = topic.log
    if position >= LATEST:
        return log.next_position(log.last_position)
    if position <= EARLIEST:
        return log.first_position
    return log.next_position(position) if excluded else position


async def get_properties(call: Call) -> object:
    return dict((await _found(call))[0][1].properties)


async def set_properties(call: Call) -> None:
    """Replaces the properties of a subscription."""
    properties = call.json_strings()
    for _, subscription in await _found(call):
        await subscription.cursor.set_cursor_properties(properties)


async def replicated(call: Call) -> object:
    """Whether a subscription is replicated: always false."""
    return {str(topic.name): False for topic, _ in await _found(call)}


async def set_replicated(call: Call) -> None:
    """Refused, except to turn replication off."""
    wanted = call.json_bool()
    await _found(call)
    if wanted:
        raise NotImplementedHereError("this broker does not replicate subscriptions yet")


# -- several brokers ---------------------------------------------------------------------------------


async def check_new(call: Call, found: Partitions) -> None:
    """Raises ConflictError when a partition has the subscription: then none is made."""
    path = f"/admin/v2/{call.domain}/{{tenant}}/{{namespace}}/{{topic}}/subscriptions"
    bare = replace(call, body=b"")

    async def here(name: TopicName) -> object:
        topic = await call.broker.any_topic(name, create=False)
        return list(topic.subscriptions)

    try:
        answers = await found.each(lambda name: about(bare, "GET", name, path), here, found.parts)
    except MagnetarError as error:
        if status_of(error) != 404:
            raise
        return
    if call.params["subscription"] in union(call, answers, len(answers)):
        raise ConflictError("Subscription already exists for topic")


async def check_free(call: Call, found: Partitions) -> None:
    """Raises PreconditionFailedError while the subscription has consumers on a partition: then it is deleted
    on none. `force` makes it be deleted all the same."""
    if call.flag("force"):
        return
    for name in filter(found.is_here, found.parts):
        topic = await call.broker.any_topic(name, create=False)
        subscription = topic.subscriptions.get(call.params["subscription"])
        if subscription is not None:
            subscription.check_deletable(None, force=False)
    elsewhere = [name for name in found.parts if not found.is_here(name)]
    for shown in (await statistics(found, call, elsewhere)).values():
        check_no_consumers(len(shown["subscriptions"].get(call.params["subscription"], _NO_ONE)["consumers"]))


_NO_ONE: Final[Mapping[str, Sequence[object]]] = {"consumers": ()}


async def _check_end(call: Call, _: Partitions) -> None:
    """Raises NotAllowedError unless the position of the body is an end of the topic."""
    position, _excluded = message_position(call.json())
    if EARLIEST < position < LATEST:
        await refuse_partitioned(call.broker, call.topic(), "a reset to a message")


async def _create(call: Call) -> object:
    if call.broker.owners is not None:
        # It comes into being as a partitioned topic where clients may make it.
        with contextlib.suppress(TopicNotFoundError):
            await lookup.partitions(call.broker, str(call.topic()))
    return await _CREATE(call)


def first(_call: Call, answers: Answers, _count: int) -> object:
    """The answer of the first partition that has one."""
    return next(iter(answers.values()))


def _united(_call: Call, answers: Answers, _count: int) -> object:
    return {
        name: value for each in answers.values() if isinstance(each, dict) for name, value in each.items()
    }


_CREATE: Final = spread("PUT", create_subscription, nothing, before=check_new)

ROUTES: list[Route] = [
    ("GET", f"{_T}/subscriptions", spread("GET", list_subscriptions, union)),
    ("PUT", _S, functools.wraps(create_subscription)(_create)),
    ("DELETE", _S, spread("DELETE", delete_subscription, nothing, before=check_free)),
    ("POST", f"{_S}/skip_all", spread("POST", skip_all, nothing)),
    ("POST", f"{_S}/skip/{{count}}", skip),
    ("POST", f"{_S}/expireMessages", expire_to),
    ("POST", f"{_S}/expireMessages/{{seconds}}", spread("POST", expire, nothing)),
    ("POST", f"{_T}/all_subscription/expireMessages/{{seconds}}", spread("POST", expire_all, nothing)),
    ("POST", f"{_S}/resetcursor", spread("POST", reset_to_message, nothing, before=_check_end)),
    ("POST", f"{_S}/resetcursor/{{timestamp}}", spread("POST", reset_to_time, nothing)),
    ("GET", f"{_S}/properties", spread("GET", get_properties, first)),
    ("PUT", f"{_S}/properties", spread("PUT", set_properties, nothing)),
    ("GET", f"{_S}/replicatedSubscriptionStatus", spread("GET", replicated, _united)),
    ("POST", f"{_S}/replicatedSubscriptionStatus", spread("POST", set_replicated, nothing)),
]
