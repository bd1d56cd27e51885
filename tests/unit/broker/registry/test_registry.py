"""One object per topic: loads, unloads, deletions and clients of one name at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import (
    ConflictError,
    NotAllowedError,
    PreconditionFailedError,
    ServiceNotReadyError,
    TopicNotFoundError,
)
from magnetar.broker.policies.creation import PARTITIONS_MAX
from magnetar.broker.registry.registry import TopicRegistry
from magnetar.broker.registry.topic_states import IN_FLIGHT, TRANSITIONS, TopicState
from magnetar.broker.topic.topic import Topic
from magnetar.ledger.api import LedgerWriteError
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.logs import ManagedLogs
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import MessageEvent
from support.seen import Type
from support.sessions import TOPIC, Peer, World, command, in_world, send

NAME = TopicName.parse(TOPIC)
NAMESPACE = NamespaceName.parse("public/default")


def messages_of(peer: Peer, consumer_id: int) -> list[MessageEvent]:
    return [each for each in peer.messages if each.consumer_id == consumer_id]


async def serves(world: World, peer: Peer, *, subscription: str = "s", ids: int = 50) -> None:
    """A producer gets its receipt, and a consumer the message."""
    world.broker.registry.check()
    await peer.producer(ids, request_id=ids * 10)
    answer = await peer.consumer(ids, request_id=ids * 10 + 1, subscription=subscription, permits=10)
    assert isinstance(answer, pb.CommandSuccess), answer
    before = len(messages_of(peer, ids))
    peer.send(send(ids, 0))
    await world.until(lambda: [1 for each in peer.receipts if each[0] == ids], "a receipt")
    await world.until(lambda: len(messages_of(peer, ids)) > before, "the message")


def test_a_load_that_may_create_and_one_that_may_not_give_one_object() -> None:
    async def story(world: World) -> None:
        await world.topic()
        await world.broker.unload(NAME)
        found = await asyncio.gather(
            *(world.broker.topic(NAME, create=create) for create in (True, False, True, False))
        )
        assert len(set(map(id, found))) == 1
        await serves(world, world.peer())

    in_world(story)


def test_statistics_polled_while_a_topic_is_unloaded_leave_one_object() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await serves(world, peer)
        world.ledgers.auto_sync = False
        peer.send(send(50, 1))
        unloading = asyncio.create_task(world.broker.unload(NAME))
        await world.settle()
        assert world.broker.registry.state(TOPIC) is TopicState.UNLOADING
        asking = [asyncio.create_task(world.broker.topic(NAME, create=False)) for _ in range(3)]
        coming = asyncio.create_task(world.broker.topic(NAME))
        await world.settle()
        assert not any(task.done() for task in asking)
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        await unloading
        found = {id(topic) for topic in await asyncio.gather(*asking, coming)}
        assert len(found) == 1
        await serves(world, world.peer(), subscription="other")

    in_world(story)


def test_who_may_create_nothing_does_not_refuse_who_may() -> None:
    async def story(world: World) -> None:
        asked = asyncio.create_task(world.broker.topic(NAME, create=False))
        made = asyncio.create_task(world.broker.topic(NAME))
        topic = await made
        with pytest.raises(TopicNotFoundError):
            await asked
        assert world.broker.topics == {TOPIC: topic}

    in_world(story)


def test_a_load_that_fails_half_way_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        await world.topic()
        await world.broker.unload(NAME)
        errors = [MetadataError("the store is away")]
        read = world.broker.policies.topic_policies

        async def policies(topic: TopicName) -> object:
            if errors and world.logs.opened(topic.log_name) is not None:
                raise errors.pop()
            return await read(topic)

        monkeypatch.setattr(world.broker.policies, "topic_policies", policies)
        with pytest.raises(MetadataError):
            await world.broker.topic(NAME)
        assert world.logs.opened(NAME.log_name) is None
        assert world.broker.registry.state(TOPIC) is TopicState.ABSENT
        await serves(world, world.peer())

    in_world(story)


def test_a_topic_whose_log_another_broker_took_while_it_was_opened_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log failed before the topic heard of it: transactions there waited for ever."""

    async def story(world: World) -> None:
        opened, taken = ManagedLogs.open, True

        async def taken_over(self: ManagedLogs, name: str, *more: Any) -> ManagedLog:
            log = await opened(self, name, *more)
            if taken:
                log.fence(LogFencedError("another broker opened it meanwhile"))
            return log

        monkeypatch.setattr(ManagedLogs, "open", taken_over)
        with pytest.raises(ServiceNotReadyError, match="look it up again"):
            await world.topic()
        assert world.broker.topics == {}
        taken = False
        await serves(world, world.peer())

    in_world(story)


def test_a_caller_who_is_cancelled_leaves_the_load_to_others() -> None:
    async def story(world: World) -> None:
        first = asyncio.create_task(world.broker.topic(NAME))
        second = asyncio.create_task(world.broker.topic(NAME))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).name == NAME
        with pytest.raises(asyncio.CancelledError):
            await first

    in_world(story)


