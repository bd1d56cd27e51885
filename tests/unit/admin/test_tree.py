"""Clusters, brokers, tenants, namespaces, policies, lookups."""

from __future__ import annotations

import asyncio

import pytest

from magnetar import __version__
from magnetar.broker.service import BrokerConfig
from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces"


def test_clusters() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get("/admin/v2/clusters") == ["standalone"]
        document = await api.get("/admin/v2/clusters/standalone")
        assert document["brokerServiceUrl"] == "pulsar://127.0.0.1:6650"
        assert (await api.refused("PUT", "/admin/v2/clusters/standalone", {}))[0] == 409
        await api.done("PUT", "/admin/v2/clusters/other", {"serviceUrl": "http://h:1"})
        await api.done("POST", "/admin/v2/clusters/other", {"serviceUrl": "http://h:2"})
        assert await api.get("/admin/v2/clusters/other") == {"serviceUrl": "http://h:2"}
        await api.done("DELETE", "/admin/v2/clusters/other")
        assert (await api.refused("GET", "/admin/v2/clusters/other"))[0] == 404
        assert (await api.refused("DELETE", "/admin/v2/clusters/other"))[0] == 404
        assert (await api.refused("DELETE", "/admin/v2/clusters/standalone"))[0] == 412

    with_api(story)


def test_brokers() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get("/admin/v2/brokers") == ["127.0.0.1:8080"]
        assert await api.get("/admin/v2/brokers/standalone") == ["127.0.0.1:8080"]
        assert (await api.refused("GET", "/admin/v2/brokers/other"))[0] == 404
        assert await api.get("/admin/v2/brokers/leaderBroker") == {
            "serviceUrl": "http://127.0.0.1:8080",
            "brokerId": "127.0.0.1:8080",
        }
        assert (await api.call("GET", "/admin/v2/brokers/version")).body.decode() == __version__
        assert (await api.call("GET", "/admin/v2/brokers/ready")).body == b"ok"
        assert (await api.get("/admin/v2/brokers/configuration/runtime"))["cluster"] == "standalone"
        assert await api.get("/admin/v2/brokers/configuration/values") == {}

    with_api(story)


def test_health_publishes_durably_and_reads_back() -> None:
    async def story(api: AdminApi) -> None:
        answers = await asyncio.gather(*(api.call("GET", "/admin/v2/brokers/health") for _ in range(3)))
        assert [(answer.status, answer.body) for answer in answers] == [(200, b"ok")] * 3
        topic = await api.topic("persistent://pulsar/system/healthcheck")
        assert topic.log.entry_count == 1, "calls that come at once share one check"
        assert topic.producers == {}

    with_api(story)


def test_health_tells_when_the_broker_does_not_work() -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic("persistent://pulsar/system/healthcheck")
        await topic.log.terminate()
        assert (await api.refused("GET", "/admin/v2/brokers/health"))[0] == 409
        api.broker.registry.draining = True
        assert (await api.refused("GET", "/admin/v2/brokers/ready"))[0] == 503
        assert (await api.refused("GET", "/status.html"))[0] == 503

    with_api(story)


def test_tenants() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get("/admin/v2/tenants") == ["public", "pulsar"]
        await api.done("PUT", "/admin/v2/tenants/t")
        assert (await api.refused("PUT", "/admin/v2/tenants/t"))[0] == 409
        body = {"adminRoles": ["b", "a"], "allowedClusters": ["standalone"]}
        await api.done("POST", "/admin/v2/tenants/t", body)
        assert await api.get("/admin/v2/tenants/t") == {**body, "adminRoles": ["a", "b"]}
        for clusters in ([], ["nowhere"]):
            assert (await api.refused("PUT", "/admin/v2/tenants/u", {"allowedClusters": clusters}))[0] == 412
        assert (await api.refused("PUT", "/admin/v2/tenants/u", {"allowedClusters": "x"}))[0] == 400
        await api.done("PUT", f"{N}/t/n")
        assert (await api.refused("DELETE", "/admin/v2/tenants/t"))[0] == 409
        await api.done("DELETE", f"{N}/t/n")
        await api.done("DELETE", "/admin/v2/tenants/t")
        for method in ("GET", "POST", "DELETE"):
            assert (await api.refused(method, "/admin/v2/tenants/t"))[0] == 404

    with_api(story)


