"""Metrics of the ledger client: of a process that keeps ledgers on several bookies."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section, counter, gauge, histogram

_ONLY: Final = "with ledgers on several bookies (docs/replicated-storage.md)"

LEDGER_CLIENT: Final = Section(
    "Ledger client",
    (
        counter(
            "magnetar_ledger_client_adds_total",
            "entries",
            ("success",),
            "Copies of entries sent to bookies, by the bookie's answer.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_reads_total",
            "",
            ("success",),
            "Requests other than adds, by the bookie's answer.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_batch_reads_total", "", (), "Reads that returned several entries.", _ONLY
        ),
        counter(
            "magnetar_ledger_client_speculative_reads_total",
            "",
            (),
            "Reads of another copy because the first bookie did not answer in time.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_bad_copies_total",
            "",
            (),
            "Copies that were missing or damaged when they were read, and were rewritten.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_ensemble_changes_total",
            "",
            (),
            "Changes of an ensemble, to replace failed bookies.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_recoveries_total",
            "",
            (),
            "Ledgers of other writers that were fenced and closed.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_metadata_conflicts_total",
            "",
            (),
            "Writes of a ledger's metadata that conflicted with another write, or whose outcome was unknown.",
            _ONLY,
        ),
        gauge(
            "magnetar_ledger_client_bookies_quarantined",
            "",
            (),
            "Bookies that get no new ensembles because they failed or were slow too often.",
            _ONLY,
        ),
        gauge("magnetar_ledger_client_connections", "", (), "Connections to bookies.", _ONLY),
        histogram(
            "magnetar_ledger_client_add_seconds",
            (),
            "Time from sending a group of entries to one bookie until the bookie has acknowledged all of "
            "them.",
            _ONLY,
        ),
        histogram("magnetar_ledger_client_read_seconds", (), "Time until a bookie answers a read.", _ONLY),
    ),
)
