"""Turns progress documents of Spark into reports, and reports into totals and lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.base.names import TopicName
from magnetar.spark.progress.lag import Reach, TopicLag, reaches

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """One batch of one query."""

    query_id: str
    name: str
    """Name of the query, or the beginning of its id."""
    batch_id: int
    rows: int
    duration_ms: int
    processed_rows_per_s: float
    """Rate at which the rows were processed."""
    watermark: str
    """RFC 3339; empty without one."""
    late_rows: int
    """Rows that were dropped, because they came behind the watermark."""
    state_rows: int
    observed: dict[str, float]
    """Numbers that the query observes, `metric.column`."""
    reaches: dict[TopicName, Reach] = field(default_factory=dict)
    """Read position and end of each partition."""
    lags: tuple[TopicLag, ...] = ()

    @classmethod
    def from_progress(cls, progress: Mapping[str, Any]) -> ProgressReport:
        """Reads `StreamingQueryProgress.json`, decoded."""
        operators = progress.get("stateOperators") or ()
        watermark = (progress.get("eventTime") or {}).get("watermark", "")
        found: dict[TopicName, Reach] = {}
        for source in progress.get("sources") or ():
            found |= reaches(source.get("endOffset"), source.get("latestOffset"))
        return cls(
            query_id=progress["id"],
            name=progress.get("name") or progress["id"][:8],
            batch_id=progress["batchId"],
            rows=progress.get("numInputRows", 0),
            duration_ms=progress.get("batchDuration") or 0,
            processed_rows_per_s=_rate(progress.get("processedRowsPerSecond")),
            # Spark reports the epoch while the query has no watermark.
            watermark="" if watermark.startswith("1970-01-01T00:00:00") else watermark,
            late_rows=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
            state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
            observed=_observed(progress.get("observedMetrics") or {}),
            reaches=found,
        )

    @property
    def rows_behind(self) -> int | None:
        """Unread messages of all topics; None when one of them is unknown."""
        rows = [lag.rows for lag in self.lags]
        return None if None in rows else sum(count or 0 for count in rows)

    def line(self) -> str:
        """The report for a terminal."""
        parts = [f"{self.name}: batch {self.batch_id}", f"{self.rows:,} rows"]
        if self.processed_rows_per_s:
            parts.append(f"{self.processed_rows_per_s:,.0f} rows/s")
        if self.lags:
            parts.append(f"behind {_lag_text(self.lags)}")
        if self.watermark:
            parts.append(f"watermark {self.watermark}")
        if self.late_rows:
            parts.append(f"{self.late_rows:,} late rows dropped")
        return " · ".join(parts)


def _rate(value: object) -> float:
    """The rate as a number: Spark reports NaN, as text, or nothing for a batch without duration."""
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def _observed(metrics: Mapping[str, object]) -> dict[str, float]:
    return {
        f"{name}.{column}": float(value)
        for name, row in metrics.items()
        if isinstance(row, Mapping)
        for column, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _lag_text(lags: Sequence[TopicLag]) -> str:
    rows = [lag.rows for lag in lags]
    seconds = [lag.seconds for lag in lags if lag.seconds is not None]
    sizes = [lag.size_bytes for lag in lags if lag.size_bytes is not None]
    parts = ["? rows" if None in rows else f"{sum(count or 0 for count in rows):,} rows"]
    if seconds:
        parts.append(f"{max(seconds):,.1f} s")
    if sizes:
        parts.append(size_text(sum(sizes)))
    return ", ".join(parts)


def size_text(size_bytes: int) -> str:
    """A size in bytes as text with a unit."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


@dataclass(slots=True)
class Totals:
    """All batches of one query so far."""

    name: str
    batches: int = 0
    rows: int = 0
    busy_ms: int = 0
    late_rows: int = 0
    observed: dict[str, float] = field(default_factory=dict)
    last: ProgressReport | None = None
    error: str = ""

    def add(self, report: ProgressReport) -> None:
        """Adds a batch."""
        self.name = report.name
        self.batches += 1
        self.rows += report.rows
        self.busy_ms += report.duration_ms
        self.late_rows += report.late_rows
        for name, value in report.observed.items():
            self.observed[name] = self.observed.get(name, 0.0) + value
        self.last = report

    def lines(self) -> list[str]:
        """The summary of the query."""
        rate = f", {self.rows * 1000 / self.busy_ms:,.0f} rows/s while busy" if self.busy_ms else ""
        found = [f"{self.name}: {self.batches:,} batches, {self.rows:,} rows{rate}"]
        last = self.last
        if last is not None and last.watermark:
            found.append(f"  watermark {last.watermark}, {self.late_rows:,} late rows dropped behind it")
        found += [f"  {name} {value:,.15g}" for name, value in self.observed.items()]
        if last is not None:
            found += [f"  behind {lag.topic}: {_lag_text([lag])}" for lag in last.lags]
        if self.error:
            found.append(f"  failed: {self.error}")
        return found