def test_nobody_waits_without_a_bound() -> None:
    async def story(world: World) -> None:
        topic = await world.topic()
        gate = asyncio.Event()

        class Stalled:
            async def load(self, name: TopicName, *, create: bool) -> Topic:
                await gate.wait()
                return topic

            async def delete(self, name: TopicName, topic: Topic | None) -> None:
                await gate.wait()

        registry = TopicRegistry(Stalled(), world.clock, wait_s=0)
        with pytest.raises(ServiceNotReadyError, match="has been loading for 0 s"):
            await registry.get(NAME, create=True)
        assert registry.state(TOPIC) is TopicState.LOADING
        assert [(name, state) for name, state, _ in registry.under_way()] == [(TOPIC, TopicState.LOADING)]
        gate.set()
        await world.settle()
        assert await registry.get(NAME, create=False) is topic
        registry.check()

    in_world(story)


def test_a_subscribe_right_behind_a_force_deletion_gets_a_topic_that_serves() -> None:
    async def story(world: World) -> None:
        old = world.peer()
        await serves(world, old)
        deletion = asyncio.create_task(world.broker.delete_topic(NAME, force=True))
        new = world.peer()
        await serves(world, new, ids=60)
        await deletion
        assert len(messages_of(new, 60)) == 1
        assert (await world.topic()).log.entry_count == 1

    in_world(story)


def test_a_deletion_that_fails_is_tried_again_also_without_loading() -> None:
    async def story(world: World) -> None:
        await serves(world, world.peer())
        world.ledgers.delete_errors = [LedgerWriteError("the disk is away")]
        with pytest.raises(LedgerWriteError):
            await world.broker.delete_topic(NAME, force=True)
        assert world.broker.registry.state(TOPIC) is TopicState.ABSENT
        await world.broker.delete_topic(NAME, force=True)
        assert not await world.broker.exists(NAME)
        with pytest.raises(TopicNotFoundError):
            await world.broker.delete_topic(NAME, force=True)

    in_world(story)


def test_a_deletion_without_force_looks_in_the_turn_in_which_it_begins() -> None:
    async def story(world: World) -> None:
        await world.topic()
        # It waits for an unload, and meanwhile a consumer waits for the same.
        unloading = asyncio.create_task(world.broker.unload(NAME))
        await asyncio.sleep(0)
        peer = world.peer()
        coming = asyncio.create_task(peer.consumer())
        await asyncio.sleep(0)
        deletion = asyncio.create_task(world.broker.delete_topic(NAME))
        await unloading
        (refused, _) = await asyncio.gather(deletion, coming, return_exceptions=True)
        assert refused is None or isinstance(refused, PreconditionFailedError)
        await serves(world, peer, subscription="other")

    in_world(story)


@pytest.mark.parametrize("consumer_id", [1, 2])
def test_a_subscribe_right_behind_an_unsubscribe_is_served(consumer_id: int) -> None:
    """In one socket read; with the same id and with another."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer(1, subscription="s")
        peer.send(
            command(Type.UNSUBSCRIBE, consumer_id=1, request_id=20),
            command(
                Type.SUBSCRIBE,
                topic=TOPIC,
                subscription="s",
                subType=pb.CommandSubscribe.Shared,
                consumer_id=consumer_id,
                request_id=21,
                initialPosition=pb.CommandSubscribe.Earliest,
            ),
        )
        assert isinstance(await peer.answer(20), pb.CommandSuccess)
        assert isinstance(await peer.answer(21), pb.CommandSuccess)
        topic = await world.topic()
        assert [each.consumer_id for each in topic.subscriptions["s"].consumers] == [consumer_id]
        assert topic.log.cursors["s"] is topic.subscriptions["s"].cursor
        await topic.subscriptions["s"].cursor.flush()
        await world.broker.unload(NAME)
        assert "s" in (await world.topic()).subscriptions

    in_world(story)


def test_a_subscription_whose_deletion_fails_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        await serves(world, world.peer())
        topic = await world.topic()
        for consumer in topic.subscriptions["s"].consumers:
            topic.subscriptions["s"].detach(consumer)
        await world.settle()
        errors = [MetadataError("the store is away")]
        delete = world.store.delete

        async def failing(path: str, **more: object) -> None:
            if errors:
                raise errors.pop()
            await delete(path)

        monkeypatch.setattr(world.store, "delete", failing)
        with pytest.raises(MetadataError):
            await topic.delete_subscription("s")
        subscription = topic.subscriptions["s"]
        subscription.cursor.ack([topic.log.first_position])
        await subscription.cursor.flush()
        await topic.delete_subscription("s")
        assert "s" not in topic.log.cursors

    in_world(story)


def test_a_consumer_is_not_attached_to_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between finding the subscription and attaching, something is awaited."""

    async def story(world: World) -> None:
        topic = await world.topic()
        gate = asyncio.Event()

        async def slow(begin: object) -> object:
            await gate.wait()
            return topic.log.first_position

        monkeypatch.setattr(topic.compaction, "begin_of", slow)
        peer = world.peer()
        answer = asyncio.create_task(peer.consumer(read_compacted=True))
        await world.settle()
        await topic.delete_subscription("s")
        gate.set()
        refused = await answer
        assert refused.error == pb.ServiceNotReady
        await serves(world, world.peer())

    in_world(story)


