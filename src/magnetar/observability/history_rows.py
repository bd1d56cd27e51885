"""Metrics of history in object stores, and of the tables over it."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section
from magnetar.observability.rows import counter as _c
from magnetar.observability.rows import gauge as _g
from magnetar.observability.rows import histogram as _h

_OFF: Final = "with an object store (docs/tiered-storage.md)"
_LAKE: Final = "with Iceberg tables (docs/lake.md)"

OFFLOADING: Final = Section(
    "Offloading",
    (
        _c("magnetar_offloaded_ledgers_total", "", (), "Ledgers copied and compared.", _OFF),
        _c("magnetar_offloaded_bytes_total", "bytes", (), "Bytes of their entries.", _OFF),
        _c("magnetar_offloaded_object_bytes_total", "bytes", (), "Bytes of the objects written.", _OFF),
        _c("magnetar_offload_local_deleted_total", "", (), "Ledgers taken from the bookies.", _OFF),
        _c("magnetar_offload_orphans_total", "", (), "Objects that no log named, deleted.", _OFF),
        _c("magnetar_offload_merged_total", "", (), "Small objects that became larger ones.", _OFF),
        _g(
            "magnetar_offload_objects_kept",
            "",
            (),
            "Objects that no log names, from before this owner.",
            _OFF,
        ),
        _g(
            "magnetar_offload_stores_read_only",
            "",
            (),
            "Object stores that are another installation's: nothing is offloaded to them or deleted.",
            _OFF,
        ),
        _g(
            "magnetar_history_lag_seconds",
            "seconds",
            ("cluster", "namespace", "topic"),
            "Age of the oldest message that is not in the object store, of topics with an offload policy."
            " Of topics that are not loaded at least so much.",
            _OFF,
        ),
        _g("magnetar_offload_share", "ratio", (), "Share of time that offloading takes now.", _OFF),
        _c("brk_ledgeroffloader_offload_error", "", (), "Offloads of a ledger that failed.", _OFF),
        _c("brk_ledgeroffloader_write_storage_error", "", (), "Writes to a store that failed.", _OFF),
        _c("brk_ledgeroffloader_read_offload_error", "", (), "Reads of copies that failed.", _OFF),
        _c("brk_ledgeroffloader_read_bytes", "bytes", (), "Bytes of entries read from copies.", _OFF),
        _c("brk_ledgeroffloader_delete_offload_ops", "", ("status",), "Objects deleted.", _OFF),
        _h("brk_ledgeroffloader_read_offload_data_latency_seconds", (), "Reads of copies.", _OFF),
        _h("brk_ledgeroffloader_read_offload_index_latency_seconds", (), "Look-ups in copies.", _OFF),
        _h("brk_ledgeroffloader_read_ledger_latency_seconds", (), "Reads of ledgers to be copied.", _OFF),
    ),
)

TABLES: Final = Section(
    "Iceberg tables",
    (
        _c("magnetar_lake_commits_total", "", (), "Snapshots written to Iceberg tables.", _LAKE),
        _c("magnetar_lake_files_added_total", "", (), "Files added to them.", _LAKE),
        _c("magnetar_lake_files_removed_total", "", (), "Files taken from them.", _LAKE),
        _c("magnetar_lake_errors_total", "", (), "Tables that could not be brought up to date.", _LAKE),
        _c("magnetar_lake_foreign_snapshots_total", "", (), "Snapshots that others wrote to them.", _LAKE),
        _c("magnetar_lake_files_restored_total", "", (), "Files that these took out, put back.", _LAKE),
        _g(
            "magnetar_lake_files_gone",
            "",
            (),
            "Objects that stored lists name and that are not in the store.",
            _LAKE,
        ),
    ),
)
