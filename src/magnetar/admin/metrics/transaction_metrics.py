"""`/metrics` of transactions."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.broker.service import Broker
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, labels


def collect(broker: Broker, out: Exposition) -> Iterator[None]:
    """Adds the samples of every coordinator that has begun a transaction."""
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
