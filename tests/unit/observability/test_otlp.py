"""A scrape as OpenTelemetry's data: every value, label and bucket arrives."""

from __future__ import annotations

import pytest

from magnetar.observability.histogram import Histogram
from magnetar.observability.metrics import Registry, labels
from magnetar.observability.otlp import _histograms, check_endpoint, families

AWKWARD = 'a "b"\\c\nd'


def test_families_of_a_scrape() -> None:
    registry = Registry()
    registry.counter("pulsar_in_messages_total", "Messages published.", labels(("topic", AWKWARD))).value = 7
    registry.gauge("process_open_fds", "Number of open file descriptors.").value = 1.5
    counter, gauge, *_ = families("".join(registry.scrape()))
    assert (counter.kind, counter.samples) == (
        "counter",
        [("pulsar_in_messages_total", {"topic": AWKWARD}, 7.0)],
    )
    assert (gauge.kind, gauge.help) == ("gauge", "Number of open file descriptors.")
    assert gauge.samples == [("process_open_fds", {}, 1.5)]


def test_histograms_keep_their_buckets() -> None:
    registry = Registry()
    first, second = Histogram((0.1, 1.0)), Histogram((0.1, 1.0))
    for seconds in (0.05, 0.5, 0.6, 7.0):
        first.add(seconds)

    def collect(out: object) -> tuple[()]:
        for name, histogram in (("a", first), ("b", second)):
            histogram.collect(out, "h_seconds", "A histogram.", labels(("namespace", name)))  # type: ignore[arg-type]  # an Exposition
        return ()

    registry.collector(collect)
    (family, *_) = families("".join(registry.scrape()))
    assert list(_histograms(family)) == [
        ({"namespace": "a"}, [0.1, 1.0], [1, 2, 1], 8.15),
        ({"namespace": "b"}, [0.1, 1.0], [0, 0, 0], 0.0),
    ]


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [
        ("http://c:4318", "http"),
        ("https://c/v1/metrics", "http"),
        ("grpc://c:4317", "grpc"),
        ("grpcs://c", "grpc"),
    ],
)
def test_endpoints(endpoint: str, protocol: str) -> None:
    assert check_endpoint(endpoint) == protocol


@pytest.mark.parametrize("endpoint", ["c:4317", "ftp://c", "http://", ""])
def test_what_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(ValueError, match="expected http"):
        check_endpoint(endpoint)
