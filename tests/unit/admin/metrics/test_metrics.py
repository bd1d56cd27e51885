"""What a scrape shows, and rates."""

from __future__ import annotations

import gzip
import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.admin.calls.compression import compressing
from magnetar.admin.calls.rates import Rates
from magnetar.admin.metrics.broker_metrics import registry_for
from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.service import BrokerConfig
from support.admin_api import AdminApi, T, with_api


class Subject:
    """Something that is counted."""


def test_others_have_their_turn_between_the_subscriptions_of_a_topic() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        registry = registry_for(api.broker)
        before = sum(1 for _ in registry.scrape())
        for number in range(80):
            await api.done("PUT", f"{T}/t/subscription/s{number}", "earliest")
        # They are read, and then written, four at a time.
        assert sum(1 for _ in registry.scrape()) >= before + 40

    with_api(story)


def test_a_scrape_shows_what_the_broker_holds() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", f"{T}/t/subscription/s", "earliest")
        await api.publish("t", b"1", b"2")
        answer = await api.call("GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        samples = {
            (sample.name, sample.labels.get("subscription")): sample
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
        }
        received = samples["pulsar_in_messages_total", None]
        assert received.value == 2
        assert received.labels == {
            "cluster": "standalone",
            "namespace": "public/default",
            "topic": "persistent://public/default/t",
        }
        assert samples["pulsar_subscription_back_log", "s"].value == 2
        assert samples["pulsar_topics_count", None].value == 1
        assert samples["pulsar_storage_size", None].value > 0
        assert samples["magnetar_in_flight_bytes", None].value == 0
        cache = samples["magnetar_cache_bytes", None].value
        assert 0 < cache <= samples["magnetar_cache_bytes_max", None].value
        assert samples["magnetar_metrics_series_dropped", None].value == 0

    with_api(story)


def test_topics_that_store_nothing_are_shown_with_what_they_drop() -> None:
    async def story(api: AdminApi) -> None:
        name = "non-persistent://public/default/t"
        topic = await api.broker.any_topic(TopicName.parse(name))
        await topic.subscription("s", initial_earliest=False, start=None, properties=None)
        answer = await api.call("GET", "/metrics")
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
            if sample.labels.get("topic") == name
        }
        assert samples["pulsar_subscriptions_count"] == 1
        assert samples["pulsar_subscription_msg_drop_rate"] == 0
        assert samples["pulsar_in_messages_total"] == 0
        assert not {"pulsar_storage_size", "pulsar_subscription_back_log"} & set(samples)

    with_api(story)


def test_rates_cover_the_time_since_the_last_answer() -> None:
    clock, subject = ManualClock(), Subject()
    rates, born_ms = Rates(clock, 0), clock.now_ms()
    clock.advance(2_000)
    assert rates.per_second(subject, (10,), born_ms) == [5.0]
    clock.advance(3_000)
    assert rates.per_second(subject, (40,), born_ms) == [10.0]
    clock.advance(1_000)
    assert rates.per_second(subject, (40,), born_ms) == [0.0]


def test_asking_often_does_not_shrink_the_window() -> None:
    clock, subject = ManualClock(), Subject()
    rates, born_ms = Rates(clock, 0), clock.now_ms()
    clock.advance(10_000)
    rates.per_second(subject, (10,), born_ms)
    clock.advance(1)
    assert rates.per_second(subject, (11,), born_ms) == [11 / 10.001]


def test_a_young_subject_is_not_fast() -> None:
    clock = ManualClock()
    clock.advance(1_001)
    assert Rates(clock, 0).per_second(Subject(), (3,), clock.now_ms() - 1) == [3.0]


@pytest.mark.parametrize("hours", [5, -5])
def test_a_clock_that_is_set_changes_no_rate(hours: int) -> None:
    clock, subject = ManualClock(), Subject()
    rates, born_ms = Rates(clock, 0), clock.now_ms()
    clock.advance(10_000)
    assert rates.per_second(subject, (1_000,), born_ms) == [100.0]
    clock.step(hours * 3_600_000)
    clock.advance(10_000)
    assert rates.per_second(subject, (3_000,), born_ms) == [200.0]


@pytest.mark.parametrize("hours", [5, -5])
def test_what_was_not_looked_at_before_the_clock_was_set_is_no_older_than_its_process(
    hours: int,
) -> None:
    clock = ManualClock()
    rates, born_ms = Rates(clock, 0), clock.now_ms()
    clock.step(hours * 3_600_000)
    clock.advance(20_000)
    assert rates.per_second(Subject(), (1_000,), born_ms) == [50.0]


def test_a_subject_that_is_gone_is_forgotten() -> None:
    rates, subject = Rates(ManualClock(), 0), Subject()
    rates.per_second(subject, (1,), 0)
    del subject
    assert len(rates) == 0


def samples_of(body: bytes) -> dict[tuple[str, str | None, str | None], float]:
    """By name, namespace and topic."""
    return {
        (sample.name, sample.labels.get("namespace"), sample.labels.get("topic")): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_of_very_many_topics_the_namespaces_are_shown() -> None:
    async def story(api: AdminApi) -> None:
        async def scraped() -> dict[tuple[str, str | None, str | None], float]:
            return samples_of((await api.call("GET", "/metrics")).body)

        for name in ("t1", "t2"):
            await api.done("PUT", f"{T}/{name}")
            await api.done("PUT", f"{T}/{name}/subscription/s", "earliest")
            await api.publish(name, b"1", b"2")
        each = await scraped()
        assert each["magnetar_metrics_topic_level", None, None] == 1
        assert each["pulsar_msg_backlog", "public/default", "persistent://public/default/t1"] == 2
        await api.done("PUT", f"{T}/t3")
        await api.done("PUT", f"{T}/t3/subscription/s", "earliest")
        sums = await scraped()
        assert not [key for key in sums if key[2] is not None]
        assert sums["magnetar_metrics_topic_level", None, None] == 0
        space = "public/default"
        assert sums["pulsar_topics_count", space, None] == 3
        assert sums["pulsar_subscriptions_count", space, None] == 3
        assert sums["pulsar_msg_backlog", space, None] == 4
        assert sums["pulsar_in_messages_total", space, None] == 4
        await api.done("PUT", f"{T}/t1/unload")
        await api.publish("t2", b"3")
        await api.topic("t1")
        later = await scraped()
        assert later["pulsar_in_messages_total", space, None] == 5, "a counter never goes back"
        assert later["pulsar_broker_topics_count", None, None] == 3
        assert later["pulsar_broker_subscriptions_count", None, None] == 3

    with_api(story, config=BrokerConfig(metrics_topics_max=2))


def test_a_namespace_without_topics_is_forgotten() -> None:
    async def story(api: AdminApi) -> None:
        await api.publish("t", b"1")
        await api.call("GET", "/metrics")
        await api.done("DELETE", f"{T}/t?force=true")
        found = samples_of((await api.call("GET", "/metrics")).body)
        left = {key: value for key, value in found.items() if key[1] is not None}
        # What is not loaded is counted for every namespace there is.
        assert not [key for key in left if not key[0].startswith("magnetar_unloaded_")]
        assert not any(left.values())

    with_api(story, config=BrokerConfig(metrics_topics_max=0))


def test_a_large_answer_is_compressed_in_pieces() -> None:
    body = random.Random(1).randbytes(300_000)
    pieces = list(compressing(body))
    assert len(pieces) > 2
    assert gzip.decompress(b"".join(pieces)) == body
    assert b"".join(compressing(body)) == b"".join(pieces)
