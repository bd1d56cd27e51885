"""`/metrics` of a broker with very many topics: the sums of each namespace, under the same names.

A monitoring system can hold series per topic only for a bounded number of topics. Beyond `metrics_topics_max`
topics the labels `topic` and `subscription` are left out, as in Pulsar with
`exposeTopicLevelMetricsInPrometheus=false`. Counters never decrease: when a topic is unloaded, its namespace
keeps its counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from magnetar.admin.calls.rates import Rates
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.topic import Topic
from magnetar.observability.metrics import Exposition, labels

_TOPICS_PER_STEP: Final = 20
"""Topics that are summed before the event loop gets a turn, about 0.1 ms."""

_GAUGES: Final = (
    ("pulsar_topics_count", "Topics loaded by this broker."),
    ("pulsar_subscriptions_count", "Subscriptions of the topic."),
    ("pulsar_producers_count", "Producers connected to the topic."),
    ("pulsar_consumers_count", "Consumers connected to the topic."),
    ("pulsar_storage_size", "Bytes of the topic's durable entries."),
    (
        "pulsar_storage_offloaded_size",
        "Bytes of the topic's durable entries that have a copy in an object store.",
    ),
    ("pulsar_msg_backlog", "Entries that the slowest durable subscription has not acknowledged."),
    ("magnetar_pending_bytes", "Bytes appended to the topic's log that are not durable yet."),
)
_COUNTERS: Final = (
    ("pulsar_in_messages_total", "Messages published."),
    ("pulsar_in_bytes_total", "Bytes published."),
    ("pulsar_out_messages_total", "Messages delivered."),
    ("pulsar_out_bytes_total", "Bytes delivered."),
)
_RATES: Final = (
    ("pulsar_rate_in", "Messages published per second since the last scrape."),
    ("pulsar_throughput_in", "Bytes published per second since the last scrape."),
)


class _Namespace:
    """The sums of one namespace."""

    __slots__ = ("__weakref__", "counters", "gauges", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.gauges = [0] * len(_GAUGES)
        self.counters = [0] * len(_COUNTERS)


class NamespaceSums:
    """The namespaces of one broker, between scrapes."""

    def __init__(self, cluster: str, since_ms: int, rates: Rates) -> None:
        """`since_ms`: when everything was 0, the broker's start."""
        self._cluster = cluster
        self._since_ms = since_ms
        self._namespaces: dict[str, _Namespace] = {}
        self._counted: WeakKeyDictionary[AnyTopic, tuple[int, ...]] = WeakKeyDictionary()
        """Counters of each topic at the last scrape, without topics whose counters are 0."""
        self._rates = rates

    def collect(self, topics: list[AnyTopic], out: Exposition) -> Iterator[None]:
        """Adds the sums to a scrape; yields where the event loop may get a turn."""
        found: dict[str, _Namespace] = {}
        for number, topic in enumerate(topics, 1):
            name = str(topic.name.namespace_name)
            namespace = found.get(name)
            if namespace is None:
                namespace = found[name] = self._namespaces.get(name) or _Namespace(self._since_ms)
                namespace.gauges = [0] * len(_GAUGES)
            self._add(topic, namespace)
            if number % _TOPICS_PER_STEP == 0:
                yield
        # One without topics is not shown any more, and begins anew.
        self._namespaces = found
        for name, namespace in sorted(found.items()):
            self._show(namespace, labels(("cluster", self._cluster), ("namespace", name)), out)
            yield

    def _add(self, topic: AnyTopic, namespace: _Namespace) -> None:
        gauges = namespace.gauges
        subscriptions = topic.subscriptions.values()
        gauges[0] += 1
        gauges[2] += len(topic.producers)
        messages_out = bytes_out = 0
        if subscriptions:
            gauges[1] += len(subscriptions)
            for subscription in subscriptions:
                gauges[3] += len(subscription.consumers)
                messages_out += subscription.messages_out
                bytes_out += subscription.bytes_out
        if isinstance(topic, Topic):
            gauges[4] += topic.log.size_bytes
            gauges[5] += topic.log.offloading.offloaded_bytes
            for each in topic.subscriptions.values():
                if each.durable:
                    gauges[6] += each.backlog_entries
            gauges[7] += topic.log.pending_bytes
        counted = (topic.messages_in, topic.bytes_in, messages_out, bytes_out)
        if any(counted):
            before = self._counted.get(topic, (0, 0, 0, 0))
            for i, (now, then) in enumerate(zip(counted, before, strict=True)):
                # Less than before: a subscription was deleted with what it had counted.
                namespace.counters[i] += max(0, now - then)
            self._counted[topic] = counted

    def _show(self, namespace: _Namespace, labelled: str, out: Exposition) -> None:
        for (name, text), gauge in zip(_GAUGES, namespace.gauges, strict=True):
            out.gauge(name, text, gauge, labelled)
        for (name, text), counter in zip(_COUNTERS, namespace.counters, strict=True):
            out.counter(name, text, counter, labelled)
        published = (namespace.counters[0], namespace.counters[1])
        rates = self._rates.per_second(namespace, published, namespace.since_ms)
        for (name, text), rate in zip(_RATES, rates, strict=True):
            out.gauge(name, text, rate, labelled)
