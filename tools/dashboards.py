"""Grafana dashboards, made from the registry of metrics (magnetar/observability/catalogue.py).

Every expression is built by the functions below, which refuse metrics that are not declared, a rate of a
metric that is not a counter, and labels that a metric does not have. Units and descriptions are the
registry's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.observability.catalogue import METRICS, SECTIONS, Metric
from magnetar.observability.metrics import Kind

WINDOW: Final = "$__rate_interval"
"""Of rates: Grafana puts in what fits the scrape interval."""
_UNITS: Final = {
    "bytes": "bytes",
    "seconds": "s",
    "per second": "ops",
    "bytes per second": "Bps",
    "ratio": "percentunit",
}
_RATE_UNITS: Final = {"bytes": "Bps", "seconds": "percentunit"}
_VARIABLES: Final = ("cluster", "namespace", "topic")
COLUMNS: Final = 24


class NoSuchMetricError(ValueError):
    """An expression names what is not declared, or asks of it what it is not."""


def declared(name: str, kind: Kind | None = None, labels: tuple[str, ...] = ()) -> Metric:
    """The metric of that name. Raises NoSuchMetricError."""
    metric = METRICS.get(name)
    if metric is None:
        raise NoSuchMetricError(f"{name} is not declared")
    if kind is not None and metric.kind is not kind:
        raise NoSuchMetricError(f"{name} is a {metric.kind.value}, no {kind.value}")
    if missing := set(labels) - set(metric.labels) - {"instance", "le"}:
        raise NoSuchMetricError(f"{name} has no label {', '.join(sorted(missing))}")
    return metric


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel."""

    expression: str
    legend: str
    metric: Metric
    unit: str


def _selected(metric: Metric, suffix: str = "") -> str:
    """The series that the variables of a dashboard choose."""
    chosen = [f'{name}=~"${name}"' for name in _VARIABLES if name in metric.labels]
    return f"{metric.name}{suffix}{{{','.join(chosen)}}}"


def _legend(by: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{name}}}}}" for name in by)


def _by(by: tuple[str, ...]) -> str:
    return f" by ({', '.join(by)})"


def rate(name: str, *by: str, top: int = 0) -> Query:
    """A query for a counter's growth per second, summed by the labels `by`; the `top` largest, 0: all."""
    metric = declared(name, Kind.COUNTER, by)
    found = f"sum{_by(by)} (rate({_selected(metric)}[{WINDOW}]))"
    unit = _RATE_UNITS.get(metric.unit, "ops")
    return Query(f"topk({top}, {found})" if top else found, _legend(by), metric, unit)


def value(name: str, *by: str, how: str = "sum", top: int = 0) -> Query:
    """A query for a gauge, aggregated by the labels `by` with the function `how`; only the `top` largest, 0:
    all."""
    metric = declared(name, Kind.GAUGE, by)
    found = f"{how}{_by(by)} ({_selected(metric)})"
    unit = _UNITS.get(metric.unit, "short")
    legend = _legend(by) if set(by) - {"instance"} else f"{_short(name)} {_legend(by)}"
    return Query(f"topk({top}, {found})" if top else found, legend, metric, unit)


def _short(name: str) -> str:
    return name.removeprefix("magnetar_").removeprefix("pulsar_broker_")


def share(name: str, budget: str, *by: str) -> Query:
    """A query for a gauge as a share, 0 to 1, of the gauge `budget`."""
    part, whole = declared(name, Kind.GAUGE, by), declared(budget, Kind.GAUGE, by)
    found = f"sum{_by(by)} ({_selected(part)}) / sum{_by(by)} ({_selected(whole)})"
    return Query(found, f"{name.removeprefix('magnetar_')} {_legend(by)}", part, "percentunit")


