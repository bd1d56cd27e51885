"""The `/metrics` of a node of auto-recovery, under Apache's names where they exist."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition


def collect(node: AutoRecoveryNode, out: Exposition) -> Iterable[None]:
    """Adds the node's samples to a scrape."""

    def counter(name: str, value: int) -> None:
        out.counter(name, text_of(name), value)

    def gauge(name: str, value: int) -> None:
        out.gauge(name, text_of(name), value)

    auditor, worker, counts = node.auditor, node.worker, node.checks.counts
    gauge("magnetar_autorecovery_is_auditor", int(auditor.is_elected))
    if auditor.is_elected:
        delayed, called_off = auditor.delayed
        gauge("magnetar_autorecovery_lost_bookies", len(auditor.lost))
        counter("auditor_NUM_LEDGERS_CHECKED", counts.ledgers_checked)
        counter("auditor_NUM_BOOKIE_AUDITS_DELAYED", delayed)
        counter("auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", called_off)
        gauge("auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY", counts.not_adhering)
        gauge("auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY", counts.no_replica)
        gauge("auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY", counts.below_ack_quorum)
        gauge("auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY", counts.below_write_quorum)
    gauge("magnetar_autorecovery_marked_ledgers", worker.marked)
    counter("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", worker.repaired)
    counter("replication_worker_NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED", worker.placed)
    counter("replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER", worker.deferred)
    counter("replication_worker_NUM_ENTRIES_READ", node.replicator.entries_read)
    counter("replication_worker_NUM_ENTRIES_WRITTEN", node.replicator.entries_copied)
    counter("magnetar_autorecovery_copied_bytes_total", node.replicator.bytes_copied)
    counter("magnetar_autorecovery_failures_total", worker.failed)
    yield
