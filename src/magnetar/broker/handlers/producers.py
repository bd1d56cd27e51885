"""PRODUCER and CLOSE_PRODUCER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.permissions import Action
from magnetar.base.names import TopicName
from magnetar.broker import lookup
from magnetar.broker.access.access_state import AccessMode, Admission
from magnetar.broker.handlers import permission
from magnetar.broker.limits.enforcement import check_quotas
from magnetar.broker.policies.schema_admission import admit_producer
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Topic
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import Handler, SessionPort
    from magnetar.broker.topic.any_topic import AnyTopic

Command = pb.BaseCommand


def producer(session: SessionPort, command: Command) -> None:
    request = command.producer
    attached = session.producers.get(request.producer_id)
    if attached is not None and str(attached[0].name) == request.topic:
        # Requested again because the answer was late: a second producer with one id would never be closed.
        attached[1].request_id = request.request_id
        answer(session, attached[1])
        return
    if attached is not None or not session.opening_producers.begin(request.producer_id, request.request_id):
        refusal = f"producer id {request.producer_id} is in use on this connection"
        session.reply(commands.error(request.request_id, pb.ServiceNotReady, refusal))
        return
    session.requests.run_simple(request, _opening(session, request))


async def _opening(session: SessionPort, request: pb.CommandProducer) -> None:
    try:
        await permission.opening(session, _open_producer(session, request))
    finally:
        session.opening_producers.ended(request.producer_id, request.request_id)


async def _open_producer(session: SessionPort, request: pb.CommandProducer) -> None:
    topic_name = TopicName.parse(request.topic)
    await permission.allow(session, Action.PRODUCE, topic_name)
    topic = await session.broker.any_topic(topic_name)
    schema = request.schema if request.HasField("schema") else None
    schema_version = await admit_producer(session.broker, topic.name, schema)
    if topic.limits.limits.quotas and isinstance(topic, Topic):
        await check_quotas(topic, topic.limits.limits, session.broker.clock.settled_ms())
    await _begin_subscription(session, topic, request.initial_subscription_name)
    if session.closed:
        return
    session.opening_producers.check(request.producer_id, request.request_id)
    name = request.producer_name or session.broker.new_producer_name()
    topic.limits.admit_producer(topic.producers, name, encrypted=request.encrypted)
    producer = Producer(
        request.producer_id,
        name,
        session,
        epoch=request.epoch,
        mode=AccessMode(request.producer_access_mode),
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        request_id=request.request_id,
        user_named=request.user_provided_producer_name and bool(request.producer_name),
        encrypted=request.encrypted,
        schema_version=schema_version,
        client_address=session.peer,
        client_version=session.client_version,
        connected_ms=session.broker.clock.now_ms(),
        properties={pair.key: pair.value for pair in request.metadata},
    )
    admission = topic.attach_producer(producer)
    session.producers[request.producer_id] = (topic, producer)
    session.closed_producers.pop(request.producer_id, None)
    if admission is not Admission.GRANTED:
        answer(session, producer)


async def _begin_subscription(session: SessionPort, topic: AnyTopic, name: str) -> None:
    """Creates the subscription that must miss no message of this producer, as for a dead letter topic: its
    consumers may come much later. Source: PIP 106."""
    if name and topic.name.persistent and name not in topic.subscriptions:
        await permission.allow(session, Action.CONSUME, topic.name, name)
        await lookup.check_subscription(session.broker, topic, name)
        await topic.subscription(name, initial_earliest=True, start=None, properties=None)


def answer(session: SessionPort, producer: Producer) -> None:
    """Tells the client that its producer is attached, or that it must wait."""
    topic, _ = session.producers[producer.producer_id]
    session.reply(
        commands.producer_success(
            producer.request_id,
            producer.name,
            last_sequence_id=topic.last_sequence(producer.name),
            schema_version=producer.schema_version or None,
            topic_epoch=producer.topic_epoch if producer.ready else None,
            ready=producer.ready,
        )
    )


def close_producer(session: SessionPort, command: Command) -> None:
    request = command.close_producer
    session.opening_producers.closed(request.producer_id)
    attached = session.producers.get(request.producer_id)
    if attached is not None:
        attached[0].detach_producer(attached[1])
        session.forget_producer(request.producer_id)
    session.reply(commands.success(request.request_id))


HANDLERS: dict[int, Handler] = {
    pb.BaseCommand.PRODUCER: producer,
    pb.BaseCommand.CLOSE_PRODUCER: close_producer,
}
