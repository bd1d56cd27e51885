"""Limits in the data path, through sessions: what is refused, what waits, what goes on when."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.explain.reasons import DiagnosedState, diagnose
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send
from support.sessions import TOPIC, Peer, Type, World, in_world, send

NAMESPACE = NamespaceName("public", "default")
NAME = TopicName.parse(TOPIC)


async def limit(world: World, **policies: Any) -> None:
    """Sets policies of the namespace; None removes."""

    def change(document: dict[str, Any]) -> None:
        for key, value in policies.items():
            if value is None:
                document.pop(key, None)
            else:
                document[key] = value

    await world.broker.policies.update_namespace(NAMESPACE, change)
    await world.broker.apply_policies()


async def limit_topic(world: World, **policies: Any) -> None:
    await world.broker.policies.update_topic(NAME, lambda document: document.update(policies))
    await world.broker.apply_policies()


def encrypted(sequence_id: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    return encode_send(1, sequence_id, 1, build_entry(metadata, b"secret"))


def error_of(answer: Any) -> int:
    assert isinstance(answer, pb.CommandError), answer
    return int(answer.error)


async def wait_for_receipts(peer: Peer, count: int) -> None:
    await peer.world.until(lambda: len(peer.receipts) >= count, f"{count} receipts")


# -- publishing ----------------------------------------------------------------------------------------


def test_unencrypted_producers_are_refused_and_sent_away() -> None:
    async def story(world: World) -> None:
        before, after = world.peer(), world.peer()
        await before.producer()
        await limit(world, encryption_required=True)
        await world.settle()
        assert before.commands(Type.CLOSE_PRODUCER)
        assert error_of(await before.producer(request_id=9)) == pb.MetadataError
        await after.producer(encrypted=True)
        after.send(encrypted(0), send(1, 1), encrypted(2))
        await wait_for_receipts(after, 2)
        (refused,) = after.commands(Type.SEND_ERROR)
        assert (refused.sequence_id, refused.error) == (1, pb.MetadataError)
        assert [sequence_id for _, sequence_id, _ in after.receipts] == [0, 2]

    in_world(story)


def test_a_message_larger_than_its_topic_takes_is_refused_in_its_place() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await limit_topic(world, maxMessageSize=200)
        peer.send(send(1, 0), send(1, 1, b"x" * 300), send(1, 2))
        await wait_for_receipts(peer, 2)
        (refused,) = peer.commands(Type.SEND_ERROR)
        assert (refused.sequence_id, refused.error) == (1, pb.NotAllowedError)
        assert peer.session.out_bytes == 0

    in_world(story)


def test_beyond_the_publish_rate_a_connection_is_not_read() -> None:
    async def story(world: World) -> None:
        await limit(world, publishMaxMessageRate={"standalone": {"publishThrottlingRateInMsg": 10}})
        peer = world.peer()
        await peer.producer()
        peer.send(*(send(1, i) for i in range(30)))
        await wait_for_receipts(peer, 30)
        assert not peer.reading, "everything is published, the debt is waited for"
        world.clock.advance(2_000)
        world.broker.alarms.ring()
        assert not peer.reading
        world.clock.advance(200)
        world.broker.alarms.ring()
        assert peer.reading
        assert not peer.commands(Type.SEND_ERROR)

    in_world(story)


def test_a_publish_rate_that_is_taken_away_lets_everybody_go_on() -> None:
    async def story(world: World) -> None:
        await limit(world, publishMaxMessageRate={"standalone": {"publishThrottlingRateInByte": 10}})
        peer = world.peer()
        await peer.producer()
        peer.send(send(1, 0))
        assert not peer.reading
        await limit(world, publishMaxMessageRate=None)
        assert peer.reading
        await limit(world, publishMaxMessageRate={"standalone": {"publishThrottlingRateInByte": 10}})
        peer.send(send(1, 1))
        assert not peer.reading
        await world.broker.unload(NAME)
        assert peer.reading

    in_world(story)


# -- counts and types ----------------------------------------------------------------------------------


def test_producers_of_a_topic_are_counted() -> None:
    async def story(world: World) -> None:
        await limit(world, max_producers_per_topic=1)
        peer = world.peer()
        await peer.producer()
        answer = await peer.producer(producer_id=2, request_id=3)
        assert error_of(answer) == pb.ProducerBusy
        await limit_topic(world, maxProducerPerTopic=2)
        assert isinstance(await peer.producer(producer_id=2, request_id=4), pb.CommandProducerSuccess)

    in_world(story)


@pytest.mark.parametrize("key", ["max_consumers_per_topic", "max_consumers_per_subscription"])
def test_consumers_are_counted(key: str) -> None:
    async def story(world: World) -> None:
        await limit(world, **{key: 1})
        peer = world.peer()
        await peer.consumer(kind="Shared")
        answer = await peer.consumer(consumer_id=2, request_id=3, kind="Shared")
        assert error_of(answer) == pb.ConsumerBusy
        await limit(world, **{key: 0})
        assert isinstance(await peer.consumer(consumer_id=2, request_id=4, kind="Shared"), pb.CommandSuccess)

    in_world(story)


def test_subscriptions_of_a_topic_are_counted() -> None:
    async def story(world: World) -> None:
        await limit(world, max_subscriptions_per_topic=1)
        peer = world.peer()
        await peer.consumer()
        answer = await peer.consumer(consumer_id=2, request_id=3, subscription="other")
        assert error_of(answer) == pb.NotAllowedError
        assert list((await world.topic()).subscriptions) == ["s"]

    in_world(story)


def test_types_of_subscription_can_be_switched_off() -> None:
    async def story(world: World) -> None:
        await limit(world, subscription_types_enabled=["Shared"])
        peer = world.peer()
        assert error_of(await peer.consumer(kind="Key_Shared")) == pb.NotAllowedError
        assert isinstance(await peer.consumer(request_id=3, kind="Shared"), pb.CommandSuccess)

    in_world(story)


def test_a_consumer_that_subscribes_too_often_is_refused() -> None:
    async def story(world: World) -> None:
        rate = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 30}
        await world.topic()
        await limit(world, clusterSubscribeRate={"standalone": rate})
        peer = world.peer()
        for request_id, allowed in ((2, True), (3, False)):
            answer = await peer.consumer(request_id=request_id, consumer_name="c")
            assert isinstance(answer, pb.CommandSuccess) is allowed
            await peer.ask(Type.CLOSE_CONSUMER, consumer_id=1, request_id=10 + request_id)
        world.clock.advance(30_000)
        assert isinstance(await peer.consumer(request_id=4, consumer_name="c"), pb.CommandSuccess)

    in_world(story)


# -- unacknowledged messages, and subscriptions that must not get stuck ------------------------------------


async def published(world: World, count: int) -> Peer:
    peer = world.peer()
    await peer.producer()
    peer.send(*(send(1, i) for i in range(count)))
    await wait_for_receipts(peer, count)
    return peer


def state_of(world: World) -> DiagnosedState:
    return diagnose(world.broker.topics[TOPIC].subscriptions["s"].view()).state


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_consumer_blocks_at_its_limit_and_goes_on_at_half_of_it(kind: str) -> None:
    async def story(world: World) -> None:
        await published(world, 30)
        await limit(world, max_unacked_messages_per_consumer=10)
        peer = world.peer()
        await peer.consumer(kind=kind, permits=1000)
        await world.until(lambda: len(peer.messages) == 10, "ten messages")
        await world.settle()
        assert len(peer.messages) == 10
        assert state_of(world) is DiagnosedState.BLOCKED_CONSUMERS
        for message in peer.messages[:4]:
            peer.ack(1, message.position)
        await world.settle()
        assert len(peer.messages) == 10, "six are still unacknowledged, more than half"
        peer.ack(1, peer.messages[4].position)
        await world.until(lambda: len(peer.messages) == 15, "five more")

    in_world(story)


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_subscription_blocks_at_its_limit_and_goes_on_below_half_of_it(kind: str) -> None:
    async def story(world: World) -> None:
        await published(world, 60)
        await limit_topic(world, maxUnackedMessagesOnSubscription=20)
        first, second = world.peer(), world.peer()
        await first.consumer(kind=kind, permits=1000)
        await second.consumer(kind=kind, permits=1000)
        await world.settle()
        sent = len(first.messages) + len(second.messages)
        assert 20 <= sent < 60
        assert state_of(world) is DiagnosedState.BLOCKED_SUBSCRIPTION
        for peer in (first, second):
            peer.ack(1, *(message.position for message in peer.messages[: len(peer.messages)]))
        await world.until(lambda: len(first.messages) + len(second.messages) > sent, "more")

    in_world(story)


def test_a_raised_limit_frees_a_blocked_consumer_at_once() -> None:
    async def story(world: World) -> None:
        await published(world, 30)
        await limit(world, max_unacked_messages_per_consumer=10)
        peer = world.peer()
        await peer.consumer(kind="Shared", permits=1000)
        await world.until(lambda: len(peer.messages) == 10, "ten messages")
        await limit(world, max_unacked_messages_per_consumer=0)
        await world.until(lambda: len(peer.messages) == 30, "all")

    in_world(story)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_who_acknowledges_cumulatively_is_not_limited(kind: str) -> None:
    async def story(world: World) -> None:
        await published(world, 30)
        await limit(world, max_unacked_messages_per_consumer=10, max_unacked_messages_per_subscription=10)
        peer = world.peer()
        await peer.consumer(kind=kind, permits=1000)
        await world.until(lambda: len(peer.messages) == 30, "all")

    in_world(story)


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_delivery_does_not_stop_after_consumers_join_and_leave(kind: str) -> None:
    """Pulsar's most reported fault: dispatch that stays silent until the topic is unloaded."""

    async def story(world: World) -> None:
        producer = await published(world, 40)
        await limit(world, max_unacked_messages_per_consumer=5, max_unacked_messages_per_subscription=8)
        for _ in range(6):
            leaver = world.peer()
            await leaver.consumer(kind=kind, permits=7)
            await world.settle()
            assert leaver.messages
            leaver.session.lost()
        last = world.peer()
        await last.consumer(kind=kind)
        assert state_of(world) is DiagnosedState.NO_PERMITS
        acked = 0
        while acked < 40:
            last.send(encode_flow(1, 3))
            await world.until(lambda seen=acked: len(last.messages) > seen, "the next message")
            last.ack(1, *(message.position for message in last.messages[acked:]))
            acked = len(last.messages)
        assert state_of(world) is DiagnosedState.CAUGHT_UP
        assert len({message.position for message in last.messages}) == 40
        producer.session.lost()

    in_world(story)


