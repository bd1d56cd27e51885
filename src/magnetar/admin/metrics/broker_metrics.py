"""`/metrics`: values of the broker's objects, under Pulsar's metric names where they exist.

Read at scrape time; nothing is counted here. Names that begin with `magnetar_` are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar.admin.calls.call import Call, Handler, Raw
from magnetar.admin.calls.rates import Rates
from magnetar.admin.metrics import transaction_metrics, unloaded_metrics, work_metrics
from magnetar.admin.metrics.namespace_metrics import NamespaceSums
from magnetar.broker.canary.choice import LOCAL_NAME as CANARY
from magnetar.broker.nonpersistent.nonpersistent_subscription import NonPersistentSubscription
from magnetar.broker.service import Broker
from magnetar.broker.subscription.any_subscription import AnySubscription
from magnetar.broker.subscription.lag import Lag, Lags
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.topic import Topic
from magnetar.observability import logs, process
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import CONTENT_TYPE, Exposition, Registry, labels
from magnetar.runtime.flights import NextFlight
from magnetar.runtime.scraping import encoded

_SUBSCRIPTIONS_PER_STEP: Final = 4
"""Subscriptions of one topic in a step; a topic may have thousands."""
_TOPICS_PER_STEP: Final = 50
"""Topics that are counted in a step."""


def registry_for(broker: Broker) -> Registry:
    """The metrics of this process and its broker. Totals come first, so that the limit of series cuts
    topics."""
    rates, lags = Rates(broker.clock, broker.clock_watch.began_ms), Lags(broker.clock, broker.tasks.spawn)
    sums = NamespaceSums(
        broker.config.cluster, broker.started_ms, Rates(broker.clock, broker.clock_watch.began_ms)
    )
    registry = Registry()
    registry.collector(process.collect)
    registry.collector(logs.collect)
    registry.collector(lambda exposition: _collect_broker(broker, exposition))
    registry.collector(lambda exposition: work_metrics.collect(broker, exposition))
    registry.collector(lambda exposition: transaction_metrics.collect(broker, exposition))
    for collect in broker.collectors:
        registry.collector(collect)
    registry.collector(lambda exposition: _collect_topics(broker, rates, lags, sums, exposition))
    registry.collector(lambda exposition: unloaded_metrics.collect(broker, exposition))
    return registry


def handler_for(registry: Registry) -> Handler:
    """The handler of `/metrics`: of this process, or on a port that several share of all of them. One scrape
    is made at a time, for all that wait for it: each would take half a millisecond of every turn of the
    loop."""
    scrapes = NextFlight(lambda: encoded(registry))

    async def scrape(call: Call) -> object:
        siblings = call.broker.siblings
        shared = None if siblings is None else siblings.metrics
        if shared is not None and call.service.http_port in shared.ports:
            return Raw((await shared.scraped()).encode(), CONTENT_TYPE)
        return Raw(await scrapes.landing(), CONTENT_TYPE)

    return scrape


def _collect_broker(broker: Broker, out: Exposition) -> Iterator[None]:
    cluster = labels(("cluster", broker.config.cluster))
    topics = _topics(broker)
    subscriptions = producers = consumers = 0
    for number, topic in enumerate(topics, 1):
        producers += len(topic.producers)
        if topic.subscriptions:
            subscriptions += len(topic.subscriptions)
            consumers += sum(len(subscription.consumers) for subscription in topic.subscriptions.values())
        if number % _TOPICS_PER_STEP == 0:
            yield
    out.gauge("pulsar_broker_topics_count", "Topics loaded by this broker.", len(topics), cluster)
    out.gauge(
        "pulsar_broker_subscriptions_count",
        "Subscriptions of loaded topics.",
        subscriptions,
        cluster,
    )
    out.gauge("pulsar_broker_producers_count", "Producers connected.", producers, cluster)
    out.gauge("pulsar_broker_consumers_count", "Consumers connected.", consumers, cluster)
    out.gauge("pulsar_active_connections", "Connections of clients.", len(broker.sessions), cluster)
    out.counter(
        "magnetar_clock_steps_total",
        "Times that the clock was set by more than two seconds.",
        broker.clock_watch.steps,
        cluster,
    )
    out.gauge(
        "magnetar_in_flight_bytes",
        "Bytes read from producers that are not durable yet.",
        broker.intake.bytes_used,
        cluster,
    )
    out.gauge(
        "magnetar_in_flight_bytes_max",
        "Budget of magnetar_in_flight_bytes; above it the broker stops reading from producers.",
        broker.config.in_flight_bytes_max,
        cluster,
    )
    out.gauge(
        "magnetar_output_bytes", "Bytes that wait to be sent to clients.", broker.outputs.count(), cluster
    )
    out.gauge(
        "magnetar_output_bytes_max",
        "Budget of magnetar_output_bytes; when little of it is free, clients with much "
        "waiting output get less.",
        broker.outputs.bytes_max,
        cluster,
    )
    out.gauge(
        "magnetar_output_waiting_connections",
        "Connections that get no more output until magnetar_output_bytes is below its budget.",
        broker.outputs.waiting,
        cluster,
    )
    budget = broker.logs.cache_budget
    out.gauge("magnetar_cache_bytes", "Bytes of entries in the tail cache.", budget.bytes_used, cluster)
    out.gauge("magnetar_cache_bytes_max", "Budget of magnetar_cache_bytes.", budget.bytes_max, cluster)
    out.gauge("magnetar_broker_draining", "1 while the broker shuts down.", int(broker.draining), cluster)
    _collect_tenants(broker, out)


def _collect_tenants(broker: Broker, out: Exposition) -> None:
    for tenant, mark in broker.stored.marks.items():
        if mark.limit:
            whose = labels(("cluster", broker.config.cluster), ("tenant", tenant))
            out.gauge(
                "magnetar_tenant_stored_bytes",
                "Bytes that a tenant stores over all its topics, offloaded ones included.",
                mark.stored,
                whose,
            )
            out.gauge(
                "magnetar_tenant_stored_bytes_max",
                "Limit of magnetar_tenant_stored_bytes; above it the tenant's producers are refused.",
                mark.limit,
                whose,
            )


def _topics(broker: Broker) -> list[AnyTopic]:
    return [*broker.topics.values(), *broker.nonpersistent.topics.values()]


def _collect_topics(
    broker: Broker, rates: Rates, lags: Lags, sums: NamespaceSums, out: Exposition
) -> Iterator[None]:
    topics = _topics(broker)
    each = len(topics) <= broker.config.metrics_topics_max
    out.gauge(
        "magnetar_metrics_topic_level",
        "1 while topics have series of their own, 0 while only namespaces have series.",
        int(each),
        labels(("cluster", broker.config.cluster)),
    )
    if not each:
        yield from sums.collect(topics, out)
        return
    per_namespace: dict[str, int] = {}
    for topic in topics:
        namespace = str(topic.name.namespace_name)
        per_namespace[namespace] = per_namespace.get(namespace, 0) + 1
        if topic.name.local == CANARY:
            # What it says stands in metrics of its own, and would be noise among what clients do.
            continue
        pairs = (("cluster", broker.config.cluster), ("namespace", namespace), ("topic", str(topic.name)))
        yield from _collect_topic(topic, pairs, rates, lags, out)
        if broker.offloading is not None and isinstance(topic, Topic):
            lag_ms = broker.offloading.lag_ms(topic.log.offloading)
            if lag_ms is not None:
                name = "magnetar_history_lag_seconds"
                out.gauge(name, text_of(name), lag_ms / 1000, labels(*pairs))
        yield
    for namespace, count in sorted(per_namespace.items()):
        out.gauge(
            "pulsar_topics_count",
            "Topics loaded by this broker.",
            count,
            labels(("cluster", broker.config.cluster), ("namespace", namespace)),
        )


def _collect_topic(
    topic: AnyTopic,
    pairs: tuple[tuple[str, str], ...],
    rates: Rates,
    lags: Lags,
    out: Exposition,
) -> Iterator[None]:
    """Adds a topic's samples; yields between some of its subscriptions."""
    labelled = labels(*pairs)
    subscriptions = list(topic.subscriptions.items())
    rate_in, bytes_in = rates.per_second(topic, (topic.messages_in, topic.bytes_in), topic.created_ms)
    rate_out = bytes_out = 0.0
    behind: list[Lag] = []
    values_of = []
    for number, (name, subscription) in enumerate(subscriptions, 1):
        if number % _SUBSCRIPTIONS_PER_STEP == 0:
            yield
        values = _subscription_values(subscription, topic.created_ms, rates)
        rate_out += values["pulsar_subscription_msg_rate_out"]
        bytes_out += values["pulsar_subscription_msg_throughput_out"]
        if isinstance(topic, Topic) and isinstance(subscription, Subscription):
            lag = lags.of(subscription, topic.log)
            if lag is not None:
                values["magnetar_subscription_lag_messages"] = lag.messages
                values["magnetar_subscription_lag_bytes"] = lag.bytes
                values["magnetar_subscription_lag_seconds"] = lag.seconds
                if subscription.durable:
                    behind.append(lag)
        values_of.append((name, values))
    gauges: dict[str, float] = {
        "pulsar_subscriptions_count": len(subscriptions),
        "pulsar_producers_count": len(topic.producers),
        "pulsar_consumers_count": sum(len(subscription.consumers) for _, subscription in subscriptions),
        "pulsar_rate_in": rate_in,
        "pulsar_throughput_in": bytes_in,
        "pulsar_rate_out": rate_out,
        "pulsar_throughput_out": bytes_out,
        "pulsar_average_msg_size": bytes_in / rate_in if rate_in else 0.0,
    }
    if isinstance(topic, Topic):
        durable = [sub.backlog_entries for _, sub in subscriptions if sub.durable]
        gauges["pulsar_storage_size"] = topic.log.size_bytes
        gauges["pulsar_storage_offloaded_size"] = topic.log.offloading.offloaded_bytes
        gauges["pulsar_msg_backlog"] = max(durable, default=0)
        gauges["pulsar_storage_backlog_size"] = max((lag.bytes for lag in behind), default=0)
        gauges["pulsar_storage_backlog_age_seconds"] = max((lag.seconds for lag in behind), default=0.0)
        gauges["magnetar_pending_bytes"] = topic.log.pending_bytes
    for name, value in gauges.items():
        out.gauge(name, text_of(name), value, labelled)
    sent = [subscription for _, subscription in subscriptions]
    for name, count in (
        ("pulsar_in_messages_total", topic.messages_in),
        ("pulsar_in_bytes_total", topic.bytes_in),
        ("pulsar_out_messages_total", sum(sub.messages_out for sub in sent)),
        ("pulsar_out_bytes_total", sum(sub.bytes_out for sub in sent)),
    ):
        out.counter(name, text_of(name), count, labelled)
    yield from _write_subscriptions(pairs, values_of, out)


