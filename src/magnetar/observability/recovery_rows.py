"""Metrics of nodes of auto-recovery. A metric with Apache's name has the same meaning there."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section, counter, gauge

_ONLY: Final = "of `magnetar autorecovery` (docs/auto-recovery.md)"
_AUDITOR: Final = "of the `magnetar autorecovery` that is the auditor (docs/auto-recovery.md)"

AUTORECOVERY: Final = Section(
    "Auto-recovery",
    (
        gauge("magnetar_autorecovery_is_auditor", "", (), "1 while this node is the auditor, else 0.", _ONLY),
        gauge(
            "magnetar_autorecovery_lost_bookies",
            "",
            (),
            "Registered bookies that are not available.",
            _AUDITOR,
        ),
        gauge(
            "magnetar_autorecovery_marked_ledgers",
            "",
            (),
            "Ledgers that lacked copies when this node last read the list.",
            _ONLY,
        ),
        counter("auditor_NUM_LEDGERS_CHECKED", "", (), "Ledgers checked by complete checks.", _AUDITOR),
        counter(
            "auditor_NUM_BOOKIE_AUDITS_DELAYED",
            "",
            (),
            "Audits delayed because a single bookie was lost.",
            _AUDITOR,
        ),
        counter(
            "auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED",
            "",
            (),
            "Delayed audits that were cancelled because the bookie came back.",
            _AUDITOR,
        ),
        gauge(
            "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY",
            "",
            (),
            "Ledgers with copies in too few racks at the last check.",
            _AUDITOR,
        ),
        gauge(
            "auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY",
            "",
            (),
            "Ledgers with an entry that no bookie had at the last check of replicas.",
            _AUDITOR,
        ),
        gauge(
            "auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY",
            "",
            (),
            "Other ledgers with an entry that had fewer copies than its ack quorum at the last check of "
            "replicas.",
            _AUDITOR,
        ),
        gauge(
            "auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY",
            "",
            (),
            "Other ledgers with an entry that had fewer copies than its write quorum at the last check of "
            "replicas.",
            _AUDITOR,
        ),
        counter(
            "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
            "",
            (),
            "Ledgers that this node repaired, or found complete.",
            _ONLY,
        ),
        counter(
            "replication_worker_NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED",
            "",
            (),
            "Ledgers whose copies this node moved to other racks.",
            _ONLY,
        ),
        counter(
            "replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",
            "",
            (),
            "Open ledgers that were left to their writer for a while.",
            _ONLY,
        ),
        counter("replication_worker_NUM_ENTRIES_READ", "entries", (), "Entries read to be copied.", _ONLY),
        counter("replication_worker_NUM_ENTRIES_WRITTEN", "entries", (), "Copies of entries written.", _ONLY),
        counter(
            "magnetar_autorecovery_copied_bytes_total",
            "bytes",
            (),
            "Bytes of payload in the copies written.",
            _ONLY,
        ),
        counter(
            "magnetar_autorecovery_failures_total",
            "",
            (),
            "Failed repairs of ledgers; each is tried again.",
            _ONLY,
        ),
    ),
)
