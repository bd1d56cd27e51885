"""Histograms: where measurements fall, and what a scrape shows."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from magnetar.observability.histogram import Histogram
from magnetar.observability.metrics import Exposition, labels


def test_measurements_fall_below_their_bounds() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 3.0):
        histogram.add(seconds)
    assert histogram.counts == [2, 1, 1]
    assert (histogram.count, histogram.sum_s) == (4, 3.65)
    assert [histogram.quantile(share) for share in (0.5, 0.75, 1.0)] == [0.1, 1.0, float("inf")]
    assert Histogram().quantile(0.99) == 0.0


def test_a_scrape_shows_it_with_its_labels() -> None:
    out = Exposition()
    for name in ("a", 'b"'):
        histogram = Histogram((0.1, 1.0))
        histogram.add(0.5)
        histogram.collect(out, "h_seconds", "A histogram.", labels(("namespace", name)))
    (family,) = text_string_to_metric_families(out.render())
    found = {
        (sample.name, sample.labels["namespace"], sample.labels.get("le")): sample.value
        for sample in family.samples
    }
    assert family.type == "histogram"
    assert found["h_seconds_bucket", 'b"', "1.0"] == 1
    assert found["h_seconds_bucket", "a", "0.1"] == 0
    assert found["h_seconds_bucket", "a", "+Inf"] == found["h_seconds_count", "a", None] == 1
    assert found["h_seconds_sum", "a", None] == 0.5
