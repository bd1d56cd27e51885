"""Where bundles of anti-affinity groups go, with failure domains and without."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.broker.ownership.placement_rules import GROUP
from magnetar.broker.ownership.spread import Groups
from magnetar.metadata import keys
from support.many_brokers import OTHER, OneOfSeveral, urls_of, with_one_of_several
from support.waiting import eventually

A, B, C, D = (NamespaceName("t", name) for name in "abcd")
_DOMAINS = {"x1:8080": "x", "x2": "x", "y1": "y", "y2": "y"}
BROKERS = frozenset({"x1:8080", "x2:8080", "y1:8080", "y2:8080"})


def servers(*names: str) -> frozenset[str]:
    return frozenset(f"{name}:8080" for name in names)


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ({}, BROKERS),
        ({B: servers("x1")}, servers("y1", "y2")),
        ({B: servers("x1"), C: servers("y1")}, servers("x2", "y2")),
        ({B: servers("x1", "x2"), C: servers("y1")}, servers("y2")),
        ({B: servers("x1"), D: servers("y1", "y2")}, servers("y1", "y2")),
        ({A: servers("x1"), B: servers("y1")}, servers("x1", "x2")),
    ],
    ids=["nothing", "domain", "broker", "twice in a domain is once", "another group", "its own bundles"],
)
def test_the_domain_with_the_fewest_then_the_broker(
    served: dict[NamespaceName, frozenset[str]], expected: frozenset[str]
) -> None:
    groups = Groups({A: "g", B: "g", C: "g", D: "other"}, served, _DOMAINS)
    assert groups.preferred(A, BROKERS) == expected


def test_without_domains_the_brokers_alone_count() -> None:
    groups = Groups({A: "g", B: "g"}, {B: servers("x1")})
    assert groups.preferred(A, BROKERS) == BROKERS - servers("x1")
    assert groups.preferred(A, servers("x1")) == servers("x1")
    assert groups.preferred(A, ()) == frozenset()


def test_a_namespace_without_a_group_goes_anywhere() -> None:
    assert Groups({B: "g"}, {B: servers("x1")}, _DOMAINS).preferred(A, BROKERS) == BROKERS


async def grouped(api: OneOfSeveral, *names: str) -> None:
    """Puts new namespaces of `public` into one group."""
    for name in names:
        namespace = NamespaceName("public", name)
        await api.broker.policies.create_namespace(namespace, {})
        await api.store.put(keys.local_policies(namespace), json.dumps({GROUP: "g"}).encode())
    await api.owners.rules.load()


async def served_by_other(api: OneOfSeveral, name: str) -> None:
    """Writes the record; the watcher reads the rules anew."""
    await api.other_owns(Bundle(NamespaceName("public", name), 0, 1 << 30))
    await eventually(lambda: api.owners.rules.groups.served.get(NamespaceName("public", name)) == {OTHER})


def run(story: Callable[[OneOfSeveral], Awaitable[None]]) -> None:
    with_one_of_several(story)


def test_look_ups_spread_a_group() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        await grouped(api, "one", "two")
        await served_by_other(api, "one")
        topics = [TopicName.parse(f"persistent://public/two/t{number}") for number in range(20)]
        assert {await api.owners.locate(topic, authoritative=False) for topic in topics} == {HERE}

    run(story)


def test_a_broker_that_drains_sends_a_group_to_where_others_of_it_are_if_none_is_left() -> None:
    """It is a wish: without a second best the bundle would be without an owner."""

    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        await grouped(api, "one", "two")
        await served_by_other(api, "one")
        api.owners.reporting.leaving = True
        topic = TopicName.parse("persistent://public/two/t")
        place = await api.owners.locate(topic, authoritative=False)
        assert place == TopicPlace(urls_of(OTHER), redirect=True)

    run(story)


def test_groups_and_domains_are_read_anew_when_they_change() -> None:
    async def story(api: OneOfSeveral) -> None:
        await grouped(api, "one")
        rules, namespace = api.owners.rules, NamespaceName("public", "one")
        assert rules.groups.group_of == {namespace: "g"}
        domain = f"{keys.failure_domains(api.broker.config.cluster)}/east"
        await api.store.put(domain, json.dumps({"brokers": ["b:8080", "c"]}).encode())
        await eventually(lambda: rules.groups.domains == {"b:8080": "east", "c": "east"})
        await api.store.put(keys.local_policies(namespace), b"{}")
        await eventually(lambda: rules.groups == Groups())

    run(story)
