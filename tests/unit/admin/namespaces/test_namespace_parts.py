"""Bundles and properties of namespaces, and where their messages may be replicated to."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from magnetar.admin.namespaces import bundles
from magnetar.base.names import TopicName
from magnetar.broker.policies.bundles import bundle_of
from magnetar.broker.service import BrokerConfig
from support.admin_api import AdminApi, with_api

N = "/admin/v2/namespaces/public/n"


def topic(number: int) -> TopicName:
    return TopicName.parse(f"persistent://public/n/t-{number}")


@pytest.mark.parametrize(
    ("document", "bounds"),
    [
        (None, ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]),
        ({"numBundles": 0}, ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]),
        ({"numBundles": 1}, ["0x00000000", "0xffffffff"]),
        ({"numBundles": 2}, ["0x00000000", "0x80000000", "0xffffffff"]),
        ({"numBundles": 3}, ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"]),
        (
            {"numBundles": 7},
            [
                *("0x00000000", "0x24924924", "0x49249248", "0x6db6db6c", "0x92492490"),
                *("0xb6db6db4", "0xdb6db6d8", "0xffffffff"),
            ],
        ),
        ({"boundaries": ["0xFFFFFFFF", "0x0", "0x10"]}, ["0x00000000", "0x00000010", "0xffffffff"]),
        (
            {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
            ["0x00000000", "0xffffffff"],
        ),
    ],
)
def test_boundaries(document: Any, bounds: list[str]) -> None:
    assert bundles.wanted(document) == {"boundaries": bounds, "numBundles": len(bounds) - 1}


@pytest.mark.parametrize("number", [1, 2, 3, 7, 1024])
def test_every_topic_falls_into_one_bundle(number: int) -> None:
    policies = {"bundles": bundles.wanted({"numBundles": number})}
    bounds: Any = policies["bundles"]["boundaries"]
    names = [f"{lower}_{upper}" for lower, upper in itertools.pairwise(bounds)]
    for i in range(50):
        assert [name for name in names if bundles.within(topic(i), name)] == [bundle_of(topic(i), policies)]


def test_bundles_are_parts_that_can_be_unloaded() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", N, {"bundles": {"numBundles": 4}})
        assert (await api.get(f"{N}/bundles"))["numBundles"] == 4
        await api.done("PUT", "/admin/v2/persistent/public/n/t-0/partitions", 1)
        found = await api.call("GET", "/lookup/v2/topic/persistent/public/n/t-0/bundle")
        bundle = found.body.decode()
        assert bundle == bundle_of(topic(0), {"bundles": bundles.wanted({"numBundles": 4})})
        await api.done("PUT", f"{N}/{bundle}/unload?destinationBroker=")
        assert await api.refused("PUT", f"{N}/half/unload") == (412, "Invalid bundle range: half")
        for what in ("unload", "clearBacklog"):
            method = "PUT" if what == "unload" else "POST"
            for unknown, why in (
                ("0x1_0x2", "Cannot find bundle public/n/0x00000001_0x00000002 in the bundles list"),
                (
                    "0x00000000_0x12345678",
                    (
                        "Invalid upper boundary for bundle public/n/0x00000000_0x12345678."
                        " Expected upper boundary of public/n/0x00000000_0x40000000"
                    ),
                ),
            ):
                assert await api.refused(method, f"{N}/{unknown}/{what}") == (412, why)

    with_api(story)


def test_properties() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", N)
        assert await api.get(f"{N}/properties") == {}
        await api.done("PUT", f"{N}/properties", {"a": "1", "b": "2"})
        await api.done("PUT", f"{N}/property/c/three")
        await api.done("PUT", f"{N}/properties", {"a": "one"})
        assert await api.get(f"{N}/properties") == {"a": "one", "b": "2", "c": "three"}
        assert (await api.call("GET", f"{N}/property/b")).body == b"2"
        assert (await api.call("GET", f"{N}/property/absent")).status == 204
        assert (await api.call("DELETE", f"{N}/property/b")).body == b"2"
        assert await api.get(f"{N}/properties") == {"a": "one", "c": "three"}
        await api.done("DELETE", f"{N}/properties")
        assert await api.get(f"{N}/properties") == {}
        assert (await api.refused("PUT", f"{N}/properties", {"a": 1}))[0] == 400
        assert (await api.refused("PUT", "/admin/v2/namespaces/public/none/properties", {"a": "1"}))[0] == 404

    with_api(story)


def test_a_namespace_is_replicated_to_its_own_cluster_alone() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", N)
        await api.done("POST", f"{N}/replication", ["here"])
        assert await api.get(f"{N}/replication") == ["here"]
        assert (await api.refused("POST", f"{N}/replication", ["here", "there"]))[0] == 501
        assert (await api.refused("POST", f"{N}/replication", []))[0] == 412

    with_api(story, config=BrokerConfig(cluster="here"))


def test_an_unknown_listener_is_refused() -> None:
    async def story(api: AdminApi) -> None:
        path = "/lookup/v2/topic/persistent/public/default/t?listenerName=moon"
        status, reason = await api.refused("GET", path)
        assert status == 503
        assert reason == "the broker do not have moon listener"
        headers = {"X-Pulsar-ListenerName": "moon"}
        answer = await api.call("GET", path.partition("?")[0], headers=headers)
        assert (answer.status, answer.reason) == (status, reason)

    with_api(story)
