"""`/metrics` of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar.broker.service import Broker
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, labels

_TOPICS_PER_STEP: Final = 200


def collect(broker: Broker, out: Exposition) -> Iterator[None]:
    """Adds the samples of every coordinator that has begun a transaction, and of the topics of such."""
    if not broker.transactions.enabled:
        return
    cluster = ("cluster", broker.config.cluster)
    now_ms, oldest_ms, unresolved = broker.clock.monotonic_ms(), 0.0, 0
    for number, coordinator in sorted(broker.transactions.coordinators.items()):
        counts, labelled = coordinator.counts, labels(cluster, ("coordinator_id", str(number)))
        name = "pulsar_txn_active_count"
        out.gauge(name, text_of(name), coordinator.open_count, labelled)
        for name, value in (
            ("pulsar_txn_created_total", counts.created),
            ("pulsar_txn_committed_total", counts.committed),
            ("pulsar_txn_aborted_total", counts.aborted),
            ("pulsar_txn_timeout_total", counts.timed_out),
        ):
            out.counter(name, text_of(name), value, labelled)
        name, times = "magnetar_transaction_seconds", counts.open_s
        out.histogram(name, text_of(name), times.bounds, times.counts, times.sum_s, labelled)
        oldest_ms = max(oldest_ms, coordinator.oldest_ms(now_ms))
        unresolved += len(coordinator.transactions) - coordinator.open_count
        yield
    name = "magnetar_transaction_oldest_seconds"
    out.gauge(name, text_of(name), oldest_ms / 1_000, labels(cluster))
    name = "magnetar_transactions_unresolved"
    out.gauge(name, text_of(name), unresolved, labels(cluster))
    yield
    topics = list(broker.topics.values())
    if len(topics) > broker.config.metrics_topics_max:
        return
    for number, topic in enumerate(topics, 1):
        if (part := topic.transactions) is not None:
            namespace = ("namespace", str(topic.name.namespace_name))
            labelled = labels(cluster, namespace, ("topic", str(topic.name)))
            name = "pulsar_txn_tb_active_total"
            out.gauge(name, text_of(name), len(part.spans), labelled)
            for name, value in (
                ("pulsar_txn_tb_committed_total", part.committed),
                ("pulsar_txn_tb_aborted_total", part.aborted),
            ):
                out.counter(name, text_of(name), value, labelled)
        if number % _TOPICS_PER_STEP == 0:
            yield
