"""Truncation, analysis, bundles, resource groups, policies of several levels: over the admin API."""

from __future__ import annotations

import itertools

from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces/public/default"
TOPIC = "persistent://public/default/t"


def test_a_truncated_topic_holds_nothing_whatever_is_retained() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("POST", f"{N}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
        await api.publish(TOPIC, *(b"x" for _ in range(10)))
        await api.done("PUT", f"{T}/t/subscription/s", "earliest")
        assert (await api.get(f"{T}/t/internalStats"))["numberOfEntries"] == 10
        await api.done("DELETE", f"{T}/t/truncate")
        stats = await api.get(f"{T}/t/internalStats")
        assert stats["numberOfEntries"] == 0
        assert (await api.get(f"{T}/t/stats"))["subscriptions"]["s"]["msgBacklog"] == 0
        await api.publish(TOPIC, b"after")
        assert (await api.get(f"{T}/t/stats"))["subscriptions"]["s"]["msgBacklog"] == 1

    with_api(story)


def test_a_backlog_is_counted_by_reading_it() -> None:
    async def story(api: AdminApi) -> None:
        positions = await api.publish(TOPIC, *(b"x" for _ in range(6)))
        await api.done("PUT", f"{T}/t/subscription/s", "earliest")
        await api.done("POST", f"{T}/t/subscription/s/skip/2")
        found = (await api.call("POST", f"{T}/t/subscription/s/analyzeBacklog")).json
        assert (found["entries"], found["messages"], found["aborted"]) == (4, 4, False)
        last = positions[-1]
        assert found["lastMessageId"] == f"{last.ledger_id}:{last.entry_id}"

    with_api(story)


def test_what_applies_is_the_topics_own_then_all_clusters_then_the_namespaces_then_the_brokers() -> None:
    async def story(api: AdminApi) -> None:
        path = f"{T}/t/messageTTL"
        await api.done("PUT", f"{T}/t")
        assert await api.get(f"{path}?applied=true") == 0
        for setting, value in ((f"{N}/messageTTL", 1), (f"{path}?isGlobal=true", 2), (path, 3)):
            await api.done("POST", setting, value)
            assert await api.get(f"{path}?applied=true") == value
        assert await api.get(path) == 3
        assert await api.get(f"{path}?isGlobal=true") == 2
        await api.done("DELETE", f"{T}/t/policies")
        assert await api.get(f"{path}?applied=true") == 1
        assert (await api.call("GET", path)).status == 204

    with_api(story)


def test_bundles_are_split_and_keep_covering_all_hashes() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{N}/0x00000000_0x40000000/split")
        await api.done("PUT", f"{N}/0x00000000_0x20000000/split", [1, 5])
        found = await api.get(f"{N}/bundles")
        bounds = "0x00000000 0x00000001 0x00000005 0x20000000 0x40000000 0x80000000 0xc0000000 0xffffffff"
        assert found == {"boundaries": bounds.split(), "numBundles": 7}
        await api.publish(TOPIC, b"x")
        status, _ = await api.refused("PUT", f"{N}/0x00000000_0xffffffff/split")
        assert status == 412
        assert (await api.refused("PUT", f"{N}/0x00000000_0x00000001/split"))[0] == 412
        assert (await api.refused("PUT", f"{N}/0x00000005_0x20000000/split", [5]))[0] == 400
        where = await api.get(f"{N}/0x00000000_0xffffffff/topicHashPositions")
        assert list(where["topicHashPositions"]) == [TOPIC]

    with_api(story)


def test_the_bundle_with_the_most_topics_is_cut_between_them() -> None:
    async def story(api: AdminApi) -> None:
        for number in range(12):
            await api.done("PUT", f"{T}/t{number}")
        places = await api.get(f"{N}/0x00000000_0xffffffff/topicHashPositions")
        bounds = [int(bound, 16) for bound in (await api.get(f"{N}/bundles"))["boundaries"]]
        hashes = sorted(places["topicHashPositions"].values())
        lower, upper = max(
            itertools.pairwise(bounds), key=lambda pair: sum(pair[0] <= each < pair[1] for each in hashes)
        )
        await api.done("PUT", f"{N}/LARGEST/split?splitAlgorithmName=topic_count_equally_divide")
        after = [int(bound, 16) for bound in (await api.get(f"{N}/bundles"))["boundaries"]]
        (cut,) = set(after) - set(bounds)
        assert lower < cut < upper
        inside = [each for each in hashes if lower <= each < upper]
        assert sum(each < cut for each in inside) == len(inside) // 2
        # Nothing was published, so none is hot.
        assert (await api.refused("PUT", f"{N}/HOT/split"))[0] == 412
        status, reason = await api.refused("PUT", f"{N}/LARGEST/split?splitAlgorithmName=other")
        assert status == 412
        assert "Unsupported namespace bundle split algorithm" in str(reason)
        await api.publish(TOPIC, b"x")
        await api.done("PUT", f"{N}/HOT/split?unload=true")
        place = (await api.get(f"{N}/0x00000000_0xffffffff/topicHashPositions"))["topicHashPositions"][TOPIC]
        hot = [int(bound, 16) for bound in (await api.get(f"{N}/bundles"))["boundaries"]]
        (middle,) = set(hot) - set(after)
        assert any(
            lower <= place < upper and lower < middle < upper for lower, upper in itertools.pairwise(after)
        )
        assert TOPIC not in api.broker.topics

    with_api(story)


def test_a_resource_group_in_use_stays() -> None:
    async def story(api: AdminApi) -> None:
        group = "/admin/v2/resourcegroups/small"
        assert (await api.refused("POST", f"{N}/resourcegroup/small"))[0] == 412
        assert (await api.refused("PUT", group, {"publishRateInMsgs": "many"}))[0] == 400
        await api.done("PUT", group, {"publishRateInMsgs": 7})
        await api.done("PUT", group, {"dispatchRateInMsgs": 8})
        assert (await api.get(group))["publishRateInMsgs"] == 7
        await api.done("POST", f"{N}/resourcegroup/small")
        assert await api.get(f"{N}/resourcegroup") == "small"
        assert (await api.topic(TOPIC)).limits.limits.group is not None
        assert (await api.refused("DELETE", group))[0] == 412
        await api.done("DELETE", f"{N}/resourcegroup")
        assert (await api.topic(TOPIC)).limits.limits.group is None
        await api.done("DELETE", group)
        assert (await api.refused("GET", group))[0] == 404

    with_api(story)


def test_the_older_names_of_schema_strategies_have_their_effect() -> None:
    async def story(api: AdminApi) -> None:
        path = "/admin/v2/schemas/public/default/t"
        text = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}%s]}'
        first = {"type": "AVRO", "schema": text % "", "properties": {}}
        more = {"type": "AVRO", "schema": text % ',{"name":"b","type":"int"}', "properties": {}}
        assert (await api.call("POST", f"{path}/schema", first)).status == 200
        assert (await api.refused("POST", f"{path}/schema", more))[0] == 409
        await api.done("PUT", f"{N}/schemaAutoUpdateCompatibilityStrategy", "Forward")
        assert (await api.call("POST", f"{path}/schema", more)).status == 200
        assert (await api.refused("PUT", f"{N}/schemaAutoUpdateCompatibilityStrategy", "ONWARD"))[0] == 400

    with_api(story)


