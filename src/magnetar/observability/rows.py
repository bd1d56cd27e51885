"""The words in which metrics are declared: a row for each family of series, in sections."""

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
    """Where it is shown, when not always."""


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics of one subject."""

    title: str
    metrics: tuple[Metric, ...]


def counter(name: str, unit: str, labels: tuple[str, ...], text: str, only: str = "") -> Metric:
    """What only grows."""
    return Metric(name, Kind.COUNTER, unit, labels, text, only)


def gauge(name: str, unit: str, labels: tuple[str, ...], text: str, only: str = "") -> Metric:
    """What goes up and down."""
    return Metric(name, Kind.GAUGE, unit, labels, text, only)


def histogram(name: str, labels: tuple[str, ...], text: str, only: str = "") -> Metric:
    """Seconds, by size."""
    return Metric(name, Kind.HISTOGRAM, "seconds", labels, text, only)
