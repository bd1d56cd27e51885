"""Exports metrics to OpenTelemetry: converts a scrape to the SDK's data, and sends it over HTTP or gRPC.

The scrape is made on the event loop as for Prometheus; the rest (reading, encoding, sending) may run in a
thread. The libraries come with the extra `otel` and are imported when the export is configured.

Source: OpenTelemetry's metrics data model, and its mapping of Prometheus's families: counters are monotonic
cumulative sums, gauges gauges, histograms explicit-bucket histograms. Names stay Prometheus's.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from magnetar.base.errors import MagnetarError
from magnetar.observability.catalogue import METRICS

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricExporter, MetricsData
    from opentelemetry.sdk.resources import Resource

SCHEMES: Final = {"http": "http", "https": "http", "grpc": "grpc", "grpcs": "grpc"}
"""The protocol by scheme of the endpoint; https and grpcs are encrypted."""
EXTRA: Final = "OpenTelemetry needs the extra 'otel': pip install '.[otel]' in a clone"
_HTTP_PATH: Final = "/v1/metrics"
_SCOPE: Final = "magnetar"
_UNITS: Final = {
    "messages": "{message}",
    "entries": "{entry}",
    "bytes": "By",
    "seconds": "s",
    "per second": "{message}/s",
    "bytes per second": "By/s",
    "ratio": "1",
}
"""The registry's units, in UCUM's notation."""

_LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")


class ExportError(MagnetarError):
    """The endpoint did not accept the metrics."""


@dataclass(slots=True)
class Family:
    """One metric family of a scrape."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)
    """Name, labels, value."""


def families(text: str) -> list[Family]:
    """The families in the text of a scrape by `metrics.Registry`."""
    found: list[Family] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, help_text = line.split(" ", 3)
            found.append(Family(name, "", help_text))
        elif line.startswith("# TYPE "):
            found[-1].kind = line.rsplit(" ", 1)[1]
        elif match := _LINE.fullmatch(line):
            labels = {key: _unescaped(value) for key, value in _LABEL.findall(match[2] or "")}
            found[-1].samples.append((match[1], labels, float(match[3])))
    return found


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def metrics_data(text: str, resource: Resource, *, started_ns: int, now_ns: int) -> MetricsData:
    """A scrape as data of the SDK; times are Unix nanoseconds."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    made = [_metric(family, started_ns, now_ns) for family in families(text)]
    scope = ScopeMetrics(InstrumentationScope(_SCOPE), made, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, started_ns: int, now_ns: int) -> Metric:
    from opentelemetry.sdk.metrics import export as sdk

    declared = METRICS.get(family.name)
    unit = _UNITS.get(declared.unit, "1") if declared else "1"
    data: object
    if family.kind == "histogram":
        points = [
            sdk.HistogramDataPoint(
                labels, started_ns, now_ns, sum(counts), total, counts, bounds, -math.inf, math.inf
            )
            for labels, bounds, counts, total in _histograms(family)
        ]
        data = sdk.Histogram(points, sdk.AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            sdk.NumberDataPoint(labels, started_ns, now_ns, int(value) if value.is_integer() else value)
            for _, labels, value in family.samples
        ]
        data = sdk.Gauge(numbers)
        if family.kind == "counter":
            data = sdk.Sum(numbers, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return sdk.Metric(family.name, family.help, unit, data)


def _histograms(family: Family) -> Iterator[tuple[dict[str, str], list[float], list[int], float]]:
    """Labels, bounds, counts between them, and the sum, of each histogram of a family."""
    parts: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, int]], list[float]]] = {}
    for name, labels, value in family.samples:
        bound = labels.pop("le", "")
        buckets, total = parts.setdefault(tuple(labels.items()), ([], []))
        if name.endswith("_bucket"):
            buckets.append((float(bound), int(value)))
        elif name.endswith("_sum"):
            total.append(value)
    for key, (buckets, total) in parts.items():
        counts = [
            count - before
            for (_, count), before in zip(buckets, [0, *(count for _, count in buckets)], strict=False)
        ]
        yield dict(key), [bound for bound, _ in buckets if not math.isinf(bound)], counts, total[0]


def check_endpoint(endpoint: str) -> str:
    """The protocol of an endpoint, `http` or `grpc`. Raises ValueError with what is wrong."""
    parts = urlsplit(endpoint)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ValueError("expected http://, https://, grpc:// or grpcs:// and host:port")
    return SCHEMES[parts.scheme]


def installed() -> bool:
    """Whether the libraries are installed."""
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


class Exporter:
    """Sends scrapes to one endpoint. Blocks: use it in a thread."""

    def __init__(self, endpoint: str, *, about: Mapping[str, str], started_ns: int, timeout_s: float = 10.0):
        """`about`: attributes of the resource; OTEL_RESOURCE_ATTRIBUTES adds further ones. The variables
        OTEL_EXPORTER_OTLP_* give headers and certificates. Imports the libraries. Raises ValueError for an
        invalid endpoint."""
        from opentelemetry.sdk.metrics.export import MetricExportResult
        from opentelemetry.sdk.resources import Resource

        self._success = MetricExportResult.SUCCESS
        self._resource = Resource.create(dict(about))
        self._started_ns = started_ns
        self._exporter = _exporter(endpoint, timeout_s)
        # Its records have another form than ours; we log failed exports ourselves.
        libraries = logging.getLogger("opentelemetry")
        libraries.addHandler(logging.NullHandler())
        libraries.propagate = False

    def export(self, text: str, now_ns: int) -> None:
        """Sends one scrape; retries within `timeout_s`. Raises ExportError."""
        data = metrics_data(text, self._resource, started_ns=self._started_ns, now_ns=now_ns)
        if self._exporter.export(data) is not self._success:
            raise ExportError("the endpoint did not take the metrics")

    def close(self) -> None:
        """Closes the connections."""
        self._exporter.shutdown()


def _exporter(endpoint: str, timeout_s: float) -> MetricExporter:
    parts = urlsplit(endpoint)
    if check_endpoint(endpoint) == "http":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        path = parts.path if parts.path.strip("/") else _HTTP_PATH
        return OTLPMetricExporter(parts._replace(path=path).geturl(), timeout=timeout_s)
    from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc

    plain = parts.scheme == "grpc"
    scheme = "http" if plain else "https"
    return grpc.OTLPMetricExporter(parts._replace(scheme=scheme).geturl(), insecure=plain, timeout=timeout_s)
