"""Canaries: what counts as received, lost or refused, which namespaces have one, and that they sing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.base.errors import MetadataError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.canary.canaries import Canaries
from magnetar.broker.canary.canary_state import CanaryState
from magnetar.broker.canary.choice import CanarySettings, topic_of, wanted
from magnetar.broker.canary.lane import Lane
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.observability.metrics import Exposition
from support.admin_api import AdminApi, with_api

NAMESPACE = NamespaceName("public", "default")
TOPIC = "persistent://public/default/__canary"


# -- what became of messages ---------------------------------------------------------------------------


def test_each_message_counts_once() -> None:
    state = CanaryState(timeout_s=10)
    numbers = [state.begin(float(i)) for i in range(4)]
    for number in numbers[:2]:
        state.durable(number, number + 0.01)
    state.delivered(numbers[0], 0.02)
    state.delivered(numbers[0], 0.03)
    state.refuse(numbers[3], "the topic is closed")
    assert state.down(0.03) == "the topic is closed"
    assert state.expire(11.0) == 1
    assert state.expire(20.0) == 0
    # Late is lost, whatever comes of it.
    state.delivered(numbers[1], 30.0)
    state.check()
    assert (state.sent, state.received, state.lost, state.refused) == (4, 1, 1, 2)
    assert (state.publish.count, state.end_to_end.count) == (2, 1)


def test_it_is_well_again_with_the_next_message() -> None:
    state = CanaryState(timeout_s=1)
    state.durable(state.begin(0.0), 0.1)
    state.expire(2.0)
    assert state.down(2.0) == "not delivered within 1 s"
    state.delivered(state.begin(3.0), 3.1)
    assert state.down(3.1) == ""


def test_it_is_up_only_when_a_message_came_back_and_not_long_ago() -> None:
    state = CanaryState(timeout_s=10, interval_s=5)
    assert state.down(0.0) == "no message has come back yet"
    number = state.begin(0.0)
    state.durable(number, 0.1)
    # Acknowledged is not enough.
    assert state.down(0.1) == "no message has come back yet"
    state.delivered(number, 0.2)
    assert state.down(20.0) == ""
    # No round came: nothing was sent, so nothing could fail.
    assert state.down(20.5) == "nothing came back for 20 s"


@pytest.mark.parametrize(
    ("policies", "patterns", "expected"),
    [
        ({}, (), False),
        ({}, ("public/default",), True),
        ({}, ("public/*",), True),
        ({}, ("other/*",), False),
        ({"properties": {"canary": "true"}}, (), True),
        ({"properties": {"canary": "false"}}, ("*",), False),
    ],
)
def test_who_has_one(policies: dict[str, object], patterns: tuple[str, ...], expected: bool) -> None:
    assert wanted(NAMESPACE, policies, patterns) is expected


# -- on a broker -----------------------------------------------------------------------------------------


def story_of(
    tell: Callable[[AdminApi, Canaries], Awaitable[None]],
    *,
    namespaces: tuple[str, ...] = ("public/default",),
) -> None:
    async def story(api: AdminApi) -> None:
        # Rounds are asked for by the story, none comes by itself.
        canaries = Canaries(api.broker, CanarySettings(namespaces=namespaces, interval_s=3_600.0))
        await canaries.begin()
        await tell(api, canaries)

    with_api(story)


def figures(canaries: Canaries, namespace: str = str(NAMESPACE)) -> dict[str, float]:
    out = Exposition()
    list(canaries.collect(out))
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(out.render())
        for sample in family.samples
        if "bucket" not in sample.name and sample.labels["namespace"] == namespace
    }


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to be so")


async def sing(canaries: Canaries, received: int, namespace: str = str(NAMESPACE)) -> None:
    await canaries.round()
    await until(lambda: figures(canaries, namespace).get("magnetar_canary_received_total") == received)


def test_what_is_sent_comes_back() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        for count in (1, 2, 3):
            await sing(canaries, count)
        found = figures(canaries)
        assert found["magnetar_canary_sent_total"] == 3
        assert found["magnetar_canary_lost_total"] == found["magnetar_canary_refused_total"] == 0
        assert found["magnetar_canary_up"] == 1
        assert found["magnetar_canary_publish_seconds_count"] == 3
        assert found["magnetar_canary_end_to_end_seconds_count"] == 3

    story_of(tell)


def test_its_topic_is_nobodys() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        await sing(canaries, 1)
        lists = ("/admin/v2/namespaces/public/default/topics", "/admin/v2/persistent/public/default")
        for path in lists:
            assert TOPIC not in await api.get(path)
            assert TOPIC in await api.get(f"{path}?includeSystemTopic=true")
        topic = await api.topic(TOPIC)
        assert not [name for name, each in topic.subscriptions.items() if each.durable]

    story_of(tell)


def test_it_outlives_an_unload_and_goes_with_its_namespace() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        await sing(canaries, 1)
        await api.broker.unload(TopicName.parse(TOPIC))
        await sing(canaries, 2)
        await api.done("DELETE", "/admin/v2/namespaces/public/default")
        await canaries.round()
        assert figures(canaries) == {}

    story_of(tell)


def test_a_property_of_the_namespace_says_whether() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        await canaries.round()
        assert figures(canaries) == {}
        path = "/admin/v2/namespaces/public/default/property/canary"
        await api.done("PUT", f"{path}/true")
        await sing(canaries, 1)
        await api.done("PUT", f"{path}/false")
        await canaries.round()
        assert figures(canaries) == {}

    story_of(tell, namespaces=())


def test_others_on_its_topic_do_not_matter() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        await sing(canaries, 1)
        await api.publish("__canary", b"not a canary's", b"nor this")
        await sing(canaries, 2)
        assert figures(canaries)["magnetar_canary_sent_total"] == 2

    story_of(tell)


def test_what_is_refused_is_said() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        api.broker.registry.draining = True
        await canaries.round()
        found = figures(canaries)
        assert (found["magnetar_canary_refused_total"], found["magnetar_canary_up"]) == (1, 0)
        api.broker.registry.draining = False
        await sing(canaries, 1)
        assert figures(canaries)["magnetar_canary_up"] == 1

    story_of(tell)


def test_a_bug_on_its_way_is_a_failure_and_others_still_sing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        await api.done("PUT", "/admin/v2/namespaces/public/another")
        path = "/admin/v2/namespaces/public/another/property/canary"
        await api.done("PUT", f"{path}/true")
        healthy = Lane.open

        async def broken(self: Lane, topic: AnyTopic, now_ms: int) -> None:
            if str(topic.name) == TOPIC:
                raise TypeError("interpreted classes cannot inherit from compiled")
            await healthy(self, topic, now_ms)

        monkeypatch.setattr(Lane, "open", broken)
        await sing(canaries, 1, "public/another")
        assert figures(canaries, "public/another")["magnetar_canary_up"] == 1
        found = figures(canaries)
        assert (found["magnetar_canary_up"], found["magnetar_canary_refused_total"]) == (0, 1)
        monkeypatch.undo()
        await sing(canaries, 1)
        assert figures(canaries)["magnetar_canary_up"] == 1

    story_of(tell)


def test_where_clients_may_create_no_topic() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        rule = {"allowAutoTopicCreation": False}
        await api.done("POST", "/admin/v2/namespaces/public/default/autoTopicCreation", rule)
        await sing(canaries, 1)
        assert topic_of(NAMESPACE) == TopicName.parse(TOPIC)

    story_of(tell)


def test_namespaces_of_a_time_without_a_connection_are_examined_after_it() -> None:
    async def tell(api: AdminApi, canaries: Canaries) -> None:
        other = NamespaceName("public", "other")
        policies = api.broker.policies
        await sing(canaries, 1)
        api.store.away = True
        await policies.create_namespace(other, {})
        await policies.update_namespace(
            NAMESPACE, lambda document: document.update(properties={"canary": "false"})
        )
        await canaries.round()
        assert figures(canaries) != {}
        assert figures(canaries, str(other)) == {}
        api.store.back()
        children = api.store.children

        async def fails(path: str) -> list[str]:
            raise MetadataError("not now")

        api.store.children = fails  # type: ignore[method-assign]  # away again
        with pytest.raises(MetadataError):
            await canaries.round()
        api.store.children = children  # type: ignore[method-assign]  # and back
        await sing(canaries, 1, str(other))
        assert figures(canaries) == {}

    story_of(tell, namespaces=("public/*",))