def test_nothing_is_made_below_what_is_being_deleted() -> None:
    async def story(world: World) -> None:
        broker = world.broker
        await broker.partitioned.create(NAME, 2)
        async with broker.names.ending("public/default"):
            for attempt in (
                broker.topic(TopicName.parse("new")),
                broker.create_topic(TopicName.parse("new")),
                broker.partitioned.create(TopicName.parse("new"), 2),
                broker.partitioned.grow(NAME, 3),
                broker.topic(NAME.with_partition(0)),
                broker.any_topic(TopicName.parse("non-persistent://public/default/new")),
            ):
                with pytest.raises(ServiceNotReadyError, match="public/default is being deleted"):
                    await attempt
        assert await broker.topics_of(NAMESPACE) == [NAME.with_partition(0), NAME.with_partition(1)]
        await broker.partitioned.delete(NAME, force=False)
        assert await broker.topics_of(NAMESPACE) == []

    in_world(story)


def test_a_topic_and_a_partitioned_topic_of_one_name_do_not_come_together() -> None:
    async def story(world: World) -> None:
        broker = world.broker
        results = await asyncio.gather(
            broker.create_topic(NAME), broker.partitioned.create(NAME, 2), return_exceptions=True
        )
        assert [isinstance(each, ConflictError) for each in results].count(True) == 1

    in_world(story)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_no_client_makes_a_partition_beyond_the_most_that_a_topic_may_have(domain: str) -> None:
    """Where there is no partitioned topic; smaller numbers are names like any other, as in Pulsar."""

    async def story(world: World) -> None:
        name = TopicName.parse(f"{domain}://public/default/loose")
        for partition in (PARTITIONS_MAX, (1 << 31) - 1):
            with pytest.raises(NotAllowedError, match="at most 10000 partitions"):
                await world.broker.any_topic(name.with_partition(partition))
        assert await world.broker.topics_of(NAMESPACE, domain) == []
        await world.broker.any_topic(name.with_partition(PARTITIONS_MAX - 1))
        assert await world.broker.topics_of(NAMESPACE, domain) == [name.with_partition(PARTITIONS_MAX - 1)]

    in_world(story)


def test_an_end_waits_for_what_is_being_made() -> None:
    async def story(world: World) -> None:
        names, order = world.broker.names, list[str]()
        gate = asyncio.Event()

        async def make() -> None:
            async with names.making("public/default/persistent/t"):
                await gate.wait()
                order.append("made")

        async def end() -> None:
            async with names.ending("public"):
                order.append("ended")

        tasks = [asyncio.create_task(make())]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(end()))
        await world.settle()
        gate.set()
        await asyncio.gather(*tasks)
        assert order == ["made", "ended"]

    in_world(story)


def test_a_topic_that_failed_is_closed_by_maintenance() -> None:
    async def story(world: World) -> None:
        topic = await world.topic()
        topic.disconnect_clients()
        assert world.broker.registry.state(TOPIC) is TopicState.FAILED
        await world.broker.maintain()
        assert world.broker.registry.state(TOPIC) is TopicState.ABSENT
        assert world.logs.opened(NAME.log_name) is None

    in_world(story)


def test_every_state_has_its_ways() -> None:
    assert set(TRANSITIONS) == set(TopicState)
    assert all(TRANSITIONS[state] for state in TopicState)
    assert not any(TRANSITIONS[state] & IN_FLIGHT for state in IN_FLIGHT), "one flight at a time"


@pytest.mark.parametrize("failures", range(1, 4))
def test_a_deletion_that_ends_half_way_leaves_a_topic_that_opens(failures: int) -> None:
    """Found by the simulator: the log named a ledger that was gone, and could never be opened again."""

    async def story(world: World) -> None:
        await serves(world, world.peer())
        topic = await world.topic()
        await topic.log.close()
        world.ledgers.ledgers[topic.log.first_position.ledger_id].closed = False
        delete = world.ledgers.delete
        left = failures

        async def failing(ledger_id: int) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise LedgerWriteError("the disk is away")
            await delete(ledger_id)

        world.ledgers.delete = failing  # type: ignore[method-assign]  # put back below
        try:
            await world.broker.delete_topic(NAME, force=True)
        except LedgerWriteError:
            await serves(world, world.peer())
        world.ledgers.delete = delete  # type: ignore[method-assign]  # as above

    in_world(story)
