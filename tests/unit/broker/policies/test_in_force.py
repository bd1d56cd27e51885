"""Policies that are given to a topic by several at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.base.names import NamespaceName
from magnetar.broker.dedup.deduplication import Deduplication
from magnetar.broker.limits.limits import Limits
from magnetar.broker.policies.in_force import PoliciesInForce
from magnetar.metadata.store import SessionEvent
from support.sessions import World, in_world

NAMESPACE = NamespaceName("public", "default")


def test_two_who_turn_deduplication_on_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one knew nothing of what the first had admitted since: sent again, it was stored twice."""
    loads: list[int] = []
    load = Deduplication.load

    async def counted(*arguments: Any, **named: Any) -> Deduplication:
        loads.append(1)
        await asyncio.sleep(0)  # as where the log has to be read
        return await load(*arguments, **named)

    monkeypatch.setattr(Deduplication, "load", counted)

    async def story(world: World) -> None:
        topic = await world.topic()
        in_force = world.broker._in_force
        await world.broker.policies.update_namespace(
            NAMESPACE, lambda document: document.update(deduplicationEnabled=True)
        )
        await asyncio.gather(in_force.give(topic), in_force.give(topic))
        assert topic.dedup is not None
        assert loads == [1]

    in_world(story)


def test_who_read_older_policies_is_not_the_last_to_put_them_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round that had read the documents waited for the resource group; an administrator lowered a limit,
    which was in force at once, and then the round put back the one before."""
    slow = asyncio.Event()
    limits_under = PoliciesInForce._limits_under
    begun: list[int] = []

    async def slowly(self: PoliciesInForce, own: dict[str, Any], namespace: dict[str, Any]) -> Limits:
        begun.append(1)
        if len(begun) == 1:
            await slow.wait()
        return await limits_under(self, own, namespace)

    async def story(world: World) -> None:
        topic = await world.topic()
        in_force = world.broker._in_force
        monkeypatch.setattr(PoliciesInForce, "_limits_under", slowly)
        older = asyncio.ensure_future(in_force.give(topic))
        await world.until(lambda: begun, "the documents are read")
        await world.broker.policies.update_namespace(
            NAMESPACE, lambda document: document.update(max_producers_per_topic=3)
        )
        newer = asyncio.ensure_future(in_force.give(topic))
        await world.settle()
        slow.set()
        await asyncio.gather(older, newer)
        assert topic.limits.limits.producers_max == 3

    in_world(story)


@pytest.mark.parametrize("event", [SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED])
def test_what_changed_without_a_connection_is_in_force_after_it(event: SessionEvent) -> None:
    """Another broker changed a namespace and a setting: loaded topics kept what they had for ever."""

    async def story(world: World) -> None:
        topic = await world.topic()
        policies = world.broker.policies
        world.store.away = True
        await policies.update_namespace(
            NAMESPACE,
            lambda document: document.update(
                max_producers_per_topic=3,
                retention_policies={"retentionTimeInMinutes": 77, "retentionSizeInMB": 1},
            ),
        )
        await policies.update_configuration(lambda document: document.update(maxConsumersPerSubscription="5"))
        await world.settle()
        assert topic.limits.limits.producers_max == 0
        world.store.back(event)
        await world.until(lambda: topic.limits.limits.producers_max == 3, "the namespace's limit")
        assert topic.limits.limits.consumers_max_per_subscription == 5
        assert topic.log.retention.ms == 77 * 60_000

    in_world(story)
