"""Reports as Prometheus text. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.observability.metrics import Exposition, labels
from magnetar.spark.progress.report import Totals


def exposition(all_totals: Iterable[Totals]) -> str:
    """The text of one scrape: what was counted, and the last batch of each query."""
    out = Exposition()
    for totals in all_totals:
        query = labels(("query", totals.name))
        out.counter("magnetar_spark_rows_total", "Rows that a query has read.", totals.rows, query)
        out.counter("magnetar_spark_batches_total", "Batches with rows or state.", totals.batches, query)
        out.counter("magnetar_spark_busy_seconds_total", "Time in batches.", totals.busy_ms / 1000, query)
        out.counter(
            "magnetar_spark_late_rows_total", "Rows dropped behind the watermark.", totals.late_rows, query
        )
        for name, value in totals.observed.items():
            named = labels(("query", totals.name), ("metric", name))
            out.counter("magnetar_spark_observed_total", "What the query observes, added up.", value, named)
        last = totals.last
        if last is None:
            continue
        out.gauge(
            "magnetar_spark_batch_duration_seconds",
            "Values of the last batch.",
            last.duration_ms / 1000,
            query,
        )
        out.gauge("magnetar_spark_state_rows", "Rows that the query keeps.", last.state_rows, query)
        for lag in last.lags:
            topic = labels(("query", totals.name), ("topic", lag.topic))
            if lag.rows is not None:
                out.gauge("magnetar_spark_lag_rows", "Rows that were not read yet.", lag.rows, topic)
            if lag.seconds is not None:
                out.gauge("magnetar_spark_lag_seconds", "Age of the oldest of them.", lag.seconds, topic)
            if lag.size_bytes is not None:
                out.gauge("magnetar_spark_lag_bytes", "Their bytes as stored.", lag.size_bytes, topic)
    return out.render()
