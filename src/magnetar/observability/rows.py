"""Types for the declarations of metrics: a row for each family of series, in sections."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.observability.metrics import Kind


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of series."""

    name: str
    kind: Kind
    unit: str
    """`messages`, `entries`, `bytes`, `seconds`, `per second`, `bytes per second`, `ratio`, or "" of plain
    numbers."""
    labels: tuple[str, ...]
    help: str
    only: str = ""
    """Condition under which the metric is shown; "": always."""


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics of one subject."""

    title: str
    metrics: tuple[Metric, ...]


def counter(name: str, unit: str, labels: tuple[str, ...], text: str, only: str = "") -> Metric:
    """Declares a counter."""
    return Metric(name, Kind.COUNTER, unit, labels, text, only)


def gauge(name: str, unit: str, labels: tuple[str, ...], text: str, only: str = "") -> Metric:
    """Declares a gauge."""
    return Metric(name, Kind.GAUGE, unit, labels, text, only)


def histogram(name: str, labels: tuple[str, ...], text: str, only: str = "") -> Metric:
    """Declares a histogram of seconds."""
    return Metric(name, Kind.HISTOGRAM, "seconds", labels, text, only)