def test_namespaces() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get(f"{N}/public") == ["public/default", "public/functions"]
        assert (await api.refused("GET", f"{N}/nobody"))[0] == 404
        assert (await api.refused("PUT", f"{N}/nobody/n"))[0] == 404
        grant = {"auth_policies": {"namespace_auth": {"me": ["produce"]}}}
        await api.done("PUT", f"{N}/public/n", grant)
        assert (await api.refused("PUT", f"{N}/public/n"))[0] == 409
        for wrong in (4, {"numBundles": 1025}, {"boundaries": ["0x0", "0x1"]}, {"boundaries": ["a"]}):
            assert (await api.refused("PUT", f"{N}/public/m", {"bundles": wrong}))[0] == 400
        assert await api.get(f"{N}/public/n/permissions") == {"me": ["produce"]}
        assert await api.get(f"{N}/public/n/replication") == ["standalone"]
        assert (await api.get(f"{N}/public/n"))["replication_clusters"] == ["standalone"]
        assert await api.get(f"{N}/public/n/bundles") == {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
            "numBundles": 4,
        }
        assert await api.get(f"{N}/public/n/backlogQuotaMap") == {}
        assert (await api.refused("GET", f"{N}/public/none/topics"))[0] == 404

    with_api(story)


def test_topics_of_a_namespace_and_its_deletion() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{N}/public/n")
        await api.done("PUT", "/admin/v2/persistent/public/n/a")
        await api.done("PUT", "/admin/v2/persistent/public/n/p/partitions", 2)
        names = [f"persistent://public/n/{local}" for local in ("a", "p-partition-0", "p-partition-1")]
        assert await api.get(f"{N}/public/n/topics") == names
        assert await api.get(f"{N}/public/n/topics?mode=ALL") == names
        assert await api.get(f"{N}/public/n/topics?mode=NON_PERSISTENT") == []
        assert (await api.refused("GET", f"{N}/public/n/topics?mode=x"))[0] == 400
        assert await api.get("/admin/v2/persistent/public/n/partitioned") == ["persistent://public/n/p"]
        assert await api.get("/admin/v2/non-persistent/public/n") == []
        assert (await api.refused("DELETE", f"{N}/public/n"))[0] == 409
        await api.publish("persistent://public/n/p-partition-1", b"x")
        await api.done("DELETE", f"{N}/public/n?force=true")
        assert (await api.refused("GET", f"{N}/public/n"))[0] == 404
        await api.done("PUT", f"{N}/public/n")
        assert await api.get(f"{N}/public/n/topics") == []

    with_api(story)


def test_unloading_and_clearing_a_namespace() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        for name in ("s", "other"):
            await api.done("PUT", f"{T}/t/subscription/{name}", "earliest")
        await api.publish("t", b"1", b"2")

        async def backlogs() -> dict[str, int]:
            stats = await api.get(f"{T}/t/stats")
            return {name: sub["msgBacklog"] for name, sub in stats["subscriptions"].items()}

        await api.done("POST", f"{N}/public/default/clearBacklog/s")
        assert await backlogs() == {"s": 0, "other": 2}
        bundle = (await api.call("GET", "/lookup/v2/topic/persistent/public/default/t/bundle")).body.decode()
        await api.done("POST", f"{N}/public/default/{bundle}/clearBacklog")
        assert await backlogs() == {"s": 0, "other": 0}
        await api.done("PUT", f"{N}/public/default/unload")
        assert api.broker.topics == {}
        assert await backlogs() == {"s": 0, "other": 0}
        assert (await api.refused("PUT", f"{N}/public/default/0x0_0x1/unload"))[0] == 412
        await api.done("POST", f"{N}/public/default/unsubscribe/s")
        assert list((await api.get(f"{T}/t/stats"))["subscriptions"]) == ["other"]
        # Nothing is left to do: done, as in Pulsar.
        await api.done("POST", f"{N}/public/default/unsubscribe/s")

    with_api(story)


