"""The registry of metrics: declares once every metric that `/metrics` may show.

The list in docs/monitoring.md, the dashboards and the alert rules are generated from these rows; a test
compares them with the metrics of a running broker. A metric has Pulsar's name if Pulsar has one with the same
meaning, or the name that Prometheus's client libraries agree on; other names begin with `magnetar_`.
"""

from __future__ import annotations

from typing import Final

from magnetar.observability.bookie_rows import BOOKIES
from magnetar.observability.canary_rows import CANARIES
from magnetar.observability.function_rows import FUNCTIONS
from magnetar.observability.history_rows import OFFLOADING, TABLES
from magnetar.observability.ledger_client_rows import LEDGER_CLIENT
from magnetar.observability.load_rows import LOAD
from magnetar.observability.metadata_service_rows import METADATA_SERVICE
from magnetar.observability.process_rows import PROCESS
from magnetar.observability.proxy_rows import PROXY
from magnetar.observability.recovery_rows import AUTORECOVERY
from magnetar.observability.rows import Metric as Metric
from magnetar.observability.rows import Section as Section
from magnetar.observability.rows import counter as _c
from magnetar.observability.rows import gauge as _g
from magnetar.observability.rows import histogram as _h
from magnetar.observability.sharing_rows import SHARING
from magnetar.observability.tenant_rows import TENANTS
from magnetar.observability.topic_work_rows import TOPIC_WORK
from magnetar.observability.transaction_rows import TRANSACTIONS

_K: Final = ("cluster",)
_N: Final = ("cluster", "namespace")
_T: Final = ("cluster", "namespace", "topic")
_S: Final = (*_T, "subscription")

_PASS: Final = "of non-persistent topics"
_WS: Final = "where WebSockets are served"
_SECURED: Final = "where TLS or authentication is configured"
_HELPED: Final = "unless the process is ephemeral"