def quantile(name: str, part: float, *by: str) -> Query:
    """A query for a quantile of a histogram, in seconds. `part`: share of observations below it, 0 to 1."""
    metric = declared(name, Kind.HISTOGRAM, by)
    buckets = f"sum{_by((*by, 'le'))} (rate({_selected(metric, '_bucket')}[{WINDOW}]))"
    legend = f"p{part * 100:g} {_legend(by)}"
    return Query(f"histogram_quantile({part:g}, {buckets})", legend, metric, "s")


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture."""

    title: str
    queries: tuple[Query, ...]
    width: int = 8
    kind: str = "timeseries"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a headline."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page."""

    uid: str
    title: str
    rows: tuple[Row, ...] = field(default=())

    def panels(self) -> Iterator[Panel]:
        """All of them."""
        for row in self.rows:
            yield from row.panels

    def document(self) -> dict[str, Any]:
        """As Grafana imports it."""
        panels: list[dict[str, Any]] = []
        y = 0
        for row in self.rows:
            head = {"type": "row", "title": row.title, "collapsed": row.collapsed}
            head |= {"id": len(panels) + 1, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": []}
            panels.append(head)
            y += 1
            x = height = 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y = 0, y + height
                height = 4 if panel.kind == "stat" else 8
                place = {"x": x, "y": y, "w": panel.width, "h": height}
                panels.append(_panel(panel, len(panels) + 1, place))
                x += panel.width
            y += height
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["magnetar"],
            "timezone": "",
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": _variables()},
            "panels": panels,
        }

    def text(self) -> str:
        """The file."""
        return json.dumps(self.document(), indent=2) + "\n"


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    # Two queries about one metric are described once.
    texts = dict.fromkeys(f"{query.metric.name}: {query.metric.help}" for query in panel.queries)
    custom = {"fillOpacity": 10, "showPoints": "never"} if panel.kind == "timeseries" else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": "\n".join(texts),
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.queries[0].unit, "min": 0, "custom": custom},
            "overrides": [],
        },
        "options": (
            {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
            if panel.kind == "timeseries"
            else {"reduceOptions": {"calcs": ["lastNotNull"]}}
        ),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend.strip() or query.metric.name,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    """The data source, and what chooses series: by the smallest metric that has the label."""
    asked = {
        "cluster": "label_values(pulsar_broker_topics_count, cluster)",
        "namespace": 'label_values(pulsar_topics_count{cluster=~"$cluster"}, namespace)',
        "topic": 'label_values(pulsar_producers_count{namespace=~"$namespace"}, topic)',
    }
    made: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    ]
    for name, query in asked.items():
        made.append(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": query, "refId": name},
                "refresh": 2,
                "includeAll": True,
                "multi": True,
                # Also series without the label, as those of very many topics.
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return made


_ONE: Final = ("cluster", "namespace")
_SUB: Final = ("topic", "subscription")

OVERVIEW: Final = Dashboard(
    "magnetar-overview",
    "Magnetar overview",
    (
        Row(
            "Does it work?",
            (
                Panel("Canaries up", (value("magnetar_canary_up", *_ONE, how="min"),), 6, "stat"),
                Panel("Canaries' messages lost", (rate("magnetar_canary_lost_total", *_ONE),), 6, "stat"),
                Panel("Oldest backlog", (value("pulsar_storage_backlog_age_seconds", how="max"),), 6, "stat"),
                Panel("Damaged places on disk", (value("magnetar_segment_damages"),), 6, "stat"),
                Panel(
                    "Canaries end to end",
                    (
                        quantile("magnetar_canary_end_to_end_seconds", 0.5),
                        quantile("magnetar_canary_end_to_end_seconds", 0.99),
                    ),
                    12,
                ),
                Panel(
                    "Until a group of entries is durable",
                    (quantile("magnetar_sync_seconds", 0.5), quantile("magnetar_sync_seconds", 0.99)),
                    12,
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel("Messages in", (rate("pulsar_in_messages_total", *_ONE),), 6),
                Panel("Messages out", (rate("pulsar_out_messages_total", *_ONE),), 6),
                Panel("Bytes in", (rate("pulsar_in_bytes_total", *_ONE),), 6),
                Panel("Bytes out", (rate("pulsar_out_bytes_total", *_ONE),), 6),
            ),
        ),
        Row(
            "Which consumers are behind?",
            (
                Panel(
                    "Seconds behind", (value("magnetar_subscription_lag_seconds", *_SUB, how="max", top=10),)
                ),
                Panel("Messages behind", (value("magnetar_subscription_lag_messages", *_SUB, top=10),)),
                Panel("Bytes behind", (value("magnetar_subscription_lag_bytes", *_SUB, top=10),)),
                Panel(
                    "Sent, not acknowledged", (value("pulsar_subscription_unacked_messages", *_SUB, top=10),)
                ),
                Panel(
                    "Blocked until something is acknowledged",
                    (value("pulsar_subscription_blocked_on_unacked_messages", *_SUB, top=10),),
                ),
                Panel("Storage", (value("pulsar_storage_size", *_ONE),)),
            ),
        ),
        Row(
            "The process",
            (
                Panel(
                    "Memory budgets",
                    (
                        share("magnetar_in_flight_bytes", "magnetar_in_flight_bytes_max", "instance"),
                        share("magnetar_output_bytes", "magnetar_output_bytes_max", "instance"),
                        share("magnetar_cache_bytes", "magnetar_cache_bytes_max", "instance"),
                    ),
                    6,
                ),
                Panel("Memory", (value("process_resident_memory_bytes", "instance"),), 6),
                Panel("CPU", (rate("process_cpu_seconds_total", "instance"),), 6),
                Panel(
                    "How late the event loop is",
                    (quantile("magnetar_loop_stall_seconds", 0.99, "instance"),),
                    6,
                ),
                Panel("Connections", (value("pulsar_active_connections", "instance"),), 6),
                Panel(
                    "Topics and clients",
                    (
                        value("pulsar_broker_topics_count", "instance"),
                        value("pulsar_broker_producers_count", "instance"),
                        value("pulsar_broker_consumers_count", "instance"),
                    ),
                    6,
                ),
                Panel("Descriptors", (share("process_open_fds", "process_max_fds", "instance"),), 6),
                Panel("Log", (rate("magnetar_log_records_total", "level"),), 6),
            ),
        ),
    ),
)

TOPICS: Final = Dashboard(
    "magnetar-topics",
    "Magnetar topics",
    (
        Row(
            "Topics",
            (
                Panel("Messages in", (rate("pulsar_in_messages_total", "topic", top=10),)),
                Panel("Messages out", (rate("pulsar_out_messages_total", "topic", top=10),)),
                Panel("Entries behind", (value("pulsar_msg_backlog", "topic", top=10),)),
                Panel(
                    "Seconds behind",
                    (value("pulsar_storage_backlog_age_seconds", "topic", how="max", top=10),),
                ),
                Panel("Storage", (value("pulsar_storage_size", "topic", top=10),)),
                Panel("Not durable yet", (value("magnetar_pending_bytes", "topic", top=10),)),
                Panel("Size of a message", (value("pulsar_average_msg_size", "topic", how="avg", top=10),)),
                Panel("Producers", (value("pulsar_producers_count", "topic", top=10),)),
                Panel("Consumers", (value("pulsar_consumers_count", "topic", top=10),)),
            ),
        ),
        Row(
            "Subscriptions",
            (
                Panel("Messages behind", (value("magnetar_subscription_lag_messages", *_SUB, top=10),)),
                Panel(
                    "Seconds behind", (value("magnetar_subscription_lag_seconds", *_SUB, how="max", top=10),)
                ),
                Panel("Delivered", (value("pulsar_subscription_msg_rate_out", *_SUB, top=10),)),
                Panel(
                    "Sent, not acknowledged", (value("pulsar_subscription_unacked_messages", *_SUB, top=10),)
                ),
                Panel("Waiting for their time", (value("pulsar_subscription_delayed", *_SUB, top=10),)),
                Panel("Consumers", (value("pulsar_subscription_consumers_count", *_SUB, top=10),)),
            ),
        ),
    ),
)

BOOKIES: Final = Dashboard(
    "magnetar-bookies",
    "Magnetar bookies",
    (
        Row(
            "Bookies",
            (
                Panel("Takes entries", (value("bookie_SERVER_STATUS", "instance", how="min"),)),
                Panel(
                    "Ledgers in limbo", (value("magnetar_bookie_ledgers_in_limbo", "instance", how="max"),)
                ),
                Panel("Disk that is free", (value("magnetar_bookie_disk_free_bytes", "instance"),)),
                Panel("Adds", (rate("bookkeeper_server_ADD_ENTRY_count", "instance", "success"),)),
                Panel("Reads", (rate("bookkeeper_server_READ_ENTRY_count", "instance", "success"),)),
                Panel("Ledgers", (value("bookie_ledgers_count", "instance"),)),
                Panel("Bytes taken", (rate("bookie_WRITE_BYTES", "instance"),)),
                Panel("Bytes given", (rate("bookie_READ_BYTES", "instance"),)),
                Panel(
                    "Until a group of entries is durable",
                    (quantile("magnetar_sync_seconds", 0.99, "instance"),),
                ),
                Panel("Syncs", (rate("bookie_journal_JOURNAL_SYNC_count", "instance"),)),
                Panel("Not durable yet", (value("magnetar_bookie_pending_bytes", "instance"),)),
                Panel("Clients", (value("magnetar_bookie_connections", "instance"),)),
            ),
        ),
        Row(
            "Brokers that keep ledgers on them",
            (
                Panel(
                    "Copies taken and refused",
                    (rate("magnetar_ledger_client_adds_total", "instance", "success"),),
                ),
                Panel(
                    "Until a bookie has acknowledged a group of entries",
                    (quantile("magnetar_ledger_client_add_seconds", 0.99, "instance"),),
                ),
                Panel(
                    "Until a bookie answers a read",
                    (quantile("magnetar_ledger_client_read_seconds", 0.99, "instance"),),
                ),
                Panel(
                    "Ensembles changed", (rate("magnetar_ledger_client_ensemble_changes_total", "instance"),)
                ),
                Panel(
                    "Reads from another copy",
                    (rate("magnetar_ledger_client_speculative_reads_total", "instance"),),
                ),
                Panel("Bad copies", (rate("magnetar_ledger_client_bad_copies_total", "instance"),)),
                Panel("In quarantine", (value("magnetar_ledger_client_bookies_quarantined", "instance"),)),
            ),
        ),
    ),
)


def _query(metric: Metric) -> Query:
    by = tuple(label for label in metric.labels if label in ("namespace", "level", "status", "kind"))
    if metric.kind is Kind.COUNTER:
        return rate(metric.name, *by)
    if metric.kind is Kind.HISTOGRAM:
        return quantile(metric.name, 0.99, *by)
    return value(metric.name, *by)


ALL: Final = Dashboard(
    "magnetar-metrics",
    "Magnetar: every metric",
    tuple(
        Row(section.title, tuple(Panel(metric.name, (_query(metric),)) for metric in section.metrics))
        for section in SECTIONS
    ),
)

DASHBOARDS: Final = (OVERVIEW, TOPICS, BOOKIES, ALL)