def test_deduplication_bites_before_the_answer() -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")

        def deduplicates() -> bool:
            return topic.dedup is not None

        path = f"{N}/public/default/deduplication"
        assert (await api.call("GET", path)).status == 204
        await api.done("POST", path, True)
        assert deduplicates()
        assert await api.get(path) is True
        await api.done("POST", f"{T}/t/deduplicationEnabled", False)
        assert not deduplicates()
        assert await api.get(f"{T}/t/deduplicationEnabled") is False
        await api.done("DELETE", f"{T}/t/deduplicationEnabled")
        assert deduplicates()
        assert (await api.call("GET", f"{T}/t/deduplicationEnabled")).status == 204
        assert await api.get(f"{T}/t/deduplicationEnabled?applied=true") is True
        await api.done("DELETE", path)
        assert not deduplicates()
        for body in (None, 1.5, "on"):
            assert (await api.refused("POST", path, body))[0] == 400

    with_api(story)


def test_retention() -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        limits = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
        for path in (f"{N}/public/default/retention", f"{T}/t/retention"):
            await api.done("POST", path, limits)
            assert await api.get(path) == limits
            assert (topic.log.retention.ms, topic.log.retention.size_bytes) == (300_000, -1)
            await api.done("DELETE", path)
            assert (await api.call("GET", path)).status == 204
            assert topic.log.retention.ms == 0
            assert (await api.refused("POST", path, {"retentionTimeInMinutes": 5}))[0] == 400
            assert (await api.refused("POST", path, {"retentionTimeInMinutes": "five"}))[0] == 400

    with_api(story)


def test_schema_compatibility_strategy_is_answered_204() -> None:
    async def story(api: AdminApi) -> None:
        path = f"{N}/public/default/schemaCompatibilityStrategy"
        assert await api.get(path) == "UNDEFINED"
        await api.done("PUT", path, "FORWARD")
        assert await api.get(path) == "FORWARD"
        assert (await api.refused("PUT", path, "SIDEWAYS"))[0] == 400

    with_api(story)


def test_lookups_lead_to_the_host_that_the_client_reached() -> None:
    async def story(api: AdminApi) -> None:
        path = "/lookup/v2/topic/persistent/public/default/t"
        answer = await api.call("GET", path, headers={"host": "[::1]:8080"})
        assert answer.json == {
            "brokerUrl": "pulsar://[::1]:6650",
            "brokerUrlTls": "",
            "httpUrl": "http://[::1]:8080",
            "httpUrlTls": "",
            "nativeUrl": "pulsar://[::1]:6650",
        }
        assert (await api.call("GET", f"{path}/bundle")).body == b"0x80000000_0xc0000000"
        assert (await api.refused("GET", "/lookup/v2/topic/persistent/public/none/t"))[0] == 404
        assert (await api.refused("GET", "/lookup/v2/topic/odd/public/default/t"))[0] == 404
        passing = await api.get("/lookup/v2/topic/non-persistent/public/default/t")
        assert passing["brokerUrl"] == "pulsar://localhost:6650"

    with_api(story)


@pytest.mark.parametrize("host", ["broker.example"])
def test_lookups_lead_to_the_advertised_host(host: str) -> None:
    async def story(api: AdminApi) -> None:
        answer = await api.get("/lookup/v2/topic/persistent/public/default/t")
        assert answer["brokerUrl"] == f"pulsar://{host}:6650"

    with_api(story, config=BrokerConfig(advertised_host=host))
