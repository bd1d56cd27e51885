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
        _c(
            "magnetar_offloaded_ledgers_total",
            "",
            (),
            "Ledgers that were offloaded: copied and compared.",
            _OFF,
        ),
        _c("magnetar_offloaded_bytes_total", "bytes", (), "Bytes of entries in offloaded ledgers.", _OFF),
        _c(
            "magnetar_offloaded_object_bytes_total",
            "bytes",
            (),
            "Bytes of objects written for offloaded ledgers.",
            _OFF,
        ),
        _c(
            "magnetar_offload_local_deleted_total",
            "",
            (),
            "Offloaded ledgers that were deleted from the message store.",
            _OFF,
        ),
        _c(
            "magnetar_offload_orphans_total",
            "",
            (),
            "Objects that were deleted because no log named them.",
            _OFF,
        ),
        _c("magnetar_offload_merged_total", "", (), "Small objects that were merged into larger ones.", _OFF),
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
            "Object stores of another installation, to which this broker neither writes nor deletes.",
            _OFF,
        ),
        _g(
            "magnetar_history_lag_seconds",
            "seconds",
            ("cluster", "namespace", "topic"),
            "Age of the oldest message that is not in the object store, for topics with an offload policy; "
            "a lower bound for topics that are not loaded.",
            _OFF,
        ),
        _g("magnetar_offload_share", "ratio", (), "Share of time that offloading takes now, 0 to 1.", _OFF),
        _c("brk_ledgeroffloader_offload_error", "", (), "Offloads of a ledger that failed.", _OFF),
        _c("brk_ledgeroffloader_write_storage_error", "", (), "Writes to a store that failed.", _OFF),
        _c("brk_ledgeroffloader_read_offload_error", "", (), "Reads of copies that failed.", _OFF),
        _c("brk_ledgeroffloader_read_bytes", "bytes", (), "Bytes of entries read from copies.", _OFF),
        _c("brk_ledgeroffloader_delete_offload_ops", "", ("status",), "Objects deleted from a store.", _OFF),
        _h("brk_ledgeroffloader_read_offload_data_latency_seconds", (), "Duration of reads of copies.", _OFF),
        _h(
            "brk_ledgeroffloader_read_offload_index_latency_seconds",
            (),
            "Duration of lookups in copies.",
            _OFF,
        ),
        _h(
            "brk_ledgeroffloader_read_ledger_latency_seconds",
            (),
            "Duration of reads of ledgers to be copied.",
            _OFF,
        ),
    ),
)

TABLES: Final = Section(
    "Iceberg tables",
    (
        _c("magnetar_lake_commits_total", "", (), "Snapshots written to Iceberg tables.", _LAKE),
        _c("magnetar_lake_files_added_total", "", (), "Files added to Iceberg tables.", _LAKE),
        _c("magnetar_lake_files_removed_total", "", (), "Files removed from Iceberg tables.", _LAKE),
        _c(
            "magnetar_lake_errors_total",
            "",
            (),
            "Failed attempts to bring an Iceberg table up to date.",
            _LAKE,
        ),
        _c(
            "magnetar_lake_foreign_snapshots_total",
            "",
            (),
            "Snapshots that other programs wrote to Iceberg tables.",
            _LAKE,
        ),
        _c(
            "magnetar_lake_files_restored_total",
            "",
            (),
            "Files that other programs removed from Iceberg tables and that were put back.",
            _LAKE,
        ),
        _g(
            "magnetar_lake_files_gone",
            "",
            (),
            "Objects that stored lists name and that are not in the store.",
            _LAKE,
        ),
    ),
)