# -- dispatch rate, TTL, quotas -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["topicDispatchRate", "subscriptionDispatchRate"])
@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Key_Shared"])
def test_beyond_the_dispatch_rate_delivery_waits(key: str, kind: str) -> None:
    async def story(world: World) -> None:
        await published(world, 30)
        await limit(world, **{key: {"standalone": {"dispatchThrottlingRateInMsg": 10}}})
        peer = world.peer()
        await peer.consumer(kind=kind, permits=1000)
        await world.until(lambda: len(peer.messages) == 10, "ten messages")
        await world.settle()
        assert len(peer.messages) == 10
        assert state_of(world) is DiagnosedState.RATE_LIMITED
        world.clock.advance(1_000)
        world.broker.alarms.ring()
        await world.until(lambda: len(peer.messages) == 20, "ten more")
        await limit(world, **{key: None})
        await world.until(lambda: len(peer.messages) == 30, "all: the rate is gone")

    in_world(story)


def test_a_dispatch_rate_may_be_above_what_is_published() -> None:
    async def story(world: World) -> None:
        publisher = await published(world, 30)
        rate = {"dispatchThrottlingRateInMsg": 10, "relativeToPublishRate": True}
        await limit(world, topicDispatchRate={"standalone": rate})
        peer = world.peer()
        await peer.consumer(permits=1000)
        await world.until(lambda: len(peer.messages) == 10, "ten messages")
        publisher.send(*(send(1, i) for i in range(30, 70)))
        await wait_for_receipts(publisher, 70)
        world.clock.advance(1_000)
        world.broker.alarms.ring()
        # Forty were published in this second, so fifty may go in the next; ten were in store.
        await world.until(lambda: len(peer.messages) == 20, "ten more")
        world.clock.advance(500)
        world.broker.alarms.ring()
        await world.until(lambda: len(peer.messages) == 45, "half of fifty")
        await world.settle()
        assert len(peer.messages) == 45

    in_world(story)


