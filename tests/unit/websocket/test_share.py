"""What comes over WebSockets is of its role's share."""

from __future__ import annotations

import pytest

from magnetar.broker.config import BrokerConfig
from magnetar.broker.limits.tenants import TenantLimits
from magnetar.websocket import app, documents
from support.websockets import TOPIC_PATH, Clients, message, payload_of, with_clients

OWNER = "10.0.0.9"


def test_texts_and_handshakes_are_commands_of_their_role() -> None:
    async def story(clients: Clients) -> None:
        quotas = clients.world.broker.quotas
        producer = await clients.producer()
        for number in range(6):
            producer.send(message(b"%d" % number, context=str(number)))
        # Four texts, with the handshake five; then the role rests, and its answers do.
        await clients.world.until(lambda: quotas.count(OWNER, 0) > 0, "a role that rests")
        await clients.world.settle()
        assert (await clients.world.topic()).log.entry_count == 4
        late = clients.start(f"v2/producer/{TOPIC_PATH}")
        assert await late.opened() == 429
        assert "commands_per_second_per_role" in late.reason
        assert quotas.count("10.0.0.8", 0) == 0
        clients.world.clock.advance(1_000)
        clients.world.broker.alarms.ring()
        answers = await producer.got(6)
        assert [answer["context"] for answer in answers] == ["0", "1", "2", "3", "4", "5"]

    with_clients(story, config=BrokerConfig(tenants=TenantLimits(commands_per_second_per_role=5)))


def test_what_texts_cost_is_time_of_their_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is made for a client: a consumer that costs too much gets its messages later."""

    async def story(clients: Clients) -> None:
        producer, consumer = await clients.producer(), await clients.consumer()
        quotas = clients.world.broker.quotas
        outgoing = documents.outgoing_of

        def dear(text: str, now_ms: int) -> documents.Outgoing:
            clients.world.clock.advance(900)
            return outgoing(text, now_ms)

        monkeypatch.setattr(documents, "outgoing_of", dear)
        producer.send(message(b"dear"))
        producer.send(message(b"later"))
        await clients.world.until(lambda: quotas.count(OWNER, 0) > 0, "a role that rests")
        await clients.world.settle()
        assert (await clients.world.topic()).log.entry_count == 1
        assert consumer.texts == []
        for _ in range(2):
            clients.world.clock.advance(3_000)
            clients.world.broker.alarms.ring()
            await clients.world.settle()
        assert [payload_of(each) for each in await consumer.got(2)] == [b"dear", b"later"]

    with_clients(story, config=BrokerConfig(tenants=TenantLimits(loop_percent_per_role=50)))


def test_a_socket_that_ends_while_its_role_rests_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # The role rests for ever here: the test waits for all the time in which its messages may be handled.
    monkeypatch.setattr(app, "_LEFT_S", 0.01)

    async def story(clients: Clients) -> None:
        world = clients.world
        producer = await clients.producer()
        alarms = len(world.broker.alarms)
        producer.send(message(b"a"))
        producer.send(message(b"b"))
        await world.until(lambda: len(world.broker.alarms) > alarms, "a role that rests")
        await producer.leave()
        assert len(world.broker.alarms) <= alarms

    with_clients(story, config=BrokerConfig(tenants=TenantLimits(commands_per_second_per_role=2)))
