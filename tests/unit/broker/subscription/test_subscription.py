"""A subscription: which consumers may attach, why nothing moves, what cannot be read."""

from __future__ import annotations

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import Position
from magnetar.broker.explain.reasons import DiagnosedState, diagnose
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from support.sessions import Peer, Type, World, command, in_world, send


async def with_backlog(world: World, count: int = 3) -> Peer:
    peer = world.peer()
    await peer.producer()
    peer.send(*(send(1, i, b"%d" % i) for i in range(count)))
    await world.until(lambda: len(peer.receipts) == count, "receipts")
    return peer


def test_why_nothing_is_dispatched() -> None:
    async def story(world: World) -> None:
        await with_backlog(world)
        peer = world.peer()
        await peer.consumer(kind="Shared", consumer_name="c")
        subscription = (await world.topic()).subscriptions["s"]
        assert diagnose(subscription.view()).state is DiagnosedState.NO_PERMITS
        peer.send(encode_flow(1, 10))
        await world.until(lambda: len(peer.messages) == 3, "messages")
        assert diagnose(subscription.view()).state is DiagnosedState.ALL_SENT
        peer.ack(1, *(message.position for message in peer.messages))
        assert diagnose(subscription.view()).state is DiagnosedState.CAUGHT_UP
        peer.session.lost()
        assert diagnose(subscription.view()).state is DiagnosedState.NO_CONSUMERS

    in_world(story)


def test_a_cumulative_ack_is_refused_where_it_has_no_meaning() -> None:
    async def story(world: World) -> None:
        await with_backlog(world)
        peer = world.peer()
        await peer.consumer(kind="Shared", permits=10)
        await world.until(lambda: len(peer.messages) == 3, "messages")
        last = peer.messages[-1].position
        peer.send(encode_ack(1, [last], cumulative=True, request_id=9))
        assert (await peer.answer(9)).error == pb.NotAllowedError
        assert (await world.topic()).subscriptions["s"].cursor.backlog_entries == 3

    in_world(story)


def test_an_ack_is_answered_when_it_is_durable() -> None:
    async def story(world: World) -> None:
        await with_backlog(world)
        peer = world.peer()
        await peer.consumer(permits=10)
        await world.until(lambda: len(peer.messages) == 3, "messages")
        world.ledgers.auto_sync = False
        peer.send(encode_ack(1, [peer.messages[1].position], cumulative=True, request_id=9))
        await world.settle()
        early = peer.find_answer(9)
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        answer = await peer.answer(9)
        assert early is None or early is answer
        assert not answer.HasField("error")
        assert (await world.topic()).subscriptions["s"].cursor.backlog_entries == 1

    in_world(story)


def test_unacknowledged_messages_come_again() -> None:
    async def story(world: World) -> None:
        await with_backlog(world)
        peer = world.peer()
        await peer.consumer(kind="Shared", permits=100)
        await world.until(lambda: len(peer.messages) == 3, "messages")
        peer.ack(1, peer.messages[0].position)
        peer.send(command(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=[]))
        await world.until(lambda: len(peer.messages) == 5, "redelivery")
        assert peer.bodies[3:] == [b"1", b"2"]
        assert [message.redelivery_count for message in peer.messages[3:]] == [1, 1]

    in_world(story)


def test_what_cannot_be_read_is_not_passed_over() -> None:
    async def story(world: World) -> None:
        await with_backlog(world)
        topic = await world.topic()
        peer = world.peer()
        await peer.consumer()
        read_now = topic.log.read_now

        def damaged(position: Position, bytes_max: int, entries_max: int) -> object:
            raise CorruptDataError("segments/1.seg", 4_096, "the entries do not match", position.ledger_id)

        topic.log.read_now = damaged  # type: ignore[method-assign,assignment]  # a damaged disk
        peer.send(encode_flow(1, 10))
        await world.settle()
        assert not peer.messages
        diagnosis = diagnose(topic.subscriptions["s"].view())
        assert diagnosis.state is DiagnosedState.READ_ERROR
        assert "segments/1.seg at byte 4096" in diagnosis.sentence
        topic.log.read_now = read_now  # type: ignore[method-assign]  # repaired
        peer.send(encode_flow(1, 1))
        await world.until(lambda: len(peer.messages) == 3, "messages")
        assert peer.bodies == [b"0", b"1", b"2"]

    in_world(story)


def test_a_refused_consumer_of_another_type_leaves_the_type_as_it_was() -> None:
    async def story(world: World) -> None:
        first, second = world.peer(), world.peer()
        await first.consumer(kind="Shared")
        first.session.lost()
        # Without ranges: refused when its dispatcher is made already, and the shared one rests.
        nothing = pb.KeySharedMeta(keySharedMode=pb.KeySharedMode.STICKY)
        refused = await second.consumer(kind="Key_Shared", keySharedMeta=nothing)
        assert refused.error == pb.ConsumerAssignError
        assert not hasattr(await second.consumer(request_id=3, kind="Shared"), "error")

    in_world(story)


def test_sticky_ranges_that_overlap_are_refused_and_leave_nothing() -> None:
    async def story(world: World) -> None:
        def sticky(start: int, end: int) -> pb.KeySharedMeta:
            return pb.KeySharedMeta(
                keySharedMode=pb.KeySharedMode.STICKY, hashRanges=[pb.IntRange(start=start, end=end)]
            )

        first, second = world.peer(), world.peer()
        assert not hasattr(await first.consumer(kind="Key_Shared", keySharedMeta=sticky(0, 100)), "error")
        refused = await second.consumer(kind="Key_Shared", keySharedMeta=sticky(50, 200))
        assert refused.error == pb.ConsumerAssignError
        subscription = (await world.topic()).subscriptions["s"]
        assert len(subscription.consumers) == 1
        first.session.lost()
        assert not subscription.consumers

    in_world(story)