def test_messages_expire() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer()
        await published(world, 5)
        world.clock.advance(5_000)
        producer = world.peer()
        await producer.producer(producer_name="later")
        producer.send(send(1, 0))
        await wait_for_receipts(producer, 1)
        await limit(world, message_ttl_in_seconds=5)
        world.clock.advance(1)
        await world.broker.enforce_limits()
        assert (await world.topic()).subscriptions["s"].backlog_entries == 1

    in_world(story)


def test_a_subscription_that_is_deleted_meanwhile_does_not_keep_the_others_from_expiring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        for name in ("a", "b"):
            await world.peer().consumer(subscription=name)
        await published(world, 5)
        topic = await world.topic()
        await limit(world, message_ttl_in_seconds=5)
        world.clock.advance(5_001)
        find = topic.log.position_of_time

        async def meanwhile(publish_ms: int) -> Position:
            await topic.drop_subscription(topic.subscriptions["a"])
            return await find(publish_ms)

        monkeypatch.setattr(topic.log, "position_of_time", meanwhile)
        await world.broker.enforce_limits()
        assert list(topic.subscriptions) == ["b"]
        assert topic.subscriptions["b"].backlog_entries == 0

    in_world(story)


def test_a_clock_that_is_set_ahead_expires_nothing_for_an_hour() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer()
        await published(world, 5)
        await limit(world, message_ttl_in_seconds=7_200)
        world.clock.step(86_400_000)
        await world.broker.enforce_limits()
        assert (await world.topic()).subscriptions["s"].backlog_entries == 5
        world.clock.advance(3_600_000)
        await world.broker.enforce_limits()
        assert (await world.topic()).subscriptions["s"].backlog_entries == 0

    in_world(story)


