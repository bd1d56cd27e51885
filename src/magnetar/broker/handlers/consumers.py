"""SUBSCRIBE, UNSUBSCRIBE, CLOSE_CONSUMER, SEEK and redelivery requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.permissions import Action
from magnetar.base.ids import EARLIEST, LATEST, ConsumerId
from magnetar.base.names import TopicName
from magnetar.broker import lookup
from magnetar.broker.errors import (
    EmptyNameError,
    NotAllowedError,
    PreconditionFailedError,
    RefusedError,
    SubscriptionNotFoundError,
    WrongConsumerError,
)
from magnetar.broker.handlers import permission, wildcards
from magnetar.broker.handlers.consumer_stats import describe
from magnetar.broker.policies.schema_admission import admit_consumer
from magnetar.broker.subscription.any_subscription import (
    AnySubscription,
    AttachedConsumer,
    KeySharedPolicy,
    SubscriptionType,
)
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.any_topic import ReaderStart
from magnetar.broker.topic.topic import Topic
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import position_of
from magnetar.wire.messages import MessageEncoder

if TYPE_CHECKING:
    from magnetar.broker.ports import Handler, SessionPort

Command = pb.BaseCommand


def subscribe(session: SessionPort, command: Command) -> None:
    request = command.subscribe
    leaving = session.opening_consumers.is_leaving(request.consumer_id)
    if request.consumer_id in session.consumers and not leaving:
        session.reply(commands.success(request.request_id))
        return
    if not session.opening_consumers.begin(request.consumer_id, request.request_id):
        refusal = f"consumer id {request.consumer_id} is in use on this connection"
        session.reply(commands.error(request.request_id, pb.ServiceNotReady, refusal))
        return
    session.requests.run_simple(request, _opening(session, request))


async def _opening(session: SessionPort, request: pb.CommandSubscribe) -> None:
    try:
        # An UNSUBSCRIBE of the same id that came before it. Requests begin in the order in which they came.
        await session.opening_consumers.free(request.consumer_id)
        if request.consumer_id in session.consumers:
            session.reply(commands.success(request.request_id))
            return
        await permission.opening(session, _open(session, request))
    finally:
        session.opening_consumers.ended(request.consumer_id, request.request_id)


async def _open(session: SessionPort, request: pb.CommandSubscribe) -> None:
    if not await wildcards.opened(session, request):
        await _open_consumer(session, request)


def _check_compacted(request: pb.CommandSubscribe, topic: TopicName) -> None:
    """Reading the compacted view is for one consumer at a time, as in Pulsar."""
    if not request.read_compacted:
        return
    if not topic.persistent:
        raise NotAllowedError("readCompacted only valid on persistent topics")
    if request.subType not in (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover):
        raise NotAllowedError("readCompacted only allowed on failover or exclusive subscriptions")


async def _open_consumer(session: SessionPort, request: pb.CommandSubscribe) -> None:
    if not request.subscription:
        raise EmptyNameError("Empty subscription name", remedy="a subscription needs a name")
    topic_name = TopicName.parse(request.topic)
    _check_compacted(request, topic_name)
    await permission.allow(session, Action.CONSUME, topic_name, request.subscription)
    topic = await session.broker.any_topic(topic_name, create=request.force_topic_creation)
    await admit_consumer(session.broker, topic.name, request.schema if request.HasField("schema") else None)
    subscription: AnySubscription
    type_ = SubscriptionType(request.subType)
    caller = (session.peer.rpartition(":")[0], request.consumer_name, request.consumer_id)
    topic.limits.admit_subscribe(topic.subscriptions, request.subscription, type_.name, caller)
    if request.durable:
        await lookup.check_subscription(session.broker, topic, request.subscription)
        subscription = await topic.subscription(
            request.subscription,
            initial_earliest=request.initialPosition == pb.CommandSubscribe.InitialPosition.Earliest,
            start=None,
            properties={pair.key: pair.value for pair in request.subscription_properties},
        )
    else:
        start = _reader_start(request, session.broker.clock.now_ms())
        subscription = await topic.reader(request.subscription, start)
    if isinstance(topic, Topic) and isinstance(subscription, Subscription):
        begin = _reader_start(request, session.broker.clock.now_ms())
        if request.read_compacted:
            subscription.view_compacted(topic.compaction.view(), await topic.compaction.begin_of(begin))
        else:
            subscription.view_compacted(None, begin.position)
    if session.closed:
        topic.leave_reader(subscription)
        return
    meta = request.keySharedMeta
    consumer = _consumer(session, request, subscription)
    policy = KeySharedPolicy(meta.keySharedMode == pb.KeySharedMode.STICKY, meta.allowOutOfOrderDelivery)
    try:
        topic.check_there(subscription)
        session.opening_consumers.check(request.consumer_id, request.request_id)
        topic.limits.admit_consumer(topic.subscriptions, request.subscription)
        subscription.attach(consumer, type_, policy)
    except RefusedError:
        topic.leave_reader(subscription)
        raise
    session.consumers[request.consumer_id] = consumer
    session.settle_reader(request.consumer_id)
    session.reply(commands.success(request.request_id))


def _consumer(
    session: SessionPort, request: pb.CommandSubscribe, subscription: AnySubscription
) -> AttachedConsumer:
    return AttachedConsumer(
        consumer_id=request.consumer_id,
        name=request.consumer_name or f"{session.peer}-{request.consumer_id}",
        outlet=session,
        priority=request.priority_level,
        epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
        hash_ranges=tuple((each.start, each.end) for each in request.keySharedMeta.hashRanges),
        connection=session,
        encoder=MessageEncoder(
            request.consumer_id, subscription.topic.partition, broker_metadata=session.broker_metadata
        ),
        subscription=subscription,
        client_address=session.peer,
        client_version=session.client_version,
        connected_ms=session.broker.clock.now_ms(),
        properties={pair.key: pair.value for pair in request.metadata},
    )


def _reader_start(request: pb.CommandSubscribe, now_ms: int) -> ReaderStart:
    """The start of this request's reader."""
    earliest = request.initialPosition == pb.CommandSubscribe.InitialPosition.Earliest
    position = EARLIEST if earliest else LATEST
    if request.HasField("start_message_id"):
        position = position_of(request.start_message_id)
    back_s = request.start_message_rollback_duration_sec
    return ReaderStart(position, now_ms - back_s * 1000 if back_s else None)


