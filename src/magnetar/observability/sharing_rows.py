"""Metrics of the processes of one machine that share a port: on the shared port, with a label `process`."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section, counter, gauge

_ONLY: Final = "on the port that several processes share (docs/cluster.md)"
_STORAGE: Final = "of the storage process, on the port that several processes share (docs/cluster.md)"

SHARING: Final = Section(
    "Several processes behind one port",
    (
        gauge(
            "magnetar_process_up",
            "",
            ("process",),
            "1 if the process has answered this scrape of all processes, else 0.",
            _ONLY,
        ),
        gauge(
            "magnetar_storage_sessions",
            "",
            (),
            "Processes that are connected to the metadata of the storage process.",
            _STORAGE,
        ),
        counter(
            "magnetar_storage_calls_total",
            "",
            (),
            "Calls of the metadata that the storage process has answered.",
            _STORAGE,
        ),
    ),
)
