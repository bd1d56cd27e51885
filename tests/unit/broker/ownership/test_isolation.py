"""Which brokers may serve a namespace, and what look-ups make of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.isolation import brokers_for, policies_of, stays
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.metadata import keys
from support.many_brokers import OTHER, OneOfSeveral, urls_of, with_one_of_several

BROKERS = ["a1:8080", "a2:8080", "b1:8080", "c1:8080"]


def document(minimum: int = 1, **more: object) -> Mapping[str, object]:
    return {
        "p": {
            "namespaces": ["gold/.*"],
            "primary": ["a.*"],
            "secondary": ["b1:8080"],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": str(minimum), "usage_threshold": "80"},
            },
            **more,
        }
    }


@pytest.mark.parametrize(
    ("namespace", "there", "minimum", "expected"),
    [
        ("gold/n", BROKERS, 1, {"a1:8080", "a2:8080"}),
        ("gold/n", BROKERS, 3, {"a1:8080", "a2:8080", "b1:8080"}),
        ("gold/n", ["b1:8080", "c1:8080"], 1, {"b1:8080"}),
        ("gold/n", ["c1:8080"], 1, set()),
        ("golden/n", BROKERS, 1, {"b1:8080", "c1:8080"}),
        ("golden/n", ["a1:8080"], 1, set()),
    ],
)
def test_brokers_of_a_namespace(namespace: str, there: list[str], minimum: int, expected: set[str]) -> None:
    policies = policies_of(document(minimum))
    assert brokers_for(NamespaceName.parse(namespace), there, policies) == expected


def test_without_policies_all_brokers_serve_all() -> None:
    for nothing in (None, {}, {"p": 7}, {"p": {"namespaces": ["("], "primary": ["a"]}}):
        policies = policies_of(nothing)
        assert brokers_for(NamespaceName("gold", "n"), BROKERS, policies) == set(BROKERS)


def test_a_policy_may_leave_bundles_where_they_are() -> None:
    namespace = NamespaceName("gold", "n")
    assert not stays(namespace, policies_of(document()))
    assert stays(namespace, policies_of(document(unload_scope="none")))


async def _isolate(api: OneOfSeveral, primary: str) -> None:
    policy = {"namespaces": ["public/default"], "primary": [primary]}
    path = keys.isolation_policies(api.broker.config.cluster)
    await api.store.put(path, json.dumps({"p": policy}).encode())
    await api.owners.rules.load()


def test_look_ups_go_by_the_policies() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        topics = [TopicName.parse(f"t{number}") for number in range(20)]
        await _isolate(api, "b")
        for topic in topics:
            for authoritative in (False, True):
                place = await api.owners.locate(topic, authoritative=authoritative)
                assert place == TopicPlace(urls_of(OTHER), redirect=True)
        await _isolate(api, "c")
        with pytest.raises(ServiceNotReadyError, match="isolation policies allow none"):
            await api.owners.locate(topics[0], authoritative=True)
        await _isolate(api, api.owners.broker_id)
        assert {await api.owners.locate(topic, authoritative=False) for topic in topics} == {HERE}

    with_one_of_several(story)


def test_a_bundle_leaves_a_broker_that_may_not_have_it_any_more() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        topic = TopicName.parse("t")
        assert await api.owners.locate(topic, authoritative=True) == HERE
        bundle = await api.owners.bundle_of(topic)
        assert not await api.owners.expel(bundle) or OTHER in api.owners.allowed(bundle)
        await api.owners.locate(topic, authoritative=True)
        await _isolate(api, "b")
        if api.owners.ownership.serves(bundle):
            assert await api.owners.expel(bundle)
        assert not api.owners.ownership.serves(bundle)

    with_one_of_several(story)
