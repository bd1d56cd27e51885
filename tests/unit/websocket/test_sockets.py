"""Producers, consumers and readers over the WebSocket API."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from magnetar.base.names import TopicName
from magnetar.websocket.endpoint import Endpoint, SocketEnd
from magnetar.websocket.errors import LineClosedError
from support.websockets import Clients, message, payload_of, with_clients


def test_a_message_goes_from_a_producer_to_a_consumer() -> None:
    async def story(clients: Clients) -> None:
        consumer = await clients.consumer()
        producer = await clients.producer()
        properties = {"key1": "value1"}
        answer = await producer.ask(
            message(
                b"hello", properties=properties, context="c1", key="k", eventTime="2024-01-01T01:00:00+01:00"
            )
        )
        assert answer["result"] == "ok"
        assert answer["context"] == "c1"
        got = (await consumer.got(1))[0]
        assert got["messageId"] == answer["messageId"]
        assert payload_of(got) == b"hello"
        assert (got["properties"], got["key"], got["redeliveryCount"]) == (properties, "k", 0)
        assert got["eventTime"] == "2024-01-01T00:00:00.000Z"
        consumer.send({"messageId": got["messageId"]})
        topic = await clients.world.topic()
        await clients.world.until(lambda: topic.subscriptions["s"].backlog_entries == 0, "acknowledged")

    with_clients(story)


def test_a_batch_is_acknowledged_message_by_message() -> None:
    async def story(clients: Clients) -> None:
        consumer = await clients.consumer(subscriptionType="Shared")
        producer = await clients.producer(
            batchingEnabled="true",
            batchingMaxMessages=3,
            batchingMaxPublishDelay=10_000,
            compressionType="ZLIB",
        )
        for number in range(3):
            producer.send(message(b"%d" % number, context=str(number)))
        answers = await producer.got(3)
        assert [answer["context"] for answer in answers] == ["0", "1", "2"]
        assert len({answer["messageId"] for answer in answers}) == 3
        got = await consumer.got(3)
        assert [payload_of(each) for each in got] == [b"0", b"1", b"2"]
        assert [each["messageId"] for each in got] == [answer["messageId"] for answer in answers]
        subscription = (await clients.world.topic()).subscriptions["s"]
        for each in got[:2]:
            consumer.send({"messageId": each["messageId"]})
        await consumer.ask({"type": "isEndOfTopic"})
        assert subscription.backlog_entries == 1
        await consumer.leave()
        again = await clients.consumer(subscriptionType="Shared")
        last = (await again.got(1))[0]
        assert payload_of(last) == b"2"
        again.send({"messageId": last["messageId"]})
        await clients.world.until(lambda: subscription.backlog_entries == 0, "acknowledged")

    with_clients(story)


def test_a_client_holds_no_more_than_its_queue() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        for number in range(5):
            await producer.ask(message(b"%d" % number))
        consumer = await clients.consumer(receiverQueueSize=2, subscriptionType="Shared")
        first, _ = await consumer.got(2)
        await clients.world.settle()
        assert consumer.texts == []
        other = await clients.consumer(receiverQueueSize=2, subscriptionType="Shared")
        # What the first one does not take, the other one gets: nothing was kept for the first.
        assert [payload_of(each) for each in await other.got(2)] == [b"2", b"3"]
        consumer.send({"messageId": first["messageId"]})
        assert payload_of((await consumer.got(1))[0]) == b"4"

    with_clients(story)


def test_a_client_that_pulls_gets_what_it_asks_for() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        for number in range(5):
            await producer.ask(message(b"%d" % number))
        consumer = await clients.consumer(pullMode="true")
        await clients.world.settle()
        assert consumer.texts == []
        consumer.send({"type": "permit", "permitMessages": 2})
        await consumer.got(2)
        await clients.world.settle()
        assert consumer.texts == []
        consumer.send({"type": "permit", "permitMessages": 3})
        assert payload_of((await consumer.got(3))[-1]) == b"4"

    with_clients(story)


def test_what_is_given_back_comes_again_after_the_delay() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        await producer.ask(message(b"x"))
        consumer = await clients.consumer(subscriptionType="Shared", negativeAckRedeliveryDelay=1_000)
        got = (await consumer.got(1))[0]
        consumer.send({"type": "negativeAcknowledge", "messageId": got["messageId"]})
        await clients.world.settle()
        assert consumer.texts == []
        clients.world.clock.advance(1_000)
        clients.world.broker.alarms.ring()
        again = (await consumer.got(1))[0]
        assert (again["messageId"], again["redeliveryCount"]) == (got["messageId"], 1)

    with_clients(story)


def test_what_is_held_too_long_comes_again_and_then_goes_to_the_dead_letters() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        await producer.ask(message(b"x", key="k", properties={"a": "b"}))
        consumer = await clients.consumer(
            subscriptionType="Shared", ackTimeoutMillis=1_000, maxRedeliverCount=1, receiverQueueSize=1
        )
        graves = await clients.consumer("persistent/public/default/t-s-DLQ", "dead")
        for count in (0, 1):
            assert (await consumer.got(1))[0]["redeliveryCount"] == count
            clients.world.clock.advance(1_000)
            clients.world.broker.alarms.ring()
        dead = (await graves.got(1))[0]
        assert payload_of(dead) == b"x"
        assert dead["key"] == "k"
        assert dead["properties"]["a"] == "b"
        assert dead["properties"]["REAL_TOPIC"] == "persistent://public/default/t"
        subscription = (await clients.world.topic()).subscriptions["s"]
        await clients.world.until(lambda: subscription.backlog_entries == 0, "acknowledged where it was")

    with_clients(story)


def test_a_reader_begins_behind_its_message() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        ids = [(await producer.ask(message(b"%d" % number)))["messageId"] for number in range(4)]
        reader = await clients.open(
            "reader/persistent/public/default/t", messageId="earliest", receiverQueueSize=2
        )
        got = await reader.got(2)
        await clients.world.settle()
        assert reader.texts == []
        for each in got:
            reader.send({"messageId": each["messageId"]})
        assert [each["messageId"] for each in got + await reader.got(2)] == ids
        behind = await clients.open("reader/persistent/public/default/t", messageId=ids[1])
        assert [each["messageId"] for each in await behind.got(2)] == ids[2:]
        assert await reader.ask({"type": "isEndOfTopic"}) == {"endOfTopic": False}
        topic = await clients.world.topic()
        await topic.terminate()
        await clients.world.settle()
        for each in ids[2:]:
            reader.send({"messageId": each})
        await clients.world.settle()
        assert await reader.ask({"type": "isEndOfTopic"}) == {"endOfTopic": True}

    with_clients(story)


def test_partitions_by_key_and_in_turn() -> None:
    async def story(clients: Clients) -> None:
        await clients.world.broker.policies.create_partitioned(TopicName.parse("parts"), 3)
        consumer = await clients.consumer("persistent/public/default/parts")
        producer = await clients.producer(
            "persistent/public/default/parts", messageRoutingMode="RoundRobinPartition"
        )
        for number in range(6):
            await producer.ask(message(b"%d" % number))
        got = await consumer.got(6)
        assert sorted(payload_of(each) for each in got) == [b"%d" % number for number in range(6)]
        for each in got:
            consumer.send({"messageId": each["messageId"]})
        keyed = [(await producer.ask(message(b"", key="k")))["messageId"] for _ in range(3)]
        assert [each["messageId"] for each in await consumer.got(3)] == keyed

    with_clients(story)


def test_sockets_outlive_an_unload() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        consumer = await clients.consumer()
        await producer.ask(message(b"before"))
        got = (await consumer.got(1))[0]
        consumer.send({"messageId": got["messageId"]})
        topic = await clients.world.topic()
        await clients.world.until(lambda: topic.subscriptions["s"].backlog_entries == 0, "acknowledged")
        await clients.world.broker.unload(topic.name)
        answer = await producer.ask(message(b"after"))
        assert answer["result"] == "ok"
        assert payload_of((await consumer.got(1))[0]) == b"after"

    with_clients(story)


def test_a_slow_client_stops_dispatch() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        consumer = await clients.consumer()
        consumer.takes.clear()
        for _ in range(10):
            await producer.ask(message(bytes(200_000)))
        await clients.world.settle()
        sent = (await clients.world.topic()).subscriptions["s"].messages_out
        assert sent < 8
        consumer.takes.set()
        assert len(await consumer.got(10)) == 10

    with_clients(story)


def test_texts_that_are_wrong() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        assert (await producer.ask("nonsense"))["result"] == "send-error:3"
        assert (await producer.ask({"payload": "%", "context": "c"})) == {
            "result": "send-error:7",
            "errorMsg": "Invalid Base64 message-payload error=Only base64 data is allowed",
            "context": "c",
        }
        assert (await producer.ask({"context": "c"}))["result"] == "send-error:7"
        assert (await producer.ask(message(b"x", context=5)))["context"] == "5"
        consumer = await clients.consumer()
        consumer.send("nonsense")
        code, reason = await consumer.end()
        assert code == 4003
        assert reason.startswith("Failed to de-serialize from JSON")

    with_clients(story)


def test_unsubscribe() -> None:
    async def story(clients: Clients) -> None:
        consumer = await clients.consumer()
        topic = await clients.world.topic()
        consumer.send({"type": "unsubscribe"})
        await clients.world.until(lambda: "s" not in topic.subscriptions, "unsubscribed")

    with_clients(story)


def test_handshakes_that_are_refused() -> None:
    async def story(clients: Clients) -> None:
        cases = [
            ("v2/nonsense/persistent/public/default/t", {}, 404),
            ("v2/consumer/persistent/public/default/t", {}, 404),
            ("v2/producer/nonsense/public/default/t", {}, 400),
            ("producer/persistent/public/elsewhere/default/t", {}, 404),
            ("v2/producer/persistent/public/nowhere/t", {}, 404),
            ("v2/producer/persistent/public/default/t", {"compressionType": "RAR"}, 400),
            ("v2/producer/persistent/public/default/t", {"encryptionKeys": "k"}, 400),
            ("v2/consumer/persistent/public/default/t/s", {"ackTimeoutMillis": "soon"}, 400),
            ("v2/consumer/persistent/public/default/t/s", {"deadLetterTopic": "d"}, 400),
            ("v2/reader/persistent/public/default/t", {"messageId": "x"}, 400),
            ("v3/consumer/s", {}, 400),
        ]
        for path, query, status in cases:
            client = clients.start(path, **query)
            assert await client.opened() == status, (path, query, client.reason)
        first = await clients.consumer()
        second = clients.start("v2/consumer/persistent/public/default/t/s")
        assert await second.opened() == 409
        await first.leave()
        old = clients.start("producer/persistent/public/standalone/default/t")
        assert await old.opened() == 101

    with_clients(story)


def test_several_topics_and_their_statistics() -> None:
    async def story(clients: Clients) -> None:
        consumer = clients.start("v3/consumer/s", topics="a,b", subscriptionInitialPosition="Earliest")
        assert await consumer.opened() == 101, consumer.reason
        for name in ("a", "b"):
            producer = await clients.producer(f"persistent/public/default/{name}")
            await producer.ask(message(name.encode()))
        got = await consumer.got(2)
        assert sorted(payload_of(each) for each in got) == [b"a", b"b"]
        assert {each["topic"].rpartition("/")[2] for each in got} == {"a", "b"}
        stats: Any = clients.app.open.describe()["persistent://public/default/a"]
        assert stats["producerStats"] == [{"remoteConnection": "10.0.0.9:4711", "numberOfMsgPublished": 1}]
        assert stats["consumerStats"][0]["subscriptionName"] == "s"

    with_clients(story)


def test_a_wildcard() -> None:
    async def story(clients: Clients) -> None:
        for name in ("nyc.a", "nyc.b"):
            producer = await clients.producer(f"persistent/public/default/{name}")
            await producer.ask(message(name.encode()))
        consumer = await clients.consumer("persistent/public/default/nyc.**", subscriptionType="Shared")
        got = await consumer.got(2)
        assert sorted(payload_of(each) for each in got) == [b"nyc.a", b"nyc.b"]
        for each in got:
            assert each["topic"] == f"persistent://public/default/{payload_of(each).decode()}"
        for each in got:
            consumer.send({"messageId": each["messageId"]})
        topic = await clients.world.topic("persistent://public/default/nyc.b")
        await clients.world.until(lambda: topic.subscriptions["s"].backlog_entries == 0, "acknowledged")
        refused = clients.start("v2/producer/persistent/public/default/nyc.**")
        assert await refused.opened() == 405

    with_clients(story)


def test_a_socket_ends_when_the_broker_does_not_answer_its_coming_back() -> None:
    """The line was still there, and the socket stayed open without a producer or consumer behind it."""
    ends: list[SocketEnd] = []

    async def unanswered() -> None:
        raise LineClosedError("no answer within 30 s")

    only_what_is_used: Any = SimpleNamespace(finish=ends.append)
    asyncio.run(Endpoint._coming_back(only_what_is_used, unanswered))
    assert [end.reason for end in ends] == ["Unknown error: no answer within 30 s"]
