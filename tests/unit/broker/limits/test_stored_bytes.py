"""What a tenant may store over all its topics."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import StoredQuotaError
from magnetar.broker.limits.stored_bytes import look
from magnetar.broker.limits.tenants import TenantLimits
from magnetar.wire import pulsar_pb2 as pb
from support.admin_api import AdminApi, with_api
from support.sessions import Type, World, in_world, send

V2 = "/admin/v2"
STORED = f"{V2}/tenants/a/storedBytes"
BODY = b"x" * 1_000


async def tenants(api: AdminApi) -> None:
    for name in ("a", "b"):
        await api.done("PUT", f"{V2}/tenants/{name}")
        await api.done("PUT", f"{V2}/namespaces/{name}/n")
    for topic in ("persistent://a/n/loaded", "persistent://a/n/unloaded", "persistent://b/n/t"):
        await api.done("PUT", f"{V2}/{topic.replace('://', '/')}")
        # Without a subscription nothing would be kept.
        await api.done("PUT", f"{V2}/{topic.replace('://', '/')}/subscription/s", {})
        await api.publish(topic, *[BODY] * 4)
    await api.broker.unload(TopicName.parse("persistent://a/n/unloaded"))


async def takes(api: AdminApi, topic: str) -> bool:
    """As a connection does it."""
    try:
        (await api.topic(topic)).limits.admit_producer({}, "p", encrypted=False)
    except StoredQuotaError:
        return False
    await api.publish(topic, BODY)
    return True


def test_all_topics_are_counted_loaded_or_not() -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        assert await api.get(STORED) == {"limit": 0, "stored": 0, "refusing": False}
        await api.done("POST", STORED, 1_000_000)
        found = await api.get(STORED)
        assert 8_000 < found["stored"] < 10_000
        assert (found["limit"], found["refusing"]) == (1_000_000, False)
        assert str(TopicName.parse("persistent://a/n/unloaded")) not in api.broker.topics
        scrape = (await api.call("GET", "/metrics")).body.decode()
        assert 'magnetar_tenant_stored_bytes_max{cluster="standalone",tenant="a"} 1000000' in scrape
        assert 'magnetar_tenant_stored_bytes{cluster="standalone",tenant="b"}' not in scrape

    with_api(story)


def test_beyond_it_the_tenants_producers_are_refused_and_nobody_elses() -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        await api.done("POST", STORED, 9_000)
        assert await takes(api, "persistent://a/n/new")
        await api.broker._look_at_stored()
        assert (await api.get(STORED))["refusing"]
        for topic in ("loaded", "unloaded", "new", "newer"):
            assert not await takes(api, f"persistent://a/n/{topic}")
        assert await takes(api, "persistent://b/n/t")
        sent = {"messages": [{"payload": "x"}]}
        answer = await api.call("POST", "/topics/persistent/a/n/loaded", sent)
        assert (answer.status, "tenant a stores" in answer.reason) == (412, True)

    with_api(story)


@pytest.mark.parametrize("topic", ["loaded", "unloaded"])
def test_what_is_deleted_is_free_again(topic: str) -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        await api.done("POST", STORED, 8_000)
        assert not await takes(api, "persistent://a/n/loaded")
        await api.done("DELETE", f"{V2}/persistent/a/n/{topic}")
        await api.broker._look_at_stored()
        assert await takes(api, "persistent://a/n/other")

    with_api(story)


def test_a_little_less_is_not_enough() -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        stored = await _counted(api)
        await api.done("POST", STORED, stored)
        assert (await api.get(STORED))["refusing"]
        await api.done("POST", STORED, stored * 100 // 96)
        assert (await api.get(STORED))["refusing"]
        await api.done("POST", STORED, stored * 100 // 94)
        assert not (await api.get(STORED))["refusing"]

    with_api(story)


async def _counted(api: AdminApi) -> int:
    await api.done("POST", STORED, 1_000_000)
    return int((await api.get(STORED))["stored"])


def test_the_brokers_setting_holds_where_a_tenant_has_no_limit_of_its_own() -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        await api.broker._look_at_stored()
        assert not await takes(api, "persistent://a/n/loaded")
        await api.done("POST", STORED, 0)
        assert await takes(api, "persistent://a/n/loaded")
        await api.done("DELETE", STORED)
        assert not await takes(api, "persistent://a/n/loaded")

    with_api(story, config=BrokerConfig(tenants=TenantLimits(stored_bytes_max=5_000)))


def test_a_change_of_the_tenant_keeps_the_limit_and_does_not_show_it() -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        await api.done("POST", STORED, 8_000)
        await api.done("POST", f"{V2}/tenants/a", {"allowedClusters": ["standalone"], "adminRoles": ["r"]})
        assert (await api.get(STORED))["limit"] == 8_000
        assert set(await api.get(f"{V2}/tenants/a")) == {"allowedClusters", "adminRoles"}

    with_api(story)


def test_it_is_counted_once_a_second_however_often_somebody_asks() -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        await api.done("POST", STORED, 1_000_000)
        before = (await api.get(STORED))["stored"]
        await api.publish("persistent://a/n/loaded", BODY)
        assert (await api.get(STORED))["stored"] == before
        api.clock.advance(1_000)
        assert (await api.get(STORED))["stored"] > before

    with_api(story)


@pytest.mark.parametrize(("body", "status"), [(-1, 412), ("x", 400), ({}, 400), (1 << 63, 400), (None, 400)])
def test_a_limit_is_a_number_from_0(body: object, status: int) -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{V2}/tenants/a")
        assert (await api.refused("POST", STORED, body))[0] == status
        assert (await api.refused("POST", f"{V2}/tenants/none/storedBytes", 1))[0] == 404

    with_api(story)


def test_a_tenant_that_is_made_while_a_round_reads_their_list_keeps_its_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(api: AdminApi) -> None:
        before = await api.broker.policies.tenants()
        await tenants(api)

        used = api.broker.stored.of("a")
        api.broker.stored.marks.clear()

        async def late() -> list[str]:
            api.broker.stored.marks["a"] = used
            return before

        with monkeypatch.context() as patched:
            patched.setattr(api.broker.policies, "tenants", late)
            await look(api.broker)
        await api.done("POST", STORED, 1_000)
        assert not await takes(api, "persistent://a/n/loaded")

    with_api(story)


def test_clients_that_publish_are_sent_away_and_hear_why() -> None:
    topic = "persistent://public/default/t"

    async def story(world: World) -> None:
        publisher, consumer = world.peer(), world.peer()
        await consumer.consumer(topic=topic)
        await publisher.producer(topic=topic)
        publisher.send(send(1, 0, BODY))
        await world.until(lambda: publisher.receipts, "a receipt")
        await world.broker._look_at_stored()
        await world.until(lambda: publisher.commands(Type.CLOSE_PRODUCER), "it is sent away")
        answer = await publisher.producer(topic=topic, request_id=2)
        assert answer.error == pb.ProducerBlockedQuotaExceededException
        assert "tenant public stores" in answer.message
        assert "delete topics" in answer.message

    in_world(story, BrokerConfig(tenants=TenantLimits(stored_bytes_max=500)))


def test_a_limit_that_changes_while_topics_are_counted_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(api: AdminApi) -> None:
        await tenants(api)
        await api.done("POST", STORED, 1_000)
        names = api.broker.logs.names

        async def changed_meanwhile(namespace: str) -> list[str]:
            monkeypatch.undo()
            await api.done("DELETE", STORED)
            return await names(namespace)

        monkeypatch.setattr(api.broker.logs, "names", changed_meanwhile)
        await look(api.broker)
        assert await takes(api, "persistent://a/n/loaded")

    with_api(story)


def test_the_brokers_own_tenant_has_no_limit_by_the_setting() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{V2}/persistent/pulsar/system/t/subscription/s")
        await api.publish("persistent://pulsar/system/t", *[BODY] * 3)
        await api.broker._look_at_stored()
        assert await takes(api, "persistent://pulsar/system/t")

    with_api(story, config=BrokerConfig(tenants=TenantLimits(stored_bytes_max=1)))