def test_a_tenant_goes_with_everything_in_it_by_force() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", "/admin/v2/tenants/acme")
        await api.done("PUT", "/admin/v2/namespaces/acme/one", {"replication_clusters": []})
        assert await api.get("/admin/v2/namespaces/acme/one/replication") == ["standalone"]
        await api.publish("persistent://acme/one/t", b"x")
        assert (await api.refused("DELETE", "/admin/v2/tenants/acme"))[0] == 409
        await api.done("DELETE", "/admin/v2/tenants/acme?force=true")
        assert (await api.refused("GET", "/admin/v2/tenants/acme"))[0] == 404

    with_api(story)


def test_clusters_know_peers_domains_and_isolation() -> None:
    async def story(api: AdminApi) -> None:
        far, own = "/admin/v2/clusters/far", "/admin/v2/clusters/standalone"
        await api.done("PUT", far, {"serviceUrl": "http://far:8080"})
        await api.done("POST", f"{own}/peers", ["far"])
        assert (await api.refused("POST", f"{own}/peers", ["standalone"]))[0] == 412
        assert (await api.refused("DELETE", far))[0] == 412
        await api.done("POST", f"{own}/failureDomains/a", {"brokers": ["x:1"]})
        assert (await api.refused("POST", f"{own}/failureDomains/b", {"brokers": ["x:1"]}))[0] == 412
        assert await api.get(f"{own}/failureDomains") == {"a": {"brokers": ["x:1"]}}
        policy = f"{own}/namespaceIsolationPolicies/p"
        assert (await api.refused("POST", policy, {"namespaces": ["["], "primary": ["x"]}))[0] == 412
        await api.done("POST", policy, {"namespaces": ["a/.*"], "primary": ["127[.].*"]})
        brokers = await api.get(f"{own}/namespaceIsolationPolicies/brokers")
        assert brokers[0]["isPrimary"] is True
        assert (await api.refused("POST", f"{own}/migrate?migrated=true", {}))[0] == 501
        await api.done("POST", f"{own}/peers", [])
        await api.done("DELETE", far)

    with_api(story)
