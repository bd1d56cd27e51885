"""What no tenant, role or machine may have more of."""

from __future__ import annotations

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.errors import TooManyConnectionsError
from magnetar.broker.limits.tenants import Connections, TenantLimits, TopicsMade
from magnetar.broker.service import BrokerConfig
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import World, in_world


@pytest.mark.parametrize(
    ("limits", "whose"),
    [
        (TenantLimits(connections_max=2), "this broker"),
        (TenantLimits(connections_max_per_address=2), "address a"),
        (TenantLimits(connections_max_per_role=2), "role r"),
    ],
)
def test_one_connection_too_many_is_refused_until_another_leaves(limits: TenantLimits, whose: str) -> None:
    connections = Connections(limits)
    connections.enter(1, "a", "r")
    connections.enter(2, "a", "r")
    with pytest.raises(TooManyConnectionsError, match=f"{whose} has 2 connections"):
        connections.enter(3, "a", "r")
    connections.leave(3)
    assert len(connections) == 2
    connections.leave(1)
    connections.leave(1)
    connections.enter(3, "a", "r")
    assert len(connections) == 2


def test_others_are_let_in_beside_who_has_too_many() -> None:
    connections = Connections(TenantLimits(connections_max_per_address=1, connections_max_per_role=1))
    connections.enter(1, "a", "r")
    connections.enter(2, "b", "")
    connections.enter(3, "c", "")
    with pytest.raises(TooManyConnectionsError):
        connections.enter(4, "d", "r")


def test_without_limits_everybody_is_let_in() -> None:
    connections = Connections(TenantLimits())
    for number in range(1_000):
        connections.enter(number, "a", "r")
    assert len(connections) == 1_000


def test_a_client_hears_why_it_is_refused() -> None:
    async def story(world: World) -> None:
        first = world.peer()
        await world.until(lambda: first.session.connected, "let in")
        second = world.peer()
        (answer,) = await world.until(lambda: second.commands(pb.BaseCommand.ERROR), "refused")
        assert second.closed
        assert answer.error == pb.NotAllowedError
        assert "this broker has 1 connections" in answer.message
        second.session.lost()
        first.session.lost()
        third = world.peer()
        await world.until(lambda: third.session.connected, "let in")

    in_world(story, BrokerConfig(tenants=TenantLimits(connections_max=1)))


def test_a_tenant_that_makes_topics_too_fast_waits_and_others_do_not() -> None:
    clock = ManualClock()
    made = TopicsMade(TenantLimits(topics_made_per_minute=60), clock)
    assert [made.wait_ms("a") for _ in range(60)] == [0] * 60
    assert [made.wait_ms("a") for _ in range(3)] == [1_000, 2_000, 3_000]
    assert made.wait_ms("b") == 0
    clock.advance(10_000)
    assert made.wait_ms("a") == 0
    assert TopicsMade(TenantLimits(), clock).wait_ms("a") == 0
