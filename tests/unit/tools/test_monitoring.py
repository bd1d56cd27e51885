"""Dashboards, alerts and lists are those that the registry of metrics makes today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from alerts import ALERTS
from dashboards import ALL, DASHBOARDS, Dashboard, NoSuchMetricError, quantile, rate, value
from log_events import events
from monitoring import MARK, PAGE, texts

from magnetar.observability.catalogue import METRICS


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.name)
def test_what_is_committed_is_current(path: Path) -> None:
    assert texts()[path]().splitlines() == path.read_text("utf-8").splitlines(), (
        "run `python tools/monitoring.py`"
    )


def test_alerts_are_about_metrics_that_there_are() -> None:
    for alert in ALERTS:
        assert alert.metrics() <= METRICS.keys(), alert.name
        assert alert.metrics() or "up{" in alert.expression
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= {
            "instance",
            *(label for name in alert.metrics() for label in METRICS[name].labels),
        }
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def test_every_metric_is_on_a_dashboard() -> None:
    assert {query.metric.name for panel in ALL.panels() for query in panel.queries} == METRICS.keys()


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_panels_do_not_overlap(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.document()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_page_names_metrics_that_there_are() -> None:
    names = re.findall(r"`((?:pulsar|magnetar)_[a-z_]+[a-z])`", PAGE.read_text("utf-8").partition(MARK)[0])
    assert len(names) > 20
    assert sorted(set(names) - METRICS.keys()) == []


def test_expressions_are_checked() -> None:
    with pytest.raises(NoSuchMetricError, match="not declared"):
        value("pulsar_no_such_thing")
    with pytest.raises(NoSuchMetricError, match="is a gauge"):
        rate("pulsar_msg_backlog")
    with pytest.raises(NoSuchMetricError, match="no label"):
        quantile("magnetar_sync_seconds", 0.5, "namespace")


def test_events_have_names_of_their_own() -> None:
    templates: dict[str, set[str]] = {}
    for event in events():
        assert re.fullmatch(r"[a-z.]+\.[a-z0-9-]+", event.name), event
        templates.setdefault(event.name, set()).add(event.template)
    assert len(templates) > 100
