"""Metrics of bookies on the network. Those under Apache's names mean what they mean there."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section, counter, gauge

_ONLY: Final = "of `magnetar bookie` (docs/bookkeeper.md)"

BOOKIES: Final = Section(
    "Bookies",
    (
        counter("bookkeeper_server_ADD_ENTRY_count", "entries", ("success",), "Adds answered.", _ONLY),
        counter(
            "bookkeeper_server_READ_ENTRY_count",
            "",
            ("success",),
            "Reads answered, those that fence or wait as well; a batch of entries is one.",
            _ONLY,
        ),
        counter("bookie_WRITE_BYTES", "bytes", (), "Bytes of entries taken.", _ONLY),
        counter("bookie_READ_BYTES", "bytes", (), "Bytes of entries given.", _ONLY),
        counter(
            "bookie_journal_JOURNAL_SYNC_count",
            "",
            (),
            "Times that the disk made a group of entries durable.",
            _ONLY,
        ),
        gauge("bookie_SERVER_STATUS", "", (), "1 while the bookie takes entries, 0 while read-only.", _ONLY),
        gauge("bookie_ledger_writable_dirs", "", (), "Data folders that take entries.", _ONLY),
        gauge("bookie_ledgers_count", "", (), "Ledgers that have entries or a state here.", _ONLY),
        counter("bookie_DELETED_LEDGER_COUNT", "", (), "Ledgers whose entries went since the start.", _ONLY),
        gauge("magnetar_bookie_disk_bytes", "bytes", (), "Size of the disk.", _ONLY),
        gauge("magnetar_bookie_disk_free_bytes", "bytes", (), "What is free of it.", _ONLY),
        gauge("magnetar_bookie_connections", "", (), "Connections of ledger clients.", _ONLY),
        gauge("magnetar_bookie_pending_bytes", "bytes", (), "Bytes that are not durable yet.", _ONLY),
        gauge(
            "magnetar_bookie_ledgers_in_limbo",
            "",
            (),
            "Ledgers whose keys, fences or entries may be lost: a repair must make them good.",
            _ONLY,
        ),
    ),
)