def close_consumer(session: SessionPort, command: Command) -> None:
    request = command.close_consumer
    session.opening_consumers.closed(request.consumer_id)
    session.settle_reader(request.consumer_id)
    consumer = session.consumers.pop(request.consumer_id, None)
    if consumer is not None:
        session.leave(consumer)
    session.reply(commands.success(request.request_id))


def _consumer_of(session: SessionPort, consumer_id: ConsumerId) -> AttachedConsumer:
    consumer = session.consumers.get(consumer_id)
    if consumer is None:
        raise WrongConsumerError("Consumer not found", remedy=f"no consumer {consumer_id} is connected")
    return consumer


def unsubscribe(session: SessionPort, command: Command) -> None:
    request = command.unsubscribe
    session.opening_consumers.leaves(request.consumer_id)
    session.requests.run_simple(request, _leaving(session, request))


async def _leaving(session: SessionPort, request: pb.CommandUnsubscribe) -> None:
    async with session.opening_consumers.left(request.consumer_id):
        await _unsubscribe(session, request)


async def _unsubscribe(session: SessionPort, request: pb.CommandUnsubscribe) -> None:
    consumer = _consumer_of(session, request.consumer_id)
    subscription = consumer.subscription
    if await wildcards.unsubscribed(session, consumer):
        session.reply(commands.success(request.request_id))
        return
    topic = await session.broker.any_topic(subscription.topic, create=False)
    if topic.subscriptions.get(subscription.name) is not subscription:
        raise SubscriptionNotFoundError(f"{topic.name} has no subscription {subscription.name}")
    # In the turn of the attachment: others may have been attached while the topic was looked up.
    try:
        subscription.check_deletable(consumer, force=request.force)
    except PreconditionFailedError as error:
        raise WrongConsumerError(
            "Unconnected or shared consumer attempting to unsubscribe",
            remedy="close the subscription's other consumers first",
        ) from error
    session.consumers.pop(request.consumer_id, None)
    subscription.detach(consumer)
    await topic.drop_subscription(subscription)
    session.reply(commands.success(request.request_id))


def redeliver(session: SessionPort, command: Command) -> None:
    request = command.redeliverUnacknowledgedMessages
    consumer = session.consumers.get(request.consumer_id)
    if consumer is not None:
        ids = [position_of(each) for each in request.message_ids]
        epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
        consumer.subscription.redeliver(consumer, ids or None, epoch)


def seek(session: SessionPort, command: Command) -> None:
    request = command.seek

    async def work() -> None:
        subscription = _consumer_of(session, request.consumer_id).subscription
        if request.HasField("message_id"):
            await subscription.seek_message(position_of(request.message_id))
        elif request.HasField("message_publish_time"):
            await subscription.seek_time(request.message_publish_time)
        else:
            raise WrongConsumerError("Message id and message publish time were not present")
        session.reply(commands.success(request.request_id))

    session.requests.run_simple(request, work())


def last_message_id(session: SessionPort, command: Command) -> None:
    request = command.getLastMessageId

    async def work() -> None:
        subscription = _consumer_of(session, request.consumer_id).subscription
        topic = await session.broker.any_topic(subscription.topic, create=False)
        source = subscription if isinstance(subscription, Subscription) else topic
        last, batch_index = await source.last_message()
        session.reply(
            commands.last_message_id(
                request.request_id,
                last,
                partition=topic.name.partition,
                batch_index=batch_index,
                mark_delete=subscription.mark_delete,
            )
        )

    session.requests.run_simple(request, work())


def stats(session: SessionPort, command: Command) -> None:
    request = command.consumerStats
    consumer = session.consumers.get(request.consumer_id)
    if consumer is None:
        refusal = pb.CommandConsumerStatsResponse(
            request_id=request.request_id,
            error_code=pb.ConsumerNotFound,
            error_message=f"consumer {request.consumer_id} is not connected",
        )
        session.reply(commands.consumer_stats(refusal))
        return
    found = describe(consumer, session.broker.clock.now_ms())
    found.request_id = request.request_id
    session.reply(commands.consumer_stats(found))


HANDLERS: dict[int, Handler] = {
    pb.BaseCommand.SUBSCRIBE: subscribe,
    pb.BaseCommand.CLOSE_CONSUMER: close_consumer,
    pb.BaseCommand.UNSUBSCRIBE: unsubscribe,
    pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: redeliver,
    pb.BaseCommand.SEEK: seek,
    pb.BaseCommand.GET_LAST_MESSAGE_ID: last_message_id,
    pb.BaseCommand.CONSUMER_STATS: stats,
}