def quota(policy: str, *, size: int = -1, seconds: int = -1) -> dict[str, Any]:
    kind = "message_age" if seconds >= 0 else "destination_storage"
    return {kind: {"limitSize": size, "limitTime": seconds, "policy": policy}}


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("producer_request_hold", pb.ProducerBlockedQuotaExceededError),
        ("producer_exception", pb.ProducerBlockedQuotaExceededException),
    ],
)
def test_beyond_a_backlog_quota_producers_are_sent_away_and_refused(policy: str, code: int) -> None:
    async def story(world: World) -> None:
        consumer = world.peer()
        await consumer.consumer(permits=100)
        producer = await published(world, 10)
        await limit(world, backlog_quota_map=quota(policy, size=100))
        await world.broker.enforce_limits()
        await world.settle()
        assert producer.commands(Type.CLOSE_PRODUCER)
        assert error_of(await producer.producer(request_id=7)) == code
        consumer.ack(1, *(message.position for message in consumer.messages))
        await world.settle()
        assert isinstance(await producer.producer(request_id=8), pb.CommandProducerSuccess)

    in_world(story)


def test_beyond_an_age_quota_producers_are_refused() -> None:
    async def story(world: World) -> None:
        await world.peer().consumer()
        producer = await published(world, 3)
        await limit(world, backlog_quota_map=quota("producer_exception", seconds=10))
        await world.broker.enforce_limits()
        await world.settle()
        assert not producer.commands(Type.CLOSE_PRODUCER)
        world.clock.advance(12_000)
        await world.broker.enforce_limits()
        await world.settle()
        assert producer.commands(Type.CLOSE_PRODUCER)
        answer = await producer.producer(request_id=7)
        assert error_of(answer) == pb.ProducerBlockedQuotaExceededException

    in_world(story)


@pytest.mark.parametrize("quotas", [{"size": 200}, {"seconds": 10}], ids=["size", "age"])
def test_an_evicting_quota_takes_from_the_slowest_subscription(quotas: dict[str, int]) -> None:
    async def story(world: World) -> None:
        fast = world.peer()
        await fast.consumer(subscription="fast", permits=100)
        await world.peer().consumer()
        await published(world, 20)
        fast.ack(1, *(message.position for message in fast.messages[:19]))
        await limit(world, backlog_quota_map=quota("consumer_backlog_eviction", **quotas))
        world.clock.advance(12_000)
        await world.broker.enforce_limits()
        topic = await world.topic()
        left = topic.subscriptions["s"].backlog_entries
        if "size" in quotas:
            assert 0 < left < 20
            assert topic.subscriptions["fast"].backlog_entries == 1
        else:
            assert left == 0

    in_world(story)
