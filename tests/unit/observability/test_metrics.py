"""The text form of metrics, against what a Prometheus parser reads from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families

from magnetar.observability import process
from magnetar.observability.metrics import Exposition, Registry, labels


def test_reads_back_with_types_labels_and_values() -> None:
    registry = Registry()
    sent = registry.counter("magnetar_sent_total", "Sent.", labels(("kind", "a")))
    sent.value += 3
    level = registry.gauge("magnetar_level", "A level.")
    level.value = 0.5
    families = {family.name: family for family in text_string_to_metric_families("".join(registry.scrape()))}
    assert families["magnetar_sent"].type == "counter"
    assert [(s.labels, s.value) for s in families["magnetar_sent"].samples] == [({"kind": "a"}, 3.0)]
    assert families["magnetar_level"].type == "gauge"
    assert families["magnetar_level"].samples[0].value == 0.5


def test_hostile_label_values_stay_values() -> None:
    registry = Registry()
    value = 'a"} 1\nforged{x="\\'

    def collect(exposition: Exposition) -> Iterable[None]:
        exposition.gauge("g", "h\nh\\", 1, labels(("topic", value)))
        return ()

    registry.collector(collect)
    families = {family.name: family for family in text_string_to_metric_families("".join(registry.scrape()))}
    assert "forged" not in families
    assert families["g"].samples[0].labels == {"topic": value}


def test_families_are_not_interleaved() -> None:
    exposition = Exposition()
    for topic in ("a", "b"):
        exposition.gauge("x", "x", 1, labels(("topic", topic)))
        exposition.gauge("y", "y", 2, labels(("topic", topic)))
    names = [line.split("{")[0] for line in exposition.render().splitlines() if not line.startswith("#")]
    assert names == ["x", "x", "y", "y"]


def test_special_numbers() -> None:
    exposition = Exposition()
    for value in (math.inf, -math.inf, math.nan, True, 1 << 70):
        exposition.gauge("x", "x", value)
    values = [line.split()[1] for line in exposition.render().splitlines() if not line.startswith("#")]
    assert values == ["+Inf", "-Inf", "NaN", "1", str(1 << 70)]


def test_limit_of_series_is_kept_and_told() -> None:
    registry = Registry(series_max=2)

    def collect(exposition: Exposition) -> Iterator[None]:
        for number in range(5):
            exposition.gauge("x", "x", number, labels(("n", str(number))))
            yield

    registry.collector(collect)
    text = "".join(registry.scrape())
    assert text.count("\nx{") == 2
    assert "magnetar_metrics_series 2\n" in text
    assert "magnetar_metrics_series_dropped 3\n" in text


def test_process_metrics_are_plausible() -> None:
    registry = Registry()
    registry.collector(process.collect)
    families = {family.name: family for family in text_string_to_metric_families("".join(registry.scrape()))}
    assert families["process_resident_memory_bytes"].samples[0].value > 1 << 20
    assert families["process_cpu_seconds"].samples[0].value > 0


def test_histograms_read_back_and_respect_the_limit_as_a_whole() -> None:
    exposition = Exposition(series_max=5)
    exposition.histogram("late_seconds", "Late.", (0.1, 1.0), [3, 0, 2], 12.5)
    exposition.histogram("more_seconds", "More.", (0.1,), [0, 0], 0)
    families = list(text_string_to_metric_families(exposition.render()))
    assert [family.type for family in families] == ["histogram"]
    assert [(s.name, s.labels.get("le"), s.value) for s in families[0].samples] == [
        ("late_seconds_bucket", "0.1", 3.0),
        ("late_seconds_bucket", "1.0", 3.0),
        ("late_seconds_bucket", "+Inf", 5.0),
        ("late_seconds_sum", None, 12.5),
        ("late_seconds_count", None, 5.0),
    ]
    assert exposition.dropped == 4
