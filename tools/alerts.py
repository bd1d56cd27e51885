"""Alert rules for Prometheus, about metrics of the registry (magnetar/observability/catalogue.py)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from magnetar.observability.catalogue import METRICS

CRITICAL: Final = "critical"
"""An operator must act now: data or service is at risk."""
WARNING: Final = "warning"
"""An operator should act today."""

_NAME: Final = re.compile(r"\b(?:pulsar|magnetar|process|python|brk)_[a-z0-9_]+")
_OF_HISTOGRAMS: Final = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule."""

    name: str
    expression: str
    lasting: str
    """Time for which the condition must hold before the alert fires, such as `5m`."""
    severity: str
    summary: str
    """With `{{ $labels.x }}` and `{{ $value }}`."""
    remedy: str
    """What to do."""

    def metrics(self) -> set[str]:
        """Names of the metrics it is about."""
        return {
            name if name in METRICS else _OF_HISTOGRAMS.sub("", name)
            for name in _NAME.findall(self.expression)
        }


_SUBSCRIPTION: Final = "{{ $labels.subscription }} of {{ $labels.topic }}"

ALERTS: Final = (
    Alert(
        "MagnetarDown",
        'up{job="magnetar"} == 0',
        "1m",
        CRITICAL,
        "{{ $labels.instance }} does not answer",
        "Look at its log; `magnetar doctor` on its machine.",
    ),
    Alert(
        "MagnetarMetadataDoubted",
        "magnetar_metadata_doubted > 0 or magnetar_quarantined_ledgers > 0",
        "0m",
        CRITICAL,
        "{{ $labels.instance }} has messages that its metadata does not name",
        "`magnetar storage quarantine` lists them; docs/storage.md says what to do.",
    ),
    Alert(
        "MagnetarRestarts",
        'changes(process_start_time_seconds{job="magnetar"}[15m]) > 2',
        "0m",
        WARNING,
        "{{ $labels.instance }} was started {{ $value }} times in 15 minutes",
        "Its log says why it left: a failed sync and a full disk end the process.",
    ),
    Alert(
        "MagnetarCanaryDown",
        "magnetar_canary_up == 0",
        "1m",
        CRITICAL,
        "what is published to {{ $labels.namespace }} does not come out",
        "`magnetar doctor`, and the lines of magnetar.broker.canary in the log.",
    ),
    Alert(
        "MagnetarMessagesLost",
        "increase(magnetar_canary_lost_total[10m]) > 0",
        "0m",
        CRITICAL,
        "messages of {{ $labels.namespace }} were acknowledged and not delivered in time",
        "`magnetar topics explain __canary` of the namespace, and how late the event loop is.",
    ),
    Alert(
        "MagnetarSlow",
        "histogram_quantile(0.99, sum by (cluster, namespace, le)"
        " (rate(magnetar_canary_end_to_end_seconds_bucket[5m]))) > 1",
        "5m",
        WARNING,
        "a message of {{ $labels.namespace }} takes {{ $value | humanizeDuration }}",
        "Compare how long syncs take with how late the event loop is: disk or CPU.",
    ),
    Alert(
        "MagnetarSyncSlow",
        "histogram_quantile(0.99, sum by (instance, le) (rate(magnetar_sync_seconds_bucket[5m]))) > 0.2",
        "10m",
        WARNING,
        "the disk of {{ $labels.instance }} needs {{ $value | humanizeDuration }} for a sync",
        "`magnetar doctor --data FOLDER`; which other program writes to that disk?",
    ),
    Alert(
        "MagnetarDamage",
        "magnetar_segment_damages > 0",
        "0m",
        CRITICAL,
        "{{ $value }} damaged places in the message store of {{ $labels.instance }}",
        "The log names file, offset and ledger. Nothing damaged is served; look at the disk.",
    ),
    Alert(
        "MagnetarBehind",
        "magnetar_subscription_lag_seconds > 900 and deriv(magnetar_subscription_lag_messages[10m]) >= 0",
        "10m",
        WARNING,
        f"{_SUBSCRIPTION} is {{{{ $value | humanizeDuration }}}} behind and does not catch up",
        "`magnetar topics explain TOPIC` says why it does not dispatch.",
    ),
    Alert(
        "MagnetarBlocked",
        "pulsar_subscription_blocked_on_unacked_messages == 1",
        "5m",
        WARNING,
        f"{_SUBSCRIPTION} waits for acknowledgements",
        "Its consumers take messages and do not acknowledge them.",
    ),
    Alert(
        "MagnetarNobodyConsumes",
        "pulsar_subscription_back_log > 0 and pulsar_subscription_consumers_count == 0",
        "1h",
        WARNING,
        f"{_SUBSCRIPTION} has a backlog and no consumer",
        "`magnetar subscriptions delete` when it is not needed: it keeps messages from being deleted.",
    ),
    Alert(
        "MagnetarPublishingHeld",
        "magnetar_in_flight_bytes / magnetar_in_flight_bytes_max > 0.9",
        "5m",
        WARNING,
        "{{ $labels.instance }} takes no more from producers until what it has is durable",
        "The disk is slower than the producers: see how long syncs take.",
    ),
    Alert(
        "MagnetarClientsSlow",
        "magnetar_output_waiting_connections > 0",
        "10m",
        WARNING,
        "{{ $value }} clients of {{ $labels.instance }} do not read what they asked for",
        "`magnetar top --subscriptions --by unacked`; the budget is output_bytes_max.",
    ),
    Alert(
        "MagnetarStalls",
        "histogram_quantile(0.99, sum by (instance, le)"
        " (rate(magnetar_loop_stall_seconds_bucket[5m]))) > 0.2",
        "10m",
        WARNING,
        "the event loop of {{ $labels.instance }} is late by {{ $value | humanizeDuration }}",
        "The log names the cause of long stalls; more brokers, or fewer topics on this one.",
    ),
    Alert(
        "MagnetarDescriptors",
        'process_open_fds{job="magnetar"} / process_max_fds{job="magnetar"} > 0.8',
        "5m",
        WARNING,
        "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its descriptors",
        "Raise `ulimit -n`, or find the client that opens so many connections.",
    ),
    Alert(
        "MagnetarOffloadFails",
        "increase(brk_ledgeroffloader_offload_error[30m]) > 0",
        "30m",
        WARNING,
        "{{ $labels.instance }} cannot copy ledgers to the object store",
        "`PUT .../offload` and its status name the last error (docs/tiered-storage.md).",
    ),
    Alert(
        "MagnetarStoreReadOnly",
        "magnetar_offload_stores_read_only > 0",
        "5m",
        CRITICAL,
        "{{ $value }} object stores of {{ $labels.instance }} belong to another installation",
        "`magnetar offload stores` says why, docs/tiered-storage.md what to do. The disk fills meanwhile.",
    ),
    Alert(
        "MagnetarHistoryGone",
        "magnetar_lake_files_gone > 0",
        "0m",
        CRITICAL,
        "{{ $value }} objects of history that {{ $labels.instance }} knows are not in the store any more",
        "`magnetar lake status` and the log name them. Restore them from the bucket's earlier versions.",
    ),
    Alert(
        "MagnetarErrors",
        'increase(magnetar_log_records_total{level="error"}[10m]) > 0',
        "0m",
        WARNING,
        "{{ $labels.instance }} logs errors",
        "Each line names its event: docs/monitoring.md lists them.",
    ),
    Alert(
        "MagnetarTransactionStuck",
        "magnetar_transaction_oldest_seconds > 300",
        "5m",
        WARNING,
        "a transaction is open for {{ $value | humanizeDuration }}",
        "Readers of its topics wait for it. `magnetar transactions list` names it and its topics; "
        "`magnetar transactions abort` ends it.",
    ),
    Alert(
        "MagnetarSeriesDropped",
        "magnetar_metrics_series_dropped > 0",
        "15m",
        WARNING,
        "{{ $labels.instance }} leaves {{ $value }} series out of its metrics",
        "Set metrics_topics_max to what your Prometheus can hold.",
    ),
)


def text() -> str:
    """The file of rules. A JSON text is a YAML scalar too."""
    lines = [
        "# Written by tools/monitoring.py; the rules are in tools/alerts.py.",
        "groups:",
        "  - name: magnetar",
    ]
    lines.append("    rules:")
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasting}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          remedy: {json.dumps(alert.remedy)}",
        ]
    return "\n".join(lines) + "\n"
