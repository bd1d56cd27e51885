"""`/admin/v2/persistent`: topics and partitioned topics, from creation to deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from magnetar.admin.calls.call import Call, Operation, Route, position_document, whole
from magnetar.admin.calls.errors import (
    BadRequestError,
    FewerPartitionsError,
    NotAcceptableError,
    NotImplementedHereError,
)
from magnetar.admin.namespaces.over_bundles import unstored_elsewhere
from magnetar.admin.topics.over_partitions import Answers, nothing, partitions_elsewhere, spread
from magnetar.admin.topics.partitions_of_others import PartitionsOfOthers
from magnetar.admin.topics.topic_lists import QUERY, chosen
from magnetar.base.names import NON_PERSISTENT, TopicName
from magnetar.broker.errors import (
    ConflictError,
    InvalidTopicError,
    NotAllowedError,
    PreconditionFailedError,
    TopicNotFoundError,
)
from magnetar.broker.policies.creation import PARTITIONS_MAX
from magnetar.broker.service import Broker
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.discovery import names_coordinators

_N: Final = "/admin/v2/persistent/{tenant}/{namespace}"
_T: Final = f"{_N}/{{topic}}"

PROPERTIES: Final = "properties"


async def loaded(broker: Broker, name: TopicName) -> Topic:
    """A topic or partition that exists. Raises TopicNotFoundError."""
    try:
        return await broker.topic(name, create=False)
    except TopicNotFoundError:
        if name.partition < 0:
            raise
        raise TopicNotFoundError(await _why_no_partition(broker, name)) from None


async def _why_no_partition(broker: Broker, name: TopicName) -> str:
    if not await broker.policies.partitions(name):
        return f"Partitioned Topic not found: {name} has zero partitions"
    return "Topic partitions were not yet created"


def refuse_partition(name: TopicName) -> None:
    """Raises PreconditionFailedError when the name is a partition's but the call needs a whole topic."""
    if name.partition >= 0:
        raise PreconditionFailedError("Partitioned Topic Name should not contain '-partition-'")


async def any_parts(broker: Broker, name: TopicName) -> list[AnyTopic]:
    """The topic of either domain, or its existing partitions.

    Raises TopicNotFoundError when there are none at all.
    """
    return [await broker.any_topic(part, create=False) for part in await _part_names(broker, name)]


async def parts(broker: Broker, name: TopicName) -> list[Topic]:
    """As `any_parts`, for a persistent topic."""
    return [await loaded(broker, part) for part in await _part_names(broker, name)]


async def _part_names(broker: Broker, name: TopicName) -> list[TopicName]:
    await broker.check_name(name)
    count = await broker.policies.partitions(name) if name.partition < 0 else 0
    if not count:
        return [name]
    return [part for part in map(name.with_partition, range(count)) if await broker.exists(part)]


async def refuse_partitioned(broker: Broker, name: TopicName, what: str, *, of: str = "on") -> None:
    """Raises NotAllowedError (405, as in Pulsar) for operations that need a single partition."""
    if name.partition < 0 and await broker.policies.partitions(name):
        raise NotAllowedError(
            f"{what} {of} a partitioned topic is not allowed", remedy="name one of its partitions"
        )


# -- lists -------------------------------------------------------------------------------------------


async def list_topics(call: Call) -> object:
    name = call.namespace()
    await call.broker.policies.namespace(name)
    found = list(await call.broker.topics_of(name, call.domain))
    if call.domain == NON_PERSISTENT:
        # The others know of theirs only, as in Pulsar, whose brokers ask each other too.
        found = sorted([*found, *await unstored_elsewhere(call)], key=str)
    return await chosen(call, name, found)


async def list_partitioned(call: Call) -> object:
    name = call.namespace()
    await call.broker.policies.namespace(name)
    found = sorted(await call.broker.policies.partitioned_topics(name, call.domain), key=str)
    return await chosen(call, name, found)


# -- one topic ---------------------------------------------------------------------------------------


_SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
"""Property of a shadow topic, which shows the messages of another topic."""


