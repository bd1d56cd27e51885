"""`POST /topics/...`: publishing over HTTP, with the choice of a partition for each message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.admin.calls.call import AUTHORITATIVE, Call, Operation, Route
from magnetar.admin.calls.errors import BadRequestError, ServedElsewhereError
from magnetar.admin.produce import produce_documents as documents
from magnetar.admin.produce.one_call import Outcome, publish
from magnetar.base.ids import Position, ProducerId
from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.limits.enforcement import check_quotas
from magnetar.broker.lookup import partitions
from magnetar.broker.policies.schema_admission import admit_producer
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.topic import Topic
from magnetar.wire.events import SendRun

_P: Final = "/topics/{domain}/{tenant}/{namespace}/{topic}"
_ANSWER: Final = {
    "type": "object",
    "properties": {
        "messagePublishResults": {"type": "array", "items": {"type": "object"}},
        "schemaVersion": {"type": "integer"},
    },
}


async def produce(call: Call) -> object:
    """Publishes messages; answers when they are durable."""
    if call.params["domain"] not in ("persistent", "non-persistent"):
        raise BadRequestError("the domain is persistent or non-persistent")
    name = call.topic()
    request = documents.request_of(call.json_object(), name.base.local)
    if "partition" in call.params:
        name = name.with_partition(call.integer("partition"))
    count = await partitions(call.broker, str(name))
    places = await _places(call, name, count, request.messages)
    results: list[dict[str, object]] = [{} for _ in places]
    version = -1
    for place in sorted(set(places), key=str):
        rows = [row for row, each in enumerate(places) if each == place]
        topic = await call.broker.any_topic(place)
        if isinstance(topic, Topic):
            await check_quotas(topic, topic.limits.limits, call.broker.clock.settled_ms())
        stored = await admit_producer(call.broker, place, request.schema)
        version = int.from_bytes(stored, "big") if stored else -1
        for row, outcome in zip(rows, await _publish(call, topic, request, rows, stored), strict=True):
            results[row] = _result(outcome, place)
    return {"messagePublishResults": results, "schemaVersion": version}


async def _places(
    call: Call, name: TopicName, count: int, messages: Sequence[Mapping[str, object]]
) -> list[TopicName]:
    """The topic or partition of each message, all served by this broker.

    The key of a message determines its partition, as in clients; messages without a key stay together.
    """
    if not count:
        await _check_here(call, {name})
        return [name] * len(messages)
    keys = [message.get("key") for message in messages]
    by_key = [name.with_partition(_hash(key) % count) if isinstance(key, str) else None for key in keys]
    if fixed := {place for place in by_key if place is not None}:
        await _check_here(call, fixed)
    rest = _any_partition(call, name, count)
    if not fixed:
        await _check_here(call, {rest})
    return [place or rest for place in by_key]


def _any_partition(call: Call, name: TopicName, count: int) -> TopicName:
    """A partition that this broker serves, if it serves any; else another one."""
    owners = call.broker.owners
    every = [name.with_partition(number) for number in range(count)]
    here = every if owners is None else [part for part in every if owners.has(part)] or every
    return here[call.broker.clock.now_ms() % len(here)]


async def _check_here(call: Call, places: set[TopicName]) -> None:
    """Checks that this broker serves all these topics.

    Raises ServedElsewhereError when another broker serves all, ServiceNotReadyError when several do.
    """
    owners = call.broker.owners
    if owners is None:
        return
    # Several without an owner come here: each on its own would get the broker with the fewest bundles.
    authoritative = call.flag(AUTHORITATIVE) or len(places) > 1
    found = {place: await owners.locate(place, authoritative=authoritative) for place in places}
    ids = {"" if at.urls is None else at.urls.broker_id for at in found.values()}
    if len(ids) > 1:
        raise ServiceNotReadyError(
            "these messages belong to partitions of several brokers: send those of each partition alone"
        )
    if ids != {""}:
        raise ServedElsewhereError(next(iter(found.values())))
    for place in places:
        owners.check_owned(place)


def _hash(key: str) -> int:
    """The default hash of Java's clients: `String.hashCode` without its sign."""
    data, value = key.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


async def _publish(
    call: Call, topic: AnyTopic, request: documents.PublishRequest, rows: list[int], version: bytes
) -> list[Outcome]:
    name = request.producer_name or call.broker.new_producer_name()
    usual = topic.last_sequence(name) + 1
    run = SendRun(ProducerId(0))
    for place, row in enumerate(rows):
        message = request.messages[row]
        number = documents.sequence_of(message, usual + place)
        entry = documents.entry_of(
            message,
            request.schema,
            version,
            name=name,
            number=number,
            now_ms=call.broker.clock.now_ms(),
        )
        if len(entry) > call.broker.config.message_bytes_max:
            raise BadRequestError(f"a message may have {call.broker.config.message_bytes_max} bytes")
        run.add(number, 1, None, entry, good=True)
        run.size_bytes += len(entry)
    return await publish(topic, name, run)


def _result(outcome: Outcome, place: TopicName) -> dict[str, object]:
    if isinstance(outcome, Position):
        return {"messageId": f"{outcome.ledger_id}:{outcome.entry_id}:{place.partition}"}
    if outcome is None:
        return {"messageId": f"-1:-1:{place.partition}"}
    return {"errorCode": 1, "errorMsg": str(outcome)}


ROUTES: list[Route] = [
    ("POST", _P, Operation(produce, body=documents.SCHEMA, answer=_ANSWER)),
    (
        "POST",
        f"{_P}/partitions/{{partition}}",
        Operation(produce, body=documents.SCHEMA, answer=_ANSWER),
    ),
]
