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
            "Copies of entries that bookies took, or answers that were none.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_reads_total",
            "",
            ("success",),
            "Requests other than adds that bookies answered, or did not.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_batch_reads_total", "", (), "Reads that brought several entries.", _ONLY
        ),
        counter(
            "magnetar_ledger_client_speculative_reads_total",
            "",
            (),
            "Copies that were asked for because another one did not come.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_bad_copies_total",
            "",
            (),
            "Copies that were missing or damaged when they were read, and were written again.",
            _ONLY,
        ),
        counter(
            "magnetar_ledger_client_ensemble_changes_total",
            "",
            (),
            "Times that failed bookies were to be replaced.",
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
            "Writes of a ledger's metadata that met another one, or whose outcome was not known.",
            _ONLY,
        ),
        gauge(
            "magnetar_ledger_client_bookies_quarantined",
            "",
            (),
            "Bookies that new ensembles leave out because they failed or were slow too often.",
            _ONLY,
        ),
        gauge("magnetar_ledger_client_connections", "", (), "Connections to bookies.", _ONLY),
        histogram(
            "magnetar_ledger_client_add_seconds",
            (),
            "From a group of entries to one bookie until it has acknowledged all of them.",
            _ONLY,
        ),
        histogram("magnetar_ledger_client_read_seconds", (), "Until a bookie answers a read.", _ONLY),
    ),
)
