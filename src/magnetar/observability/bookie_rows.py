"""Metrics of bookies on the network. A metric with Apache's name has the same meaning there."""

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
            "Reads answered, including those that fence or wait; a batch of entries counts once.",
            _ONLY,
        ),
        counter("bookie_WRITE_BYTES", "bytes", (), "Bytes of entries written by clients.", _ONLY),
        counter("bookie_READ_BYTES", "bytes", (), "Bytes of entries read by clients.", _ONLY),
        counter(
            "bookie_journal_JOURNAL_SYNC_count",
            "",
            (),
            "Syncs, each of which made a group of entries durable.",
            _ONLY,
        ),
        gauge(
            "bookie_SERVER_STATUS",
            "",
            (),
            "1 while the bookie accepts entries, 0 while it is read-only.",
            _ONLY,
        ),
        gauge("bookie_ledger_writable_dirs", "", (), "Data folders that accept entries.", _ONLY),
        gauge("bookie_ledgers_count", "", (), "Ledgers with entries or a state on this bookie.", _ONLY),
        counter("bookie_DELETED_LEDGER_COUNT", "", (), "Ledgers deleted since the start.", _ONLY),
        gauge("magnetar_bookie_disk_bytes", "bytes", (), "Size of the disk.", _ONLY),
        gauge("magnetar_bookie_disk_free_bytes", "bytes", (), "Free bytes of the disk.", _ONLY),
        gauge("magnetar_bookie_connections", "", (), "Connections of ledger clients.", _ONLY),
        gauge("magnetar_bookie_pending_bytes", "bytes", (), "Bytes that are not durable yet.", _ONLY),
        gauge(
            "magnetar_bookie_ledgers_in_limbo",
            "",
            (),
            "Ledgers whose keys, fences or entries may be lost, until a repair restores them.",
            _ONLY,
        ),
    ),
)