async def create_topic(call: Call) -> None:
    """Creates a topic; the body may be its properties."""
    name, properties = call.topic(), call.json_strings()
    if _SHADOW_SOURCE in properties:
        raise NotImplementedHereError("this broker has no shadow topics")
    if name.partition >= 0:
        await call.broker.check_name(name)
        if name.partition >= await call.broker.policies.partitions(name):
            raise InvalidTopicError(_no_partition(name, await call.broker.policies.partitions(name)))
    await call.broker.create_topic(name, properties)


def _no_partition(name: TopicName, partitions: int) -> str:
    base, begin = (
        name.local.rpartition("-partition-")[0],
        f'Can\'t create topic {name.local} with "-partition-"',
    )
    if partitions:
        return f"{begin} followed by a number smaller than number of partition of partitioned topic {base}"
    return f"{begin} followed by numeric value if there isn't a partitioned topic {base} created."


async def delete_topic(call: Call) -> None:
    name = call.topic()
    await call.broker.check_name(name)
    if name.partition < 0 and await call.broker.policies.partitions(name):
        raise ConflictError(
            f"{name} is a partitioned topic, instead of calling delete topic, please call"
            " delete-partitioned-topic.",
            remedy=f"DELETE {name.local}/partitions",
        )
    await call.broker.delete_topic(name, force=call.flag("force"))


async def forget_policies(broker: Broker, name: TopicName) -> None:
    """Deletes the policies of a deleted topic, so that a later topic of the same name does not get them."""
    await broker.policies.forget_topic(name)


async def unload(call: Call) -> None:
    for topic in await any_parts(call.broker, call.topic()):
        await call.broker.unload(topic.name)


async def trim(call: Call) -> None:
    for topic in await parts(call.broker, call.topic()):
        await topic.log.trim()


async def terminate(call: Call) -> object:
    name = call.topic()
    await refuse_partitioned(call.broker, name, "Termination", of="of")
    return position_document(await (await loaded(call.broker, name)).terminate(), name)


async def terminate_partitions(call: Call) -> object:
    name = call.topic()
    await call.broker.check_name(name)
    count = 0 if name.partition >= 0 else await call.broker.policies.partitions(name)
    if not count:
        raise NotAllowedError(
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate, please use"
            " terminate commands",
            remedy=f"POST {name.local}/terminate",
        )
    # Unused partitions too: otherwise they would be created later and accept messages.
    topics = [await call.broker.topic(name.with_partition(i)) for i in range(count)]
    return {
        str(topic.name.partition): position_document(await topic.terminate(), topic.name) for topic in topics
    }


async def get_properties(call: Call) -> object:
    """Properties of a topic. Those of a partitioned topic are stored with its number of partitions."""
    name = call.topic()
    if await _is_partitioned(call.broker, name):
        return await call.broker.policies.partitioned_properties(name)
    return dict((await loaded(call.broker, name)).log.properties)


async def set_properties(call: Call) -> None:
    """Adds properties, as in Pulsar; an existing name gets the new value."""
    given = call.json_strings()
    await _change_properties(call, lambda properties: {**properties, **given})


async def delete_property(call: Call) -> None:
    key = call.query.get("key")
    if key is None:
        raise BadRequestError("query parameter key is missing: which property?")
    await _change_properties(
        call, lambda properties: {name: value for name, value in properties.items() if name != key}
    )


