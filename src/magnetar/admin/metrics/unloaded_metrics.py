"""`/metrics` of topics that are not loaded.

Each has the metric names of loaded topics, so that alerts and `top` see it; namespaces have sums.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.service import Broker
from magnetar.managedlog.peeking import StoredSummary
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, labels

_PER_STEP: Final = 20
"""Topics or namespaces that are shown before the event loop gets a turn, about 0.5 ms."""


def collect(broker: Broker, out: Exposition) -> Iterator[None]:
    """Adds the values of the last check, without topics that were loaded since."""
    cluster = ("cluster", broker.config.cluster)
    seen, now_ms = broker.unloaded.seen, broker.clock.now_ms()
    for number, (namespace, sums) in enumerate(seen.sums.items(), 1):
        labelled = labels(cluster, ("namespace", namespace))
        for name, value in (
            ("magnetar_unloaded_topics", sums.topics),
            ("magnetar_unloaded_inexact_topics", sums.inexact),
            ("magnetar_unloaded_backlog_entries", sums.backlog_entries),
            ("magnetar_unloaded_storage_bytes", sums.size_bytes),
        ):
            out.gauge(name, text_of(name), value, labelled)
        if number % _PER_STEP == 0:
            yield
    name = "magnetar_unloaded_seen_age_seconds"
    age_s = (now_ms - (seen.at_ms or broker.started_ms)) / 1000
    out.gauge(name, text_of(name), max(0.0, age_s), labels(cluster))
    room = broker.config.metrics_topics_max - len(broker.topics)
    if room > 0:
        unloaded = [item for item in seen.topics.items() if item[0] not in broker.topics]
        chosen = heapq.nlargest(room, unloaded, key=lambda item: item[1].backlog_entries)
        for number, (topic, summary) in enumerate(chosen, 1):
            _collect_one(out, cluster, topic, summary, seen.behind.get(topic), now_ms)
            if number % _PER_STEP == 0:
                yield
    yield


def _collect_one(
    out: Exposition,
    cluster: tuple[str, str],
    topic: str,
    summary: StoredSummary,
    behind_ms: int | None,
    now_ms: int,
) -> None:
    namespace = str(TopicName.parse(topic).namespace_name)
    pairs = (cluster, ("namespace", namespace), ("topic", topic))
    labelled = labels(*pairs)
    for name, value in (
        ("pulsar_storage_size", summary.size_bytes),
        ("pulsar_storage_offloaded_size", summary.offloaded_bytes),
        ("pulsar_msg_backlog", summary.backlog_entries),
    ):
        out.gauge(name, text_of(name), value, labelled)
    if behind_ms is not None:
        name, lag_s = "magnetar_history_lag_seconds", max(0, now_ms - behind_ms) / 1000 if behind_ms else 0.0
        out.gauge(name, text_of(name), lag_s, labelled)
    for cursor in summary.cursors:
        own = labels(*pairs, ("subscription", cursor.name))
        age_s = max(0, now_ms - cursor.oldest_ms) / 1000 if cursor.oldest_ms else 0.0
        for name, amount in (
            ("pulsar_subscription_back_log", cursor.backlog_entries),
            ("magnetar_subscription_lag_messages", cursor.backlog_messages),
            ("magnetar_subscription_lag_bytes", cursor.backlog_bytes),
            ("magnetar_subscription_lag_seconds", age_s),
        ):
            out.gauge(name, text_of(name), amount, own)
