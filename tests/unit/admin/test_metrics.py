"""What a scrape shows, and rates."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from magnetar.admin.rates import Rates
from magnetar.base.names import TopicName
from support.admin_api import AdminApi, T, with_api


class Subject:
    """Something that is counted."""


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
    rates, subject = Rates(), Subject()
    assert rates.per_second(subject, (10,), 0, 2_000) == [5.0]
    assert rates.per_second(subject, (40,), 0, 5_000) == [10.0]
    assert rates.per_second(subject, (40,), 0, 6_000) == [0.0]


def test_asking_often_does_not_shrink_the_window() -> None:
    rates, subject = Rates(), Subject()
    rates.per_second(subject, (10,), 0, 10_000)
    assert rates.per_second(subject, (11,), 0, 10_001) == [11 / 10.001]


def test_a_young_subject_is_not_fast() -> None:
    assert Rates().per_second(Subject(), (3,), 1_000, 1_001) == [3.0]


def test_a_subject_that_is_gone_is_forgotten() -> None:
    rates, subject = Rates(), Subject()
    rates.per_second(subject, (1,), 0, 1_000)
    del subject
    assert len(rates) == 0