async def _change_properties(call: Call, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
    name = call.topic()
    if await _is_partitioned(call.broker, name):
        await call.broker.policies.update_partitioned(
            name, lambda document: document.update({PROPERTIES: change(document.get(PROPERTIES) or {})})
        )
        return
    log = (await loaded(call.broker, name)).log
    await log.update_properties(change)


async def _is_partitioned(broker: Broker, name: TopicName) -> bool:
    await broker.check_name(name)
    return name.partition < 0 and await broker.policies.partitions(name) > 0


# -- partitions --------------------------------------------------------------------------------------


def _wanted_partitions(call: Call) -> tuple[int, dict[str, str]]:
    """The body: a number, or `{"partitions": n, "properties": {...}}`."""
    body = call.json()
    properties: dict[str, str] = {}
    if isinstance(body, dict):
        given = body.get("properties") or {}
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise BadRequestError("properties must be an object of strings")
        properties = given
        body = body.get("partitions")
    count = whole(body)
    if count is None:
        raise BadRequestError(
            "The request entity cannot be empty."
            if call.json() is None
            else "the body must be the number of partitions"
        )
    if not 0 < count <= PARTITIONS_MAX:
        raise NotAcceptableError(
            "Number of partitions should be more than 0"
            if count <= 0
            else f"Number of partitions should be less than or equal to {PARTITIONS_MAX}"
        )
    return count, properties


async def create_partitioned(call: Call) -> None:
    name = call.topic()
    count, properties = _wanted_partitions(call)
    await call.broker.check_name(name)
    refuse_partition(name)
    if await call.broker.exists(name):
        raise ConflictError("This topic already exists")
    await call.broker.partitioned.create(name, count, properties)


async def grow_partitioned(call: Call) -> None:
    name = call.topic()
    refuse_partition(name)
    await call.broker.check_name(name)
    current = await call.broker.policies.partitions(name)
    if not current:
        raise ConflictError(f"Topic {name} is not the partitioned topic.")
    count, _ = _wanted_partitions(call)
    if count < current:
        raise FewerPartitionsError(
            f"Desired partitions {count} can't be less than the current partitions {current}."
        )
    async with call.broker.topic_quota.take(name.namespace_name, count - current):
        await call.broker.partitioned.grow(name, count)


async def get_partitions(call: Call) -> object:
    name = call.topic()
    transactions = call.broker.transactions
    if names_coordinators(name) and transactions.enabled:
        return {"partitions": await transactions.discovery.partitions(name), "deleted": False}
    await call.broker.check_name(name)
    count = 0 if name.partition >= 0 else await call.broker.policies.partitions(name)
    if not count and not call.flag("checkAllowAutoCreation") and not await call.broker.exists(name):
        raise TopicNotFoundError(f"Topic {name} not found")
    return {"partitions": count, "deleted": False}


async def delete_partitioned(call: Call) -> None:
    name = call.topic()
    await call.broker.check_name(name)
    if name.partition < 0 and not await call.broker.policies.partitions(name):
        if await call.broker.exists(name):
            raise ConflictError(
                f"{name} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call"
                " delete.",
                remedy=f"DELETE {name.local}",
            )
        raise TopicNotFoundError(f"Topic {name} not found.")
    found = await partitions_elsewhere(call)
    others = None if found is None else PartitionsOfOthers(call, found)
    await call.broker.partitioned.delete(name, force=call.flag("force"), others=others)


async def create_missed_partitions(call: Call) -> None:
    """Does nothing: partitions are created when they are first used, so none is missing."""
    name = call.topic()
    refuse_partition(name)
    await call.broker.check_name(name)
    if not await call.broker.policies.partitions(name):
        raise TopicNotFoundError(f"Topic {name} does not exist")


def _last_positions(_call: Call, answers: Answers, _count: int) -> object:
    return {str(name.partition): position for name, position in answers.items()}


UNLOAD: Final = spread("PUT", unload, nothing)
_TERMINATE_ALL: Final = spread(
    "POST",
    terminate_partitions,
    _last_positions,
    one=terminate,
    ends=("/terminate/partitions", "/terminate"),
)

ROUTES: list[Route] = [
    ("GET", _N, Operation(list_topics, query=QUERY)),
    ("GET", f"{_N}/partitioned", Operation(list_partitioned, query=QUERY)),
    ("PUT", _T, create_topic),
    ("DELETE", _T, delete_topic),
    ("PUT", f"{_T}/unload", UNLOAD),
    ("POST", f"{_T}/trim", spread("POST", trim, nothing)),
    ("POST", f"{_T}/terminate", terminate),
    ("POST", f"{_T}/terminate/partitions", _TERMINATE_ALL),
    ("GET", f"{_T}/properties", get_properties),
    ("PUT", f"{_T}/properties", set_properties),
    ("DELETE", f"{_T}/properties", delete_property),
    ("PUT", f"{_T}/partitions", create_partitioned),
    ("POST", f"{_T}/partitions", grow_partitioned),
    ("GET", f"{_T}/partitions", get_partitions),
    ("DELETE", f"{_T}/partitions", delete_partitioned),
    ("POST", f"{_T}/createMissedPartitions", create_missed_partitions),
]
