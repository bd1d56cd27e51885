"""Metrics of work on topics: loading, unloading, deleting, and replay of cursors."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section
from magnetar.observability.rows import counter as _c
from magnetar.observability.rows import gauge as _g

_K: Final = ("cluster",)
_N: Final = ("cluster", "namespace")

TOPIC_WORK: Final = Section(
    "Work on topics",
    (
        _g(
            "magnetar_topics_under_way",
            "",
            ("cluster", "work"),
            "Topics that are being loaded, unloaded or deleted.",
        ),
        _g(
            "magnetar_topics_under_way_seconds_max",
            "seconds",
            _K,
            "Age of the oldest load, unload or deletion of a topic under way; more than some seconds means "
            "that storage is stuck.",
        ),
        _g(
            "magnetar_cursor_replays_running",
            "",
            _K,
            "Subscriptions whose acknowledgements are being read back after a crash.",
        ),
        _c(
            "magnetar_cursor_replays_total",
            "",
            _K,
            "Subscriptions whose acknowledgements were read back after a crash.",
        ),
        _c(
            "magnetar_cursor_replay_entries_total",
            "",
            _K,
            "Entries that were read back for magnetar_cursor_replays_total.",
        ),
        _g("magnetar_unloaded_topics", "", _N, "Topics that are not loaded."),
        _g(
            "magnetar_unloaded_inexact_topics",
            "",
            _N,
            "Topics that are not loaded and whose values are of an earlier time, because the broker was "
            "killed.",
        ),
        _g(
            "magnetar_unloaded_backlog_entries",
            "entries",
            _N,
            "Entries that the slowest durable subscription of each topic that is not loaded has not "
            "acknowledged.",
        ),
        _g("magnetar_unloaded_storage_bytes", "bytes", _N, "Bytes of entries of topics that are not loaded."),
        _g(
            "magnetar_unloaded_seen_age_seconds",
            "seconds",
            _K,
            "Time since the last check of the topics that are not loaded; since the start before the first "
            "check.",
        ),
    ),
)
