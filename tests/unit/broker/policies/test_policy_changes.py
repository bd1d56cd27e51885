"""Which topics a changed document concerns, and that the others are left alone."""

from __future__ import annotations

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.limits.limits import Limits
from magnetar.broker.policies.policy_changes import Scope, scope_of
from magnetar.metadata import keys
from support.sessions import World, in_world

T = TopicName.parse("persistent://a/n/t")
PARTITION = T.with_partition(3)
PASSING = TopicName.parse("non-persistent://a/n/t")
NEIGHBOUR = TopicName.parse("persistent://a/n/other")
ELSEWHERE = TopicName.parse("persistent://a/m/t")


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        (keys.namespace_policies(T.namespace_name), {T, PARTITION, PASSING, NEIGHBOUR}),
        (keys.local_policies(T.namespace_name), {T, PARTITION, PASSING, NEIGHBOUR}),
        (keys.topic_policies(T), {T, PARTITION}),
        (keys.local_topic_policies(T), {T, PARTITION}),
        (keys.local_topic_policies(PASSING), {PASSING}),
        (keys.tenant("a"), set()),
        (keys.partitioned_topic(T), set()),
        (keys.cluster("c"), set()),
        (keys.resource_group("g"), {T, PARTITION, PASSING, NEIGHBOUR, ELSEWHERE}),
        (keys.CONFIGURATION, {T, PARTITION, PASSING, NEIGHBOUR, ELSEWHERE}),
        (keys.ADMIN, {T, PARTITION, PASSING, NEIGHBOUR, ELSEWHERE}),
        ("/admin/topic-policies/what/is/this", {T, PARTITION, PASSING, NEIGHBOUR, ELSEWHERE}),
    ],
)
def test_a_document_concerns_its_topics(path: str, covered: set[TopicName]) -> None:
    scope = scope_of([path])
    assert {name for name in (T, PARTITION, PASSING, NEIGHBOUR, ELSEWHERE) if scope.covers(name)} == covered
    assert scope.nothing == (not covered)


def test_several_documents_concern_what_each_does() -> None:
    scope = scope_of([keys.topic_policies(T), keys.namespace_policies(ELSEWHERE.namespace_name)])
    assert scope.covers(PARTITION)
    assert scope.covers(ELSEWHERE)
    assert not scope.covers(NEIGHBOUR)
    assert scope_of([]) == Scope()
    assert scope_of([keys.tenant("a"), keys.CONFIGURATION]).everything


def test_only_topics_that_are_concerned_are_given_their_policies() -> None:
    async def story(world: World) -> None:
        one = await world.topic("persistent://public/default/one")
        two = await world.topic("persistent://public/default/two")
        policies = world.broker.policies
        await policies.update_topic(one.name, lambda document: document.update(messageTTLInSeconds=7))
        # A value that is not read stays as wrong as it is.
        two.limits.limits = Limits(ttl_s=99)
        await world.broker.apply_policies()
        assert (one.limits.limits.ttl_s, two.limits.limits.ttl_s) == (7, 99)
        await policies.update_namespace(
            NamespaceName.parse("public/default"),
            lambda document: document.update(max_topics_per_namespace=9),
        )
        await world.broker.apply_policies()
        assert (one.limits.limits.ttl_s, two.limits.limits.ttl_s) == (7, 0)

    in_world(story)


def test_a_topic_that_is_created_is_loaded_when_it_is_used() -> None:
    async def story(world: World) -> None:
        broker = world.broker
        await broker.policies.update_namespace(
            NamespaceName.parse("public/default"),
            lambda document: document.update(inactive_topic_policies={"deleteWhileInactive": False}),
        )
        name = TopicName.parse("persistent://public/default/new")
        await broker.create_topic(name, {"a": "b"})
        assert not broker.topics
        assert name in await broker.topics_of(name.namespace_name)
        topic = await broker.topic(name, create=False)
        assert topic.log.properties == {"a": "b"}

    in_world(story)