SECTIONS: Final = (
    Section(
        "Traffic",
        (
            _c("pulsar_in_messages_total", "messages", _T, "Messages published."),
            _c("pulsar_in_bytes_total", "bytes", _T, "Bytes published."),
            _c("pulsar_out_messages_total", "messages", _T, "Messages delivered."),
            _c("pulsar_out_bytes_total", "bytes", _T, "Bytes delivered."),
            _g("pulsar_rate_in", "per second", _T, "Messages published per second since the last scrape."),
            _g(
                "pulsar_throughput_in",
                "bytes per second",
                _T,
                "Bytes published per second since the last scrape.",
            ),
            _g("pulsar_rate_out", "per second", _T, "Messages delivered per second since the last scrape."),
            _g(
                "pulsar_throughput_out",
                "bytes per second",
                _T,
                "Bytes delivered per second since the last scrape.",
            ),
            _g(
                "pulsar_average_msg_size",
                "bytes",
                _T,
                "Average bytes of a published message since the last scrape.",
            ),
        ),
    ),
    Section(
        "Topics and clients",
        (
            _g("pulsar_topics_count", "", _N, "Topics loaded by this broker."),
            _g("pulsar_subscriptions_count", "", _T, "Subscriptions of the topic."),
            _g("pulsar_producers_count", "", _T, "Producers connected to the topic."),
            _g("pulsar_consumers_count", "", _T, "Consumers connected to the topic."),
            _g("pulsar_broker_topics_count", "", _K, "Topics loaded by this broker."),
            _g("pulsar_broker_subscriptions_count", "", _K, "Subscriptions of loaded topics."),
            _g("pulsar_broker_producers_count", "", _K, "Producers connected."),
            _g("pulsar_broker_consumers_count", "", _K, "Consumers connected."),
            _g("pulsar_active_connections", "", _K, "Connections of clients."),
            _g("magnetar_connections_waiting", "", (), "Connections that have not sent CONNECT yet."),
            _c(
                "magnetar_connections_dropped_total",
                "",
                (),
                "Connections that were closed before they sent CONNECT.",
            ),
            _g(
                "magnetar_sockets",
                "",
                ("listener",),
                "Open sockets of clients, counted from their acceptance.",
            ),
            _c(
                "magnetar_sockets_refused_total",
                "",
                ("listener", "reason"),
                "Sockets that were closed because a limit was reached, before a byte was read.",
            ),
        ),
    ),
    Section(
        "Subscriptions and lag",
        (
            _g(
                "pulsar_msg_backlog",
                "entries",
                _T,
                "Entries that the slowest durable subscription has not acknowledged.",
            ),
            _g(
                "pulsar_storage_backlog_size",
                "bytes",
                _T,
                "Bytes of the entries in pulsar_msg_backlog, estimated by the topic's average entry size.",
            ),
            _g(
                "pulsar_storage_backlog_age_seconds",
                "seconds",
                _T,
                "Age of the oldest entry that a durable subscription has not acknowledged, since the broker "
                "received it.",
            ),
            _g("pulsar_subscription_back_log", "entries", _S, "Entries that are not acknowledged."),
            _g(
                "pulsar_subscription_back_log_no_delayed",
                "entries",
                _S,
                "Entries that are not acknowledged and not delayed.",
            ),
            _g(
                "pulsar_subscription_delayed",
                "entries",
                _S,
                "Delayed entries that wait for their delivery time.",
            ),
            _g(
                "magnetar_subscription_lag_messages",
                "messages",
                _S,
                "Messages that are not acknowledged; each message of a batch counts.",
            ),
            _g(
                "magnetar_subscription_lag_bytes",
                "bytes",
                _S,
                "Bytes that are not acknowledged, estimated by the topic's average entry size.",
            ),
            _g(
                "magnetar_subscription_lag_seconds",
                "seconds",
                _S,
                "Age of the oldest entry that is not acknowledged, since the broker received it; 0 without "
                "a backlog.",
            ),
            _g(
                "pulsar_subscription_unacked_messages",
                "messages",
                _S,
                "Messages sent to consumers and not acknowledged.",
            ),
            _g(
                "pulsar_subscription_blocked_on_unacked_messages",
                "",
                _S,
                "1 while dispatch is blocked by the limit of unacknowledged messages, else 0.",
            ),
            _g("pulsar_subscription_consumers_count", "", _S, "Consumers connected."),
            _g(
                "pulsar_subscription_msg_rate_out",
                "per second",
                _S,
                "Messages delivered per second since the last scrape.",
            ),
            _g(
                "pulsar_subscription_msg_throughput_out",
                "bytes per second",
                _S,
                "Bytes delivered per second since the last scrape.",
            ),
            _g(
                "pulsar_subscription_msg_drop_rate",
                "per second",
                _S,
                "Messages dropped per second since the last scrape.",
                _PASS,
            ),
        ),
    ),
    Section(
        "Storage",
        (
            _g("pulsar_storage_size", "bytes", _T, "Bytes of the topic's durable entries."),
            _g(
                "pulsar_storage_offloaded_size",
                "bytes",
                _T,
                "Bytes of the topic's durable entries that have a copy in an object store.",
            ),
            _h(
                "magnetar_sync_seconds",
                (),
                "Time in which the disk made a group of entries durable.",
                _HELPED,
            ),
            _g(
                "magnetar_pending_bytes",
                "bytes",
                _T,
                "Bytes appended to the topic's log that are not durable yet.",
            ),
            _g("magnetar_segments", "", (), "Segments of the message store."),
            _g("magnetar_segment_damages", "", (), "Damaged places that were found in segments."),
            _g("magnetar_segments_missing", "", (), "Segments whose files were lost."),
            _g(
                "magnetar_quarantined_ledgers",
                "",
                (),
                "Ledgers in quarantine: stored, and not named by metadata.",
                _HELPED,
            ),
            _g("magnetar_quarantined_bytes", "bytes", (), "Bytes of ledgers in quarantine.", _HELPED),
            _c("magnetar_quarantine_deleted_total", "", (), "Ledgers deleted from the quarantine.", _HELPED),
            _g(
                "magnetar_metadata_doubted",
                "",
                (),
                "1 while metadata is doubted (damaged, or an older copy), so that ledgers which it does not "
                "name are kept; else 0.",
                _HELPED,
            ),
            _c(
                "magnetar_segment_indexes_rebuilt_total",
                "",
                (),
                "Damaged indexes of segments that were rebuilt from the blocks.",
            ),
            _c(
                "magnetar_lost_entries_passed_over_total",
                "",
                (),
                "Entries lost to damage that consumers skipped.",
            ),
            _c(
                "magnetar_segments_rewritten_total",
                "",
                (),
                "Segments with few living entries that were rewritten without the deleted ones.",
            ),
            _c(
                "magnetar_rewrite_copied_bytes_total",
                "bytes",
                (),
                "Bytes of living entries copied when segments were rewritten.",
            ),
            _c(
                "magnetar_rewrite_freed_bytes_total",
                "bytes",
                (),
                "Bytes of disk space freed by rewriting segments.",
            ),
            _g("magnetar_spare_segments", "", (), "Spare files that are kept to become segments."),
            _c("magnetar_segments_recycled_total", "", (), "Segments made of a spare file."),
            _c(
                "magnetar_prewritten_bytes_total",
                "bytes",
                (),
                "Bytes of zeros written into spare files in advance.",
            ),
        ),
    ),
    Section(
        "Memory budgets",
        (
            _g(
                "magnetar_in_flight_bytes", "bytes", _K, "Bytes read from producers that are not durable yet."
            ),
            _g(
                "magnetar_in_flight_bytes_max",
                "bytes",
                _K,
                "Budget of magnetar_in_flight_bytes; above it the broker stops reading from producers.",
            ),
            _g("magnetar_output_bytes", "bytes", _K, "Bytes that wait to be sent to clients."),
            _g(
                "magnetar_output_bytes_max",
                "bytes",
                _K,
                "Budget of magnetar_output_bytes; when little of it is free, clients with much waiting "
                "output get less.",
            ),
            _g(
                "magnetar_output_waiting_connections",
                "",
                _K,
                "Connections that get no more output until magnetar_output_bytes is below its budget.",
            ),
            _g(
                "magnetar_waiting_requests_bytes",
                "bytes",
                (),
                "Memory of clients' requests that wait to begin.",
            ),
            _g(
                "magnetar_waiting_requests_bytes_max",
                "bytes",
                (),
                "Budget of magnetar_waiting_requests_bytes; when little of it is free, clients with many "
                "waiting requests are not read.",
            ),
            _g("magnetar_cache_bytes", "bytes", _K, "Bytes of entries in the tail cache."),
            _g("magnetar_cache_bytes_max", "bytes", _K, "Budget of magnetar_cache_bytes."),
        ),
    ),
    CANARIES,
    TENANTS,
    OFFLOADING,
    Section(
        "WebSockets",
        (
            _g("magnetar_websocket_connections", "", ("cluster", "kind"), "Open WebSockets.", _WS),
            _g(
                "magnetar_websocket_held_bytes",
                "bytes",
                _K,
                "Bytes that WebSockets hold for large messages, beyond 64 KiB of each socket.",
                _WS,
            ),
            _c(
                "magnetar_websocket_messages_total",
                "messages",
                ("cluster", "kind"),
                "Messages published or delivered over WebSockets.",
                _WS,
            ),
            _c("magnetar_websocket_refused_total", "", _K, "WebSockets whose handshake was refused.", _WS),
        ),
    ),
    TABLES,
    BOOKIES,
    AUTORECOVERY,
    PROXY,
    LEDGER_CLIENT,
    METADATA_SERVICE,
    SHARING,
    LOAD,
    TOPIC_WORK,
    TRANSACTIONS,
    FUNCTIONS,
    PROCESS,
    Section(
        "Credentials",
        (
            _g(
                "magnetar_credentials_stale",
                "",
                ("credential",),
                "1 while changed files of credentials cannot be used and the old ones are in force, else 0.",
                _SECURED,
            ),
        ),
    ),
    Section(
        "Logs and metrics",
        (
            _c("magnetar_log_records_total", "", ("level",), "Records of the log, by level."),
            _c(
                "magnetar_log_suppressed_total",
                "",
                (),
                "Log records left out because one event occurred too often.",
            ),
            _g("magnetar_metrics_series", "", (), "Series in this scrape."),
            _g(
                "magnetar_metrics_series_dropped",
                "",
                (),
                "Series left out of this scrape because of the limit of series.",
            ),
            _g(
                "magnetar_metrics_topic_level",
                "",
                _K,
                "1 while topics have series of their own, 0 while only namespaces have series.",
            ),
        ),
    ),
)
"""All metrics by subject."""

METRICS: Final = {metric.name: metric for section in SECTIONS for metric in section.metrics}
"""All metrics by name."""


def text_of(name: str) -> str:
    """The help text of a metric. Raises KeyError when it is not declared."""
    return METRICS[name].help