def _write_subscriptions(
    pairs: tuple[tuple[str, str], ...], values_of: list[tuple[str, dict[str, float]]], out: Exposition
) -> Iterator[None]:
    for number, (name, values) in enumerate(values_of, 1):
        if number % _SUBSCRIPTIONS_PER_STEP == 0:
            yield
        of_subscription = labels(*pairs, ("subscription", name))
        for metric, value in values.items():
            out.gauge(metric, text_of(metric), value, of_subscription)


def _subscription_values(subscription: AnySubscription, since_ms: int, rates: Rates) -> dict[str, float]:
    """Gauges of one subscription; only those that its kind has."""
    consumers = subscription.consumers
    counters = [subscription.messages_out, subscription.bytes_out]
    if isinstance(subscription, NonPersistentSubscription):
        counters.append(subscription.messages_dropped)
    rate_out, bytes_out, *dropped = rates.per_second(subscription, tuple(counters), since_ms)
    values: dict[str, float] = {
        "pulsar_subscription_consumers_count": len(consumers),
        "pulsar_subscription_msg_rate_out": rate_out,
        "pulsar_subscription_msg_throughput_out": bytes_out,
    }
    if dropped:
        values["pulsar_subscription_msg_drop_rate"] = dropped[0]
        return values
    backlog, unacked = subscription.backlog_entries, sum(map(subscription.unacked_of, consumers))
    delayed = subscription.delayed_entries if isinstance(subscription, Subscription) else 0
    return {
        "pulsar_subscription_back_log": backlog,
        "pulsar_subscription_back_log_no_delayed": max(0, backlog - delayed),
        "pulsar_subscription_delayed": delayed,
        "pulsar_subscription_unacked_messages": unacked,
        # A consumer without unacknowledged messages is not blocked: the check costs only where it may be.
        "pulsar_subscription_blocked_on_unacked_messages": int(unacked > 0 and subscription.view().blocked),
        **values,
    }
